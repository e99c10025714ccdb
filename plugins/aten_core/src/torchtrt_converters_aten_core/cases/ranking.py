"""Cases of the largest and smallest elements."""

import math

import torch

from torchtrt_testing.cases import decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

F16, BOOL, I64 = torch.float16, torch.bool, torch.int64
NAN, INF = math.nan, math.inf
ODD = TensorSpec(
    values=[[1.0, NAN, 3.0, NAN], [-INF, -INF, -INF, -INF], [2.0, INF, 5.0, INF], [NAN] * 4]
)
BIG = TensorSpec(
    values=[[2**24, 2**24 + 1, 2**24 + 1], [-5, 3, 3], [-(2**31), 2**31 - 1, 0]], dtype=I64
)
MIXED = TensorSpec(values=[[1.0, NAN, 3.0, NAN, 4.0], [2.0, INF, -INF, INF, 1.0]])

CASES = [
    *[
        op_case(f"aten.{name}.default", "batch 5 length", *args, label=label)
        for name in ("argmax", "argmin")
        for label, args in (
            ("all", ()),
            ("dim", (1,)),
            ("keep", (-1, True)),
            ("all-keep", (None, True)),
        )
    ],
    op_case("aten.argmax.default", "", label="scalar"),
    op_case("aten.argmax.default", "2 3 1 2 batch 1", 0, label="far-dimension"),
    *[op_case(f"aten.{name}.dim", "batch 5", 1, label="dim") for name in ("max", "min")],
    op_case("aten.max.dim", "batch 5", 0, True, label="keep"),
    op_case(
        "aten.max.dim",
        TensorSpec("4 5", BOOL),
        1,
        function=lambda x, d: torch.max(x, d)[0],
        label="bool",
    ),
    op_case("aten.topk.default", "batch 9", 3),
    op_case("aten.topk.default", "9 batch", 2, 0, False, label="smallest-first-dim"),
    op_case("aten.topk.default", TensorSpec("7", F16), 7, label="vector-half"),
    op_case("aten.sort.default", "batch 9"),
    op_case("aten.sort.default", "9 batch", 0, True, label="descending"),
    op_case("aten.sort.stable", TensorSpec(values=[3.0, 1.0, 3.0, 1.0]), stable=True),
    op_case("aten.argsort.default", "batch 9", -1, True),
    op_case("aten.argsort.stable", TensorSpec(values=[3.0, 1.0, 3.0, 1.0]), stable=True),
    *[
        op_case(f"aten.{name}", values, 1, label=label)
        for name in ("argmax.default", "argmin.default", "max.dim", "min.dim")
        for label, values in (("odd", ODD), ("big", BIG))
    ],
    op_case("aten.argmax.default", "batch length", 1, label="dynamic"),
    op_case("aten.argmin.default", TensorSpec("batch length", I64), label="dynamic-int"),
    op_case("aten.max.dim", "length batch 2", 0, label="dynamic"),
    op_case("aten.sort.default", MIXED, 1, label="mixed"),
    op_case("aten.sort.default", MIXED, 1, True, label="mixed-descending"),
    op_case("aten.topk.default", MIXED, 3, label="mixed"),
    op_case("aten.sort.default", BIG, 1, label="big"),
    op_case("aten.sort.default", BIG, 0, True, label="big-descending"),
    op_case("aten.topk.default", BIG, 2, label="big"),
    op_case("aten.topk.default", TensorSpec("", I64), 1, label="scalar-int"),
    op_case("aten.sort.default", TensorSpec("", I64), label="scalar-int"),
    op_case("aten.topk.default", TensorSpec("5", I64), 2, 0, False, label="int"),
    op_case("aten.sort.default", "batch length", 1, label="dynamic"),
    op_case("aten.sort.default", "length batch", 0, True, label="dynamic-descending"),
    op_case("aten.argsort.default", TensorSpec("length", BOOL), label="dynamic-bool"),
    op_case("aten.topk.default", "batch length", 3, 1, False, label="dynamic"),
    op_case("aten.sort.stable", "5000", stable=True, label="many"),
    op_case(
        "aten.sort.stable",
        TensorSpec("5000", I64, 0, 9),
        stable=True,
        descending=True,
        label="many-ties",
    ),
    op_case("aten.topk.default", "5000", 4000, label="many"),
    *[
        decomposition_case(f"aten.{name}", values, *args, label=f"{label}{'-dim' if args else ''}")
        for name, args in (
            ("median.default", ()),
            ("median.dim", (1,)),
            ("nanmedian.default", ()),
            ("nanmedian.dim", (-1,)),
        )
        for label, values in (
            ("", TensorSpec("batch 6")),
            ("odd", MIXED),
            ("ints", TensorSpec("batch 5", I64, -99, 99)),
        )
    ],
    decomposition_case("aten.median.default", TensorSpec("2 3"), label="static"),
    decomposition_case("aten.median.dim", "5 batch", 0, True, label="keep"),
    decomposition_case("aten.kthvalue.default", "batch 6", 2),
    decomposition_case("aten.kthvalue.default", "6 batch", 6, 0, True, label="keep"),
    decomposition_case(
        "aten.mode.default", TensorSpec(values=[[5, 2, 2, 5, 7], [1, 2, 3, 4, 5]], dtype=I64)
    ),
    decomposition_case(
        "aten.mode.default", TensorSpec(values=[[1.0, 3.0], [1.0, 2.0]]), 0, True, label="keep"
    ),
    decomposition_case(
        "aten.mode.default",
        TensorSpec(values=[[2.0, 2.0, NAN], [3.0, INF, INF], [NAN] * 3]),
        label="nan",
    ),
    decomposition_case("aten.msort.default", "6 batch"),
    decomposition_case("aten.histc.default", "batch 9", 4, -2, 2),
    decomposition_case(
        "aten.histc.default",
        TensorSpec(values=[-1.0, 0.0, 1.0, 1.9999999, 2.0, NAN, 3.0]),
        3,
        -1,
        2,
        label="edges",
    ),
    decomposition_case(
        "aten.bucketize.Tensor", "batch length", TensorSpec(values=[-1.0, 0.0, 1.0, 2.0])
    ),
    decomposition_case(
        "aten.bucketize.Tensor", MIXED, TensorSpec(values=[-1.0, 0.0, 2.0]), label="mixed"
    ),
    decomposition_case(
        "aten.bucketize.Tensor",
        TensorSpec("batch length", I64),
        TensorSpec(values=[-1, 0, 1, 2], dtype=I64),
        right=True,
        out_int32=True,
        label="right",
    ),
    decomposition_case("aten.bucketize.Scalar", 0.5, TensorSpec(values=[-1.0, 0.5, 2.0])),
    decomposition_case(
        "aten.searchsorted.Tensor",
        TensorSpec(values=[[0.0, 1.0, 2.0], [-3.0, 0.0, 3.0]]),
        "2 length",
    ),
    decomposition_case(
        "aten.searchsorted.Tensor",
        TensorSpec(values=[2.0, 0.0, 1.0]),
        "batch length",
        side="right",
        sorter=TensorSpec(values=[1, 2, 0], dtype=I64),
        label="sorter",
    ),
    decomposition_case(
        "aten.searchsorted.Scalar", TensorSpec(values=[0.0, 1.0, 2.0]), 1.0, right=True
    ),
]
