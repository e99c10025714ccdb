"""Cases of functions of one tensor."""

import math

import torch

from ..harness import T, case

I64, F16, BOOL = torch.int64, torch.float16, torch.bool
NAN, INF = math.nan, math.inf
ints = T("b 4", I64, -9, 9)
special = T(values=[NAN, INF, -INF, 0.0, -0.0, 2.5, -2.5, 0.5, 1e30])
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
    *[case(f"aten.{name}.default", "b 4", tolerance=1e-4) for name in ANY],
    *[case(f"aten.{name}.default", T("b 4", low=-0.99, high=0.99)) for name in WITHIN_ONE],
    *[case(f"aten.{name}.default", T("b 4", low=1.0)) for name in POSITIVE],
    *[
        case(
            f"aten.{name}.default",
            T(values=[-INF, -50.0, -0.5, -1e-6, 0.0, 1e-20, 1e-6, 0.3, 40.0, INF]),
            label=name,
        )
        for name in ("expm1", "special_expm1")
    ],
    *[
        case(
            f"aten.{name}.default",
            T(values=[-2.0, -1.0, -0.9, -1e-6, 0.0, 1e-20, 1e-6, 0.3, 1e30, INF]),
            label=name,
        )
        for name in ("log1p", "special_log1p")
    ],
    *[
        case(f"aten.{name}.default", "b 4")
        for name in (
            "alias",
            "detach",
            "lift_fresh_copy",
            "resolve_conj",
            "resolve_neg",
            "contiguous",
        )
    ],
    case("aten.exp.default", ints, label="int", tolerance=1e-4),
    case("aten.sqrt.default", T("b 4", BOOL), label="bool"),
    case("aten.log.default", special, label="special"),
    case("aten.sin.default", "", label="scalar"),
    case("aten.tan.default", T("b 4", F16, -1, 1), label="half", tolerance=2e-3),
    case("aten.rsqrt.default", T("b 4", I64, 1, 9), label="int"),
    *[
        case(f"aten.{name}.default", argument, label=label)
        for name in ("ceil", "floor", "round", "trunc")
        for label, argument in (("", T("b 4")), ("special", special), ("int", ints))
    ],
    case("aten.fix.default", "b 4"),
    *[
        case(f"aten.{name}.default", argument, label=label)
        for name in ("abs", "sign", "sgn", "neg")
        for label, argument in (("", T("b 4")), ("int", ints))
    ],
    case("aten.abs.default", special, label="special"),
    case("aten.negative.default", "b 4"),
    case("aten.isnan.default", special),
    case("aten.isinf.default", special),
    case("aten.isinf.default", ints, label="int"),
    case("aten.square.default", ints),
    case("aten.positive.default", "b 4", function=lambda x: torch.positive(x) + 1),
    case("aten.clone.default", "b 4"),
]
