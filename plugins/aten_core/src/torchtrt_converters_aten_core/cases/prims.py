"""Cases of PyTorch's primitive ops."""

import torch

from torchtrt_testing.cases import decomposition_case
from torchtrt_testing.tensors import TensorSpec

I64 = torch.int64

CASES = [
    decomposition_case(
        "prims.broadcast_in_dim.default", "3 4", [2, 3, 5, 4], [1, 3], label="beside"
    ),
    decomposition_case("prims.broadcast_in_dim.default", "1 4", [6, 4], [0, 1]),
    decomposition_case("prims.div.default", "batch 4", TensorSpec("batch 4", low=1.0)),
    decomposition_case(
        "prims.div.default",
        TensorSpec("batch 4", I64, -9, 9),
        TensorSpec("batch 4", I64, 1, 4),
        label="int",
    ),
    decomposition_case("prims.sum.default", "batch 4 length", [0, 2]),
]
