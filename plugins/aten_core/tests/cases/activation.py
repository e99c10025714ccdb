"""Cases of activation functions."""

import math

import torch
import torch.nn.functional as F

from ..harness import T, case

I64, F16 = torch.int64, torch.float16
special = T(values=[-1e4, -100.0, -1.0, 0.0, 1.0, 19.0, 21.0, 100.0, 1e4, math.inf])

CASES = [
    *[
        case(f"aten.{name}.default", "b 4", tolerance=1e-4)
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
    case("aten.sigmoid.default", T("b 4", I64), label="int"),
    case("aten.tanh.default", special, label="special"),
    case("aten.relu.default", T("b 4", I64), label="int"),
    case("aten.relu6.default", T("b 4", low=-9, high=9), label="both-sides"),
    case("aten.hardtanh.default", "b 4", -0.5, 2.0, label="bounds"),
    case("aten.gelu.default", "b 4", approximate="tanh", label="tanh"),
    case("aten.gelu.default", T("b 4", F16), label="half", tolerance=3e-3),
    case("aten.leaky_relu.default", "b 4", 0.2, label="slope"),
    case("aten.elu.default", "b 4", 1.5, label="alpha"),
    case("aten.elu.default", "b 4", 1.5, 0.7, label="scale"),
    case("aten.elu.default", "b 4", 1.5, 0.7, 2.0, label="input-scale", tolerance=1e-4),
    case("aten.softplus.default", special, label="special"),
    case("aten.softplus.default", "b 4", 3.0, 2.0, label="threshold"),
    case("aten.threshold.default", "b 4", 0.5, -7.0),
    case("aten.prelu.default", "b 5 s", function=lambda x: F.prelu(x, torch.linspace(-1, 1, 5))),
    case(
        "aten.prelu.default",
        "b 4",
        function=lambda x: F.prelu(x, torch.tensor([0.3])),
        label="shared",
    ),
    case("aten.prelu.default", "b 5 s", "5", label="given"),
    case("aten.prelu.default", "b 5", "5", label="given-matrix"),
    case("aten.prelu.default", "b 5 s", "1", label="given-shared"),
    case("aten.prelu.default", "b", "1", label="given-vector"),
    case("aten.prelu.default", "", "1", label="given-scalar"),
]
