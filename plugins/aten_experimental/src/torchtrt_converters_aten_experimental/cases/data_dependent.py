"""Cases of ops whose output size depends on data."""

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

MASK = TensorSpec("3 4", torch.bool)
WHOLE = TensorSpec("2 6", torch.int64)

CASES = (
    op_case("aten.nonzero.default", MASK),
    op_case("aten.nonzero.default", "3 4", label="all"),
    op_case("aten.masked_select.default", "3 4", MASK),
    op_case("aten.index.Tensor", "3 4", [MASK], label="mask"),
    op_case("aten._unique2.default", WHOLE, True, True, True),
    op_case("aten.unique_consecutive.default", WHOLE, True, True),
    op_case("aten.unique_dim.default", WHOLE, 0, True, True, True),
)
