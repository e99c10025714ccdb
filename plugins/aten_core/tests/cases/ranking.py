"""Cases of the largest and smallest elements."""

import math

import torch

from ..harness import T, case, decomposed

F16, BOOL, I64 = torch.float16, torch.bool, torch.int64
NAN, INF = math.nan, math.inf
ODD = T(values=[[1.0, NAN, 3.0, NAN], [-INF, -INF, -INF, -INF], [2.0, INF, 5.0, INF], [NAN] * 4])
BIG = T(values=[[2**24, 2**24 + 1, 2**24 + 1], [-5, 3, 3], [-(2**31), 2**31 - 1, 0]], dtype=I64)
MIXED = T(values=[[1.0, NAN, 3.0, NAN, 4.0], [2.0, INF, -INF, INF, 1.0]])

CASES = [
    *[
        case(f"aten.{name}.default", "b 5 s", *args, label=label)
        for name in ("argmax", "argmin")
        for label, args in (
            ("all", ()),
            ("dim", (1,)),
            ("keep", (-1, True)),
            ("all-keep", (None, True)),
        )
    ],
    case("aten.argmax.default", "", label="scalar"),
    case("aten.argmax.default", "2 3 1 2 b 1", 0, label="far-dimension"),
    *[case(f"aten.{name}.dim", "b 5", 1, label="dim") for name in ("max", "min")],
    case("aten.max.dim", "b 5", 0, True, label="keep"),
    case("aten.max.dim", T("4 5", BOOL), 1, function=lambda x, d: torch.max(x, d)[0], label="bool"),
    case("aten.topk.default", "b 9", 3),
    case("aten.topk.default", "9 b", 2, 0, False, label="smallest-first-dim"),
    case("aten.topk.default", T("7", F16), 7, label="vector-half"),
    case("aten.sort.default", "b 9"),
    case("aten.sort.default", "9 b", 0, True, label="descending"),
    case("aten.sort.stable", T(values=[3.0, 1.0, 3.0, 1.0]), stable=True),
    case("aten.argsort.default", "b 9", -1, True),
    case("aten.argsort.stable", T(values=[3.0, 1.0, 3.0, 1.0]), stable=True),
    *[
        case(f"aten.{name}", values, 1, label=label)
        for name in ("argmax.default", "argmin.default", "max.dim", "min.dim")
        for label, values in (("odd", ODD), ("big", BIG))
    ],
    case("aten.argmax.default", "b s", 1, label="dynamic"),
    case("aten.argmin.default", T("b s", I64), label="dynamic-int"),
    case("aten.max.dim", "s b 2", 0, label="dynamic"),
    case("aten.sort.default", MIXED, 1, label="mixed"),
    case("aten.sort.default", MIXED, 1, True, label="mixed-descending"),
    case("aten.topk.default", MIXED, 3, label="mixed"),
    case("aten.sort.default", BIG, 1, label="big"),
    case("aten.sort.default", BIG, 0, True, label="big-descending"),
    case("aten.topk.default", BIG, 2, label="big"),
    case("aten.topk.default", T("", I64), 1, label="scalar-int"),
    case("aten.sort.default", T("", I64), label="scalar-int"),
    case("aten.topk.default", T("5", I64), 2, 0, False, label="int"),
    case("aten.sort.default", "b s", 1, label="dynamic"),
    case("aten.sort.default", "s b", 0, True, label="dynamic-descending"),
    case("aten.argsort.default", T("s", BOOL), label="dynamic-bool"),
    case("aten.topk.default", "b s", 3, 1, False, label="dynamic"),
    case("aten.sort.stable", "5000", stable=True, label="many"),
    case("aten.sort.stable", T("5000", I64, 0, 9), stable=True, descending=True, label="many-ties"),
    case("aten.topk.default", "5000", 4000, label="many"),
    *[
        decomposed(f"aten.{name}", values, *args, label=f"{label}{'-dim' if args else ''}")
        for name, args in (
            ("median.default", ()),
            ("median.dim", (1,)),
            ("nanmedian.default", ()),
            ("nanmedian.dim", (-1,)),
        )
        for label, values in (("", T("b 6")), ("odd", MIXED), ("ints", T("b 5", I64, -99, 99)))
    ],
    decomposed("aten.median.default", T("2 3"), label="static"),
    decomposed("aten.median.dim", "5 b", 0, True, label="keep"),
    decomposed("aten.kthvalue.default", "b 6", 2),
    decomposed("aten.kthvalue.default", "6 b", 6, 0, True, label="keep"),
    decomposed("aten.mode.default", T(values=[[5, 2, 2, 5, 7], [1, 2, 3, 4, 5]], dtype=I64)),
    decomposed("aten.mode.default", T(values=[[1.0, 3.0], [1.0, 2.0]]), 0, True, label="keep"),
    decomposed("aten.msort.default", "6 b"),
    decomposed("aten.histc.default", "b 9", 4, -2, 2),
    decomposed(
        "aten.histc.default",
        T(values=[-1.0, 0.0, 1.0, 2.0, 2.0, NAN, 3.0]),
        3,
        -1,
        2,
        label="edges",
    ),
    decomposed("aten.bucketize.Tensor", "b s", T(values=[-1.0, 0.0, 1.0, 2.0])),
    decomposed("aten.bucketize.Tensor", MIXED, T(values=[-1.0, 0.0, 2.0]), label="mixed"),
    decomposed(
        "aten.bucketize.Tensor",
        T("b s", I64),
        T(values=[-1, 0, 1, 2], dtype=I64),
        right=True,
        out_int32=True,
        label="right",
    ),
    decomposed("aten.bucketize.Scalar", 0.5, T(values=[-1.0, 0.5, 2.0])),
    decomposed("aten.searchsorted.Tensor", T(values=[[0.0, 1.0, 2.0], [-3.0, 0.0, 3.0]]), "2 s"),
    decomposed(
        "aten.searchsorted.Tensor",
        T(values=[2.0, 0.0, 1.0]),
        "b s",
        side="right",
        sorter=T(values=[1, 2, 0], dtype=I64),
        label="sorter",
    ),
    decomposed("aten.searchsorted.Scalar", T(values=[0.0, 1.0, 2.0]), 1.0, right=True),
]
