"""Cases of arithmetic, comparison, logic and selection."""

import math

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

I64, I32, F16, BOOL = torch.int64, torch.int32, torch.float16, torch.bool
NAN, INF = math.nan, math.inf
ints = TensorSpec("batch 4", I64, -9, 9)
positive_ints = TensorSpec("batch 4", I64, 1, 9)
bools = TensorSpec("batch 4", BOOL)
halves = TensorSpec("batch 4", F16)
special = TensorSpec(values=[NAN, INF, -INF, 0.0, -0.0, 1.5, -1.5])

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
dividends = TensorSpec(values=[x for x in [*_PARTS, -math.inf, 5.4e9, 1e-20] for _ in _PARTS])
divisors = TensorSpec(values=_PARTS * (len(_PARTS) + 3))

CASES = [
    op_case(
        "aten.add.Tensor",
        TensorSpec("batch 4", BOOL),
        TensorSpec("batch 4", BOOL),
        alpha=False,
        label="bool-nothing",
    ),
    op_case("aten.add.Tensor", "batch 4", "batch 4"),
    op_case("aten.add.Tensor", "batch 4", "3 batch 1", label="broadcast"),
    op_case("aten.add.Tensor", "batch 4", "", label="scalar"),
    op_case("aten.add.Tensor", "batch 4", "batch 4", alpha=2.5, label="alpha"),
    op_case("aten.add.Tensor", ints, 1.5, label="int-plus-float"),
    op_case("aten.add.Tensor", ints, "batch 4", label="int-plus-float-tensor"),
    op_case("aten.add.Tensor", ints, TensorSpec("batch 4", I32, -9, 9), label="int64-plus-int32"),
    op_case("aten.add.Tensor", bools, bools, label="bool"),
    op_case("aten.add.Tensor", bools, 1, label="bool-plus-int"),
    op_case("aten.add.Tensor", halves, 1e-5, tolerance=1e-3, label="half-and-small-number"),
    op_case("aten.add.Tensor", halves, "batch 4", label="half-plus-float"),
    op_case("aten.add.Tensor", special, special, label="special"),
    op_case("aten.add.Tensor", "0 batch", "batch", label="empty"),
    op_case("aten.add.Scalar", "batch 4", 2, alpha=3),
    op_case("aten.sub.Tensor", "batch 4", "4", alpha=0.5),
    op_case("aten.sub.Tensor", ints, positive_ints, label="int"),
    op_case("aten.sub.Scalar", "batch 4", 2.5),
    op_case("aten.subtract.Tensor", "batch 4", "batch 4"),
    op_case("aten.rsub.Tensor", "batch 4", "batch 4", alpha=2),
    op_case("aten.rsub.Scalar", ints, 3),
    op_case("aten.mul.Tensor", "batch 4", "batch 1"),
    op_case("aten.mul.Tensor", ints, 1.5, label="int-by-float"),
    op_case("aten.mul.Tensor", bools, bools, label="bool"),
    op_case("aten.mul.Tensor", halves, 1e5, label="half-by-large-number"),
    op_case("aten.mul.Scalar", "batch 4", 3),
    op_case("aten.multiply.Tensor", "batch 4", "batch 4"),
    op_case("aten.div.Tensor", "batch 4", TensorSpec("batch 4", low=1)),
    op_case("aten.div.Tensor", ints, positive_ints, label="int"),
    op_case("aten.div.Tensor", special, special, label="special"),
    op_case("aten.div.Scalar", ints, 2),
    op_case(
        "aten.div.Tensor_mode",
        ints,
        TensorSpec("batch 4", I64, 2, 3),
        rounding_mode="trunc",
        label="trunc-int",
    ),
    op_case(
        "aten.div.Tensor_mode",
        ints,
        TensorSpec("batch 4", I64, 2, 3),
        rounding_mode="floor",
        label="floor-int",
    ),
    op_case(
        "aten.div.Tensor_mode",
        "batch 4",
        TensorSpec("batch 4", low=1),
        rounding_mode="trunc",
        label="trunc",
    ),
    op_case("aten.div.Tensor_mode", "batch 4", 0.5, rounding_mode="floor", label="floor"),
    op_case("aten.div.Tensor_mode", ints, "batch 4", rounding_mode=None, label="none"),
    op_case("aten.div.Scalar_mode", "batch 4", 0.7, rounding_mode="trunc"),
    op_case("aten.divide.Tensor", "batch 4", TensorSpec("batch 4", low=1)),
    op_case("aten.true_divide.Tensor", ints, positive_ints),
    op_case("aten.floor_divide.default", ints, positive_ints),
    op_case("aten.floor_divide.default", "batch 4", 0.25, label="float"),
    op_case("aten.floor_divide.Scalar", ints, -4),
    *[
        op_case(op, dividends, divisors, tolerance=0, label="exact")
        for op in ("aten.remainder.Tensor", "aten.fmod.Tensor", "aten.floor_divide.default")
    ],
    op_case(
        "aten.div.Tensor_mode",
        dividends,
        divisors,
        rounding_mode="floor",
        tolerance=0,
        label="exact",
    ),
    op_case(
        "aten.remainder.Scalar",
        TensorSpec("batch 4", low=-1e6, high=1e6),
        6.2831853,
        tolerance=0,
        label="turns",
    ),
    op_case(
        "aten.fmod.Scalar", TensorSpec("batch 4", F16, -1e4, 1e4), -0.3, tolerance=0, label="half"
    ),
    op_case(
        "aten.floor_divide.default",
        TensorSpec("batch length", F16),
        TensorSpec("length", F16),
        tolerance=0,
        label="half",
    ),
    op_case("aten.remainder.Scalar_Tensor", 7.5, "batch 4", tolerance=0, label="float"),
    op_case("aten.remainder.Tensor", ints, TensorSpec("batch 4", I64, -5, -1)),
    op_case("aten.remainder.Scalar", ints, -4),
    op_case("aten.remainder.Scalar", "batch 4", 0.5, label="float"),
    op_case("aten.remainder.Scalar_Tensor", 17, positive_ints),
    op_case("aten.fmod.Tensor", ints, TensorSpec("batch 4", I64, -5, -1)),
    op_case("aten.fmod.Scalar", ints, 4),
    op_case("aten.fmod.Scalar", "batch 4", 2.0, label="float"),
    op_case("aten.pow.Tensor_Tensor", TensorSpec("batch 4", low=0.1), "batch 4"),
    op_case("aten.pow.Tensor_Scalar", "batch 4", 2),
    op_case("aten.pow.Tensor_Scalar", "batch 4", 3, label="cube"),
    op_case("aten.pow.Tensor_Scalar", TensorSpec("batch 4", low=0.1), 0.5, label="root"),
    op_case("aten.pow.Tensor_Scalar", TensorSpec("batch 4", low=0.1), -1, label="reciprocal"),
    op_case("aten.pow.Tensor_Scalar", TensorSpec("batch 4", low=0.1), 2.7, label="other"),
    op_case("aten.pow.Tensor_Scalar", ints, 5, label="int"),
    op_case("aten.pow.Tensor_Scalar", ints, 1, label="one"),
    op_case(
        "aten.pow.Tensor_Scalar",
        ints,
        2.5,
        function=lambda x, e: (x.abs() + 1) ** e,
        label="int-to-float",
    ),
    op_case("aten.pow.Scalar", 2.5, "batch 4"),
    *[
        op_case(
            "aten.pow.Tensor_Tensor",
            TensorSpec(values=[[-3], [-1], [0], [1], [2], [7], [1 << 20]], dtype=dtype),
            TensorSpec(values=[-3, -2, 0, 1, 2, 5, 30], dtype=dtype),
            label=f"int-{dtype}",
        )
        for dtype in (torch.int64, torch.int32)
    ],
    op_case("aten.pow.Scalar", -2, TensorSpec("batch 4", torch.int64, -2, 9), label="int"),
    op_case("aten.maximum.default", "batch 4", "batch 1"),
    op_case("aten.maximum.default", ints, positive_ints, label="int"),
    op_case("aten.minimum.default", bools, bools, label="bool"),
    op_case("aten.minimum.default", "batch 4", "4"),
    op_case(
        "aten.maximum.default",
        TensorSpec(values=[NAN, 1.0, 2.0]),
        TensorSpec(values=[2.0, NAN, 1.0]),
        label="nan",
    ),
    op_case(
        "aten.minimum.default",
        TensorSpec(values=[NAN, 1.0, 2.0]),
        TensorSpec(values=[2.0, NAN, 1.0]),
        label="nan",
    ),
    op_case("aten.max.other", "batch 4", "batch 4"),
    op_case("aten.min.other", "batch 4", "batch 4"),
    *[
        op_case(f"aten.{name}.{overload}", TensorSpec("batch 4", I64, 0, 3), other)
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
        for overload, other in (("Tensor", TensorSpec("batch 4", I64, 0, 3)), ("Scalar", 2))
    ],
    op_case("aten.gt.Scalar", ints, 0.5, label="int-and-fraction"),
    op_case("aten.eq.Tensor", bools, bools, label="bool"),
    op_case("aten.lt.Tensor", bools, bools, label="bool"),
    op_case("aten.ge.Tensor", special, special, label="special"),
    op_case("aten.ne.Scalar", special, 0.0, label="special"),
    *[
        op_case(f"aten.{name}.Scalar", special, number, label=f"special-{number}")
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for number in (INF, -INF)
    ],
    op_case("aten.eq.Scalar", halves, 1e-9, label="half-and-small-number"),
    op_case("aten.logical_and.default", ints, "batch 4"),
    op_case("aten.logical_or.default", special, TensorSpec(values=[0.0] * 7)),
    op_case("aten.logical_xor.default", bools, bools),
    op_case("aten.logical_not.default", ints),
    op_case("aten.logical_not.default", special, label="special"),
    op_case("aten.where.self", bools, "batch 4", "4"),
    op_case("aten.where.self", bools, ints, "batch 4", label="promoted"),
    op_case("aten.where.ScalarSelf", bools, 2.0, "batch 4"),
    op_case("aten.where.ScalarOther", bools, ints, 1),
    op_case("aten.where.Scalar", bools, 1.0, 0.0),
    op_case("aten.where.Scalar", bools, INF, -INF, label="infinite"),
    op_case("aten.where.ScalarSelf", bools, INF, "batch 1", label="infinite"),
    op_case("aten.where.ScalarOther", bools, halves, -INF, label="infinite-half"),
    op_case("aten.masked_fill.Scalar", "batch 4", bools, -INF),
    op_case("aten.masked_fill.Tensor", ints, bools, TensorSpec("", I64, 0, 5)),
    op_case("aten.clamp.default", "batch 4", -1, 1),
    op_case("aten.clamp.default", ints, None, 4, label="int"),
    op_case("aten.clamp.default", ints, -1.5, None, label="int-by-float"),
    op_case("aten.clamp.default", special, -1, 1, label="special"),
    op_case("aten.clamp.default", "batch 4", 2, 1, label="crossed"),
    op_case("aten.clamp.default", special, -INF, INF, label="infinite"),
    op_case("aten.clamp.default", special, INF, None, label="least-infinite"),
    op_case("aten.clamp.default", halves, None, -INF, label="most-infinite-half"),
    op_case("aten.clamp.Tensor", special, TensorSpec(values=[NAN] * 7), None, label="nan-limit"),
    op_case("aten.clamp_max.Tensor", special, special, label="special"),
    op_case("aten.hardtanh.default", special, -1, 1, label="special"),
    op_case("aten.relu6.default", special, label="special"),
    op_case("aten.clamp.Tensor", "batch 4", "4", "batch 1"),
    op_case("aten.clip.default", "batch 4", -1, 1),
    op_case("aten.clip.Tensor", "batch 4", None, "4"),
    op_case("aten.clamp_min.default", "batch 4", 0.5),
    op_case("aten.clamp_min.Tensor", "batch 4", "4"),
    op_case("aten.clamp_max.default", ints, 3),
    op_case("aten.clamp_max.Tensor", "batch 4", "4"),
    op_case("aten.clamp_max.Tensor", bools, TensorSpec("4", BOOL), label="bool"),
]
