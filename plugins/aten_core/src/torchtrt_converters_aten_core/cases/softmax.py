"""Cases of softmax and its logarithm."""

import math

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

F16, I64 = torch.float16, torch.int64
integers = TensorSpec("batch length", I64)
large = TensorSpec(values=[[0.0, 150.0], [-1e4, 1e4], [-math.inf, 0.0]])

CASES = [
    op_case("aten.softmax.int", "batch length", -1),
    op_case("aten.softmax.int", "batch length 3", 0, label="first"),
    op_case("aten.softmax.int", "5", 0, label="vector"),
    op_case("aten.softmax.int", "", 0, label="scalar"),
    op_case("aten.softmax.int", integers, -1, torch.float32, label="int"),
    op_case("aten.softmax.int", large, 1, label="large"),
    op_case("aten.softmax.int", TensorSpec("batch length", F16), 1, label="half", tolerance=2e-3),
    op_case("aten._softmax.default", "batch length", 1, False),
    op_case("aten.log_softmax.int", "batch length", -1),
    op_case("aten.log_softmax.int", large, 1, label="large"),
    op_case("aten.log_softmax.int", "", 0, label="scalar"),
    op_case(
        "aten.log_softmax.int", TensorSpec("batch length", F16), 1, label="half", tolerance=2e-3
    ),
    op_case("aten._log_softmax.default", "batch length", 0, False),
    op_case("aten.logsumexp.default", "batch length 4", [1, 2]),
    op_case("aten.logsumexp.default", large, [1], True, label="large"),
    op_case(
        "aten.logsumexp.default",
        TensorSpec(values=[-math.inf, -math.inf]),
        [0],
        label="all-minus-infinity",
    ),
]
