"""Cases of functions of one tensor."""

import math

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

I64, F16, BOOL = torch.int64, torch.float16, torch.bool
NAN, INF = math.nan, math.inf
ints = TensorSpec("batch 4", I64, -9, 9)
special = TensorSpec(values=[NAN, INF, -INF, 0.0, -0.0, 2.5, -2.5, 0.5, 1e30])
ANY = (
    "atan",
    "asinh",
    "cos",
    "cosh",
    "erf",
    "special_erf",
    "exp",
    "reciprocal",
    "sin",
    "sinh",
    "tan",
)
WITHIN_ONE = ("acos", "asin", "atanh")
POSITIVE = ("log", "sqrt", "rsqrt", "acosh")

CASES = [
    *[op_case(f"aten.{name}.default", "batch 4", tolerance=1e-4) for name in ANY],
    *[
        op_case(f"aten.{name}.default", TensorSpec("batch 4", low=-0.99, high=0.99))
        for name in WITHIN_ONE
    ],
    *[op_case(f"aten.{name}.default", TensorSpec("batch 4", low=1.0)) for name in POSITIVE],
    *[
        op_case(
            f"aten.{name}.default",
            TensorSpec(values=[-INF, -50.0, -0.5, -1e-6, 0.0, 1e-20, 1e-6, 0.3, 40.0, INF]),
            label=name,
        )
        for name in ("expm1", "special_expm1")
    ],
    *[
        op_case(
            f"aten.{name}.default",
            TensorSpec(values=[-2.0, -1.0, -0.9, -1e-6, 0.0, 1e-20, 1e-6, 0.3, 1e30, INF]),
            label=name,
        )
        for name in ("log1p", "special_log1p")
    ],
    *[
        op_case(f"aten.{name}.default", "batch 4")
        for name in (
            "alias",
            "detach",
            "lift_fresh_copy",
            "resolve_conj",
            "resolve_neg",
            "contiguous",
        )
    ],
    op_case("aten.exp.default", ints, label="int", tolerance=1e-4),
    op_case("aten.sqrt.default", TensorSpec("batch 4", BOOL), label="bool"),
    op_case("aten.log.default", special, label="special"),
    op_case("aten.sin.default", "", label="scalar"),
    op_case("aten.tan.default", TensorSpec("batch 4", F16, -1, 1), label="half", tolerance=2e-3),
    op_case("aten.rsqrt.default", TensorSpec("batch 4", I64, 1, 9), label="int"),
    *[
        op_case(f"aten.{name}.default", argument, label=label)
        for name in ("ceil", "floor", "round", "trunc")
        for label, argument in (("", TensorSpec("batch 4")), ("special", special), ("int", ints))
    ],
    op_case("aten.fix.default", "batch 4"),
    *[
        op_case(f"aten.{name}.default", argument, label=label)
        for name in ("abs", "sign", "sgn", "neg")
        for label, argument in (("", TensorSpec("batch 4")), ("int", ints))
    ],
    op_case("aten.abs.default", special, label="special"),
    op_case("aten.negative.default", "batch 4"),
    op_case("aten.isnan.default", special),
    op_case("aten.isinf.default", special),
    op_case("aten.isinf.default", ints, label="int"),
    op_case("aten.square.default", ints),
    op_case("aten.positive.default", "batch 4", function=lambda x: torch.positive(x) + 1),
    op_case("aten.clone.default", "batch 4"),
]
