"""Cases of activation functions."""

import math

import torch
import torch.nn.functional as F

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

I64, F16 = torch.int64, torch.float16
special = TensorSpec(values=[-1e4, -100.0, -1.0, 0.0, 1.0, 19.0, 21.0, 100.0, 1e4, math.inf])

CASES = [
    *[
        op_case(f"aten.{name}.default", "batch 4", tolerance=1e-4)
        for name in (
            "sigmoid",
            "special_expit",
            "tanh",
            "selu",
            "hardsigmoid",
            "relu",
            "relu6",
            "hardtanh",
            "silu",
            "gelu",
            "leaky_relu",
            "elu",
            "softplus",
        )
    ],
    op_case("aten.sigmoid.default", TensorSpec("batch 4", I64), label="int"),
    op_case("aten.tanh.default", special, label="special"),
    op_case("aten.relu.default", TensorSpec("batch 4", I64), label="int"),
    op_case("aten.relu6.default", TensorSpec("batch 4", low=-9, high=9), label="both-sides"),
    op_case("aten.hardtanh.default", "batch 4", -0.5, 2.0, label="bounds"),
    op_case("aten.gelu.default", "batch 4", approximate="tanh", label="tanh"),
    op_case("aten.gelu.default", TensorSpec("batch 4", F16), label="half", tolerance=3e-3),
    op_case("aten.leaky_relu.default", "batch 4", 0.2, label="slope"),
    op_case("aten.elu.default", "batch 4", 1.5, label="alpha"),
    op_case("aten.elu.default", "batch 4", 1.5, 0.7, label="scale"),
    op_case("aten.elu.default", "batch 4", 1.5, 0.7, 2.0, label="input-scale", tolerance=1e-4),
    op_case("aten.softplus.default", special, label="special"),
    op_case("aten.softplus.default", "batch 4", 3.0, 2.0, label="threshold"),
    op_case("aten.threshold.default", "batch 4", 0.5, -7.0),
    op_case(
        "aten.prelu.default",
        "batch 5 length",
        function=lambda x: F.prelu(x, torch.linspace(-1, 1, 5)),
    ),
    op_case(
        "aten.prelu.default",
        "batch 4",
        function=lambda x: F.prelu(x, torch.tensor([0.3])),
        label="shared",
    ),
    op_case("aten.prelu.default", "batch 5 length", "5", label="given"),
    op_case("aten.prelu.default", "batch 5", "5", label="given-matrix"),
    op_case("aten.prelu.default", "batch 5 length", "1", label="given-shared"),
    op_case("aten.prelu.default", "batch", "1", label="given-vector"),
    op_case("aten.prelu.default", "", "1", label="given-scalar"),
]
