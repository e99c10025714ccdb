"""Cases of reductions."""

import math

import torch

from ..harness import T, case

I64, F16, BOOL = torch.int64, torch.float16, torch.bool
ints = T("b s 4", I64, -9, 9)
bools = T("b s", BOOL)
NAN, INF = math.nan, math.inf

CASES = [
    case("aten.sum.default", "b s"),
    case("aten.sum.default", "", label="scalar"),
    case("aten.sum.default", bools, label="bool"),
    case("aten.sum.dim_IntList", "b s 4", [0, -1]),
    case("aten.sum.dim_IntList", "b s 4", [1], True, label="keep"),
    case("aten.sum.dim_IntList", ints, [1], label="int"),
    case("aten.sum.dim_IntList", ints, [1], dtype=torch.float32, label="int-as-float"),
    case("aten.sum.dim_IntList", "b 0", [1], label="empty"),
    case("aten.sum.dim_IntList", "b s", None, label="all"),
    case(
        "aten.sum.dim_IntList",
        T(values=[[2**24 + 1, 2], [-(2**31) + 5, 2**30 + 3]], dtype=I64),
        [0],
        label="large-int",
    ),
    case("aten.sum.default", T("b 300", I64, -(2**20), 2**20), label="many-large-int"),
    case(
        "aten.amax.default",
        T(values=[[2**24 + 1, 2**24], [-(2**24) - 1, -(2**24) - 2]], dtype=I64),
        [1],
        label="large-int",
    ),
    case(
        "aten.amin.default",
        T(values=[[2**24 + 1, 2**24], [-(2**24) - 1, -(2**24) - 2]], dtype=I64),
        [1],
        True,
        label="large-int",
    ),
    case("aten.prod.default", "b s"),
    case("aten.prod.dim_int", "b s", 1),
    case("aten.prod.dim_int", T("b 7", I64, -9, 9), 1, label="whole"),
    case("aten.prod.dim_int", T("3 b", I64, -9, 9), 0, True, label="whole-keep"),
    case("aten.prod.default", T("2 5", I64, -9, 9), label="whole-all"),
    case("aten.prod.default", T("", I64, -9, 9), label="whole-scalar"),
    case("aten.prod.dim_int", T("b 7", BOOL), 1, label="bool"),
    case("aten.mean.default", "b s"),
    case("aten.mean.dim", "b s 4", [-1, 1], True),
    case("aten.mean.dim", ints, [1], dtype=torch.float32, label="int-as-float"),
    case("aten.mean.dim", T("b s", F16), [1], label="half", tolerance=2e-3),
    case("aten.amax.default", "b s 4", [0, 1]),
    case("aten.amax.default", ints, [-1], True, label="int"),
    case("aten.amax.default", "b s", label="all"),
    *[
        case(op, T(values=[[1.0, math.nan], [2.0, -math.inf], [math.inf, 3.0]]), *args, label="nan")
        for op, args in (
            ("aten.amax.default", ([1],)),
            ("aten.amin.default", ([1], True)),
            ("aten.max.default", ()),
            ("aten.min.default", ()),
            ("aten.linalg_vector_norm.default", (math.inf, [1])),
        )
    ],
    case("aten.amin.default", "b s 4", [2]),
    case("aten.max.default", ints),
    case("aten.min.default", "b s"),
    case("aten.max.default", bools, label="bool"),
    case("aten.any.default", bools),
    case("aten.any.dim", T("b s", I64, 0, 1), 1),
    case("aten.any.dims", "b s 4", [0, 2], True),
    case("aten.any.default", T(values=[0.0, NAN]), label="nan"),
    case("aten.all.default", bools),
    case("aten.all.dim", T("b s", I64, 0, 1), 1, True),
    case("aten.all.dims", "b s 4", [1]),
    *[
        case(f"aten.{name}.{overload}", "b 4", *args, **kwargs)
        for name in ("var", "std", "var_mean", "std_mean")
        for overload, args, kwargs in (
            ("correction", ([1],), {"correction": 2}),
            ("dim", ([-1], False, True), {}),
            ("default", (), {}),
        )
    ],
    case("aten.var.correction", "b s 4", [1, 2], correction=0, keepdim=True, label="population"),
    case("aten.var.correction", "b s 4", [0, 1], correction=0.5, label="dynamic-count"),
    *[
        case("aten.linalg_vector_norm.default", "b s", order, [-1], label=str(order))
        for order in (2, 1, 0, INF, -INF, 3, 0.5)
    ],
    case(
        "aten.linalg_vector_norm.default",
        T("b 4", F16, 100, 300),
        2,
        [1],
        True,
        label="half-large",
        tolerance=2e-3,
    ),
    case("aten.norm.Scalar", "b s"),
    case("aten.norm.ScalarOpt_dim", "b s", 2, [1], True),
]
