"""Cases of arithmetic, comparison, logic and selection."""

import math

import torch

from ..harness import T, case

I64, I32, F16, BOOL = torch.int64, torch.int32, torch.float16, torch.bool
NAN, INF = math.nan, math.inf
ints = T("b 4", I64, -9, 9)
positive_ints = T("b 4", I64, 1, 9)
bools = T("b 4", BOOL)
halves = T("b 4", F16)
special = T(values=[NAN, INF, -INF, 0.0, -0.0, 1.5, -1.5])

_PARTS = [
    0.0,
    -0.0,
    0.1,
    -0.3,
    1.0,
    2.5,
    -3.0,
    7.1,
    1e5,
    16777217.0,
    -1.23e10,
    1e-3,
    math.inf,
    math.nan,
]
dividends = T(values=[x for x in [*_PARTS, -math.inf, 5.4e9, 1e-20] for _ in _PARTS])
divisors = T(values=_PARTS * (len(_PARTS) + 3))

CASES = [
    case("aten.add.Tensor", T("b 4", BOOL), T("b 4", BOOL), alpha=False, label="bool-nothing"),
    case("aten.add.Tensor", "b 4", "b 4"),
    case("aten.add.Tensor", "b 4", "3 b 1", label="broadcast"),
    case("aten.add.Tensor", "b 4", "", label="scalar"),
    case("aten.add.Tensor", "b 4", "b 4", alpha=2.5, label="alpha"),
    case("aten.add.Tensor", ints, 1.5, label="int-plus-float"),
    case("aten.add.Tensor", ints, "b 4", label="int-plus-float-tensor"),
    case("aten.add.Tensor", ints, T("b 4", I32, -9, 9), label="int64-plus-int32"),
    case("aten.add.Tensor", bools, bools, label="bool"),
    case("aten.add.Tensor", bools, 1, label="bool-plus-int"),
    case("aten.add.Tensor", halves, 1e-5, tolerance=1e-3, label="half-and-small-number"),
    case("aten.add.Tensor", halves, "b 4", label="half-plus-float"),
    case("aten.add.Tensor", special, special, label="special"),
    case("aten.add.Tensor", "0 b", "b", label="empty"),
    case("aten.add.Scalar", "b 4", 2, alpha=3),
    case("aten.sub.Tensor", "b 4", "4", alpha=0.5),
    case("aten.sub.Tensor", ints, positive_ints, label="int"),
    case("aten.sub.Scalar", "b 4", 2.5),
    case("aten.subtract.Tensor", "b 4", "b 4"),
    case("aten.rsub.Tensor", "b 4", "b 4", alpha=2),
    case("aten.rsub.Scalar", ints, 3),
    case("aten.mul.Tensor", "b 4", "b 1"),
    case("aten.mul.Tensor", ints, 1.5, label="int-by-float"),
    case("aten.mul.Tensor", bools, bools, label="bool"),
    case("aten.mul.Tensor", halves, 1e5, label="half-by-large-number"),
    case("aten.mul.Scalar", "b 4", 3),
    case("aten.multiply.Tensor", "b 4", "b 4"),
    case("aten.div.Tensor", "b 4", T("b 4", low=1)),
    case("aten.div.Tensor", ints, positive_ints, label="int"),
    case("aten.div.Tensor", special, special, label="special"),
    case("aten.div.Scalar", ints, 2),
    case(
        "aten.div.Tensor_mode", ints, T("b 4", I64, 2, 3), rounding_mode="trunc", label="trunc-int"
    ),
    case(
        "aten.div.Tensor_mode", ints, T("b 4", I64, 2, 3), rounding_mode="floor", label="floor-int"
    ),
    case("aten.div.Tensor_mode", "b 4", T("b 4", low=1), rounding_mode="trunc", label="trunc"),
    case("aten.div.Tensor_mode", "b 4", 0.5, rounding_mode="floor", label="floor"),
    case("aten.div.Tensor_mode", ints, "b 4", rounding_mode=None, label="none"),
    case("aten.div.Scalar_mode", "b 4", 0.7, rounding_mode="trunc"),
    case("aten.divide.Tensor", "b 4", T("b 4", low=1)),
    case("aten.true_divide.Tensor", ints, positive_ints),
    case("aten.floor_divide.default", ints, positive_ints),
    case("aten.floor_divide.default", "b 4", 0.25, label="float"),
    case("aten.floor_divide.Scalar", ints, -4),
    *[
        case(op, dividends, divisors, tolerance=0, label="exact", **options)
        for op, options in (
            ("aten.remainder.Tensor", {}),
            ("aten.fmod.Tensor", {}),
            ("aten.floor_divide.default", {}),
            ("aten.div.Tensor_mode", {"rounding_mode": "floor"}),
        )
    ],
    case(
        "aten.remainder.Scalar", T("b 4", low=-1e6, high=1e6), 6.2831853, tolerance=0, label="turns"
    ),
    case("aten.fmod.Scalar", T("b 4", F16, -1e4, 1e4), -0.3, tolerance=0, label="half"),
    case("aten.floor_divide.default", T("b s", F16), T("s", F16), tolerance=0, label="half"),
    case("aten.remainder.Scalar_Tensor", 7.5, "b 4", tolerance=0, label="float"),
    case("aten.remainder.Tensor", ints, T("b 4", I64, -5, -1)),
    case("aten.remainder.Scalar", ints, -4),
    case("aten.remainder.Scalar", "b 4", 0.5, label="float"),
    case("aten.remainder.Scalar_Tensor", 17, positive_ints),
    case("aten.fmod.Tensor", ints, T("b 4", I64, -5, -1)),
    case("aten.fmod.Scalar", ints, 4),
    case("aten.fmod.Scalar", "b 4", 2.0, label="float"),
    case("aten.pow.Tensor_Tensor", T("b 4", low=0.1), "b 4"),
    case("aten.pow.Tensor_Scalar", "b 4", 2),
    case("aten.pow.Tensor_Scalar", "b 4", 3, label="cube"),
    case("aten.pow.Tensor_Scalar", T("b 4", low=0.1), 0.5, label="root"),
    case("aten.pow.Tensor_Scalar", T("b 4", low=0.1), -1, label="reciprocal"),
    case("aten.pow.Tensor_Scalar", T("b 4", low=0.1), 2.7, label="other"),
    case("aten.pow.Tensor_Scalar", ints, 5, label="int"),
    case("aten.pow.Tensor_Scalar", ints, 1, label="one"),
    case(
        "aten.pow.Tensor_Scalar",
        ints,
        2.5,
        function=lambda x, e: (x.abs() + 1) ** e,
        label="int-to-float",
    ),
    case("aten.pow.Scalar", 2.5, "b 4"),
    *[
        case(
            "aten.pow.Tensor_Tensor",
            T(values=[[-3], [-1], [0], [1], [2], [7], [1 << 20]], dtype=dtype),
            T(values=[-3, -2, 0, 1, 2, 5, 30], dtype=dtype),
            label=f"int-{dtype}",
        )
        for dtype in (torch.int64, torch.int32)
    ],
    case("aten.pow.Scalar", -2, T("b 4", torch.int64, -2, 9), label="int"),
    case("aten.maximum.default", "b 4", "b 1"),
    case("aten.maximum.default", ints, positive_ints, label="int"),
    case("aten.minimum.default", bools, bools, label="bool"),
    case("aten.minimum.default", "b 4", "4"),
    case("aten.maximum.default", T(values=[NAN, 1.0, 2.0]), T(values=[2.0, NAN, 1.0]), label="nan"),
    case("aten.minimum.default", T(values=[NAN, 1.0, 2.0]), T(values=[2.0, NAN, 1.0]), label="nan"),
    case("aten.max.other", "b 4", "b 4"),
    case("aten.min.other", "b 4", "b 4"),
    *[
        case(f"aten.{name}.{overload}", T("b 4", I64, 0, 3), other)
        for name in (
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "not_equal",
            "less",
            "less_equal",
            "greater",
            "greater_equal",
        )
        for overload, other in (("Tensor", T("b 4", I64, 0, 3)), ("Scalar", 2))
    ],
    case("aten.gt.Scalar", ints, 0.5, label="int-and-fraction"),
    case("aten.eq.Tensor", bools, bools, label="bool"),
    case("aten.lt.Tensor", bools, bools, label="bool"),
    case("aten.ge.Tensor", special, special, label="special"),
    case("aten.ne.Scalar", special, 0.0, label="special"),
    case("aten.eq.Scalar", halves, 1e-9, label="half-and-small-number"),
    case("aten.logical_and.default", ints, "b 4"),
    case("aten.logical_or.default", special, T(values=[0.0] * 7)),
    case("aten.logical_xor.default", bools, bools),
    case("aten.logical_not.default", ints),
    case("aten.logical_not.default", special, label="special"),
    case("aten.where.self", bools, "b 4", "4"),
    case("aten.where.self", bools, ints, "b 4", label="promoted"),
    case("aten.where.ScalarSelf", bools, 2.0, "b 4"),
    case("aten.where.ScalarOther", bools, ints, 1),
    case("aten.where.Scalar", bools, 1.0, 0.0),
    case("aten.masked_fill.Scalar", "b 4", bools, -INF),
    case("aten.masked_fill.Tensor", ints, bools, T("", I64, 0, 5)),
    case("aten.clamp.default", "b 4", -1, 1),
    case("aten.clamp.default", ints, None, 4, label="int"),
    case("aten.clamp.default", ints, -1.5, None, label="int-by-float"),
    case("aten.clamp.default", special, -1, 1, label="special"),
    case("aten.clamp.default", "b 4", 2, 1, label="crossed"),
    case("aten.clamp.Tensor", "b 4", "4", "b 1"),
    case("aten.clip.default", "b 4", -1, 1),
    case("aten.clip.Tensor", "b 4", None, "4"),
    case("aten.clamp_min.default", "b 4", 0.5),
    case("aten.clamp_min.Tensor", "b 4", "4"),
    case("aten.clamp_max.default", ints, 3),
    case("aten.clamp_max.Tensor", "b 4", "4"),
    case("aten.clamp_max.Tensor", bools, T("4", BOOL), label="bool"),
]
