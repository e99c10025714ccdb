"""Cases of values combined with what is at the places that indices name."""

import math

import torch

from torchtrt_converters_aten_core.cases.indexing import below
from torchtrt_testing.cases import decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

I64, I32, BOOL, F16 = torch.int64, torch.int32, torch.bool, torch.float16
NAN, INF = math.nan, math.inf
WAYS = ("sum", "prod", "mean", "amax", "amin")
MANY = 5000
"""So many elements that a dense comparison with as many places would be too large."""


ODD = TensorSpec(values=[[1.0, NAN, INF], [-INF, 2.0, -INF]])
ODD_PLACES = TensorSpec(values=[[0, 1, 2], [0, 0, 2]], dtype=I64)


CASES = [
    op_case("aten.scatter_add.default", "batch 5", 1, below("batch length", 5), "batch length"),
    op_case(
        "aten.scatter_add.default",
        "length 4",
        0,
        below("batch 4", 3),
        "batch 4",
        label="dynamic-places",
    ),
    op_case("aten.scatter_add.default", "batch 5", -1, below("1 3", 5), "2 4", label="smaller"),
    op_case(
        "aten.scatter_add.default",
        TensorSpec("batch 5", I64),
        1,
        below("batch 7", 5),
        TensorSpec("batch 7", I64),
        label="int",
    ),
    op_case(
        "aten.scatter_add.default",
        TensorSpec("5", BOOL),
        0,
        below("7", 5),
        TensorSpec("7", BOOL),
        label="bool",
    ),
    op_case("aten.scatter_add.default", "3 3", 0, ODD_PLACES, ODD, label="infinite"),
    op_case(
        "aten.scatter_add.default",
        f"{MANY}",
        0,
        below(f"{MANY}", 20),
        f"{MANY}",
        label="many",
    ),
    *[
        op_case(
            "aten.scatter_reduce.two",
            "batch 5",
            1,
            below("batch length", 5),
            TensorSpec("batch length", low=0.5),
            way,
            include_self=include_self,
            label=f"{way}-{'with' if include_self else 'without'}-self",
        )
        for way in WAYS
        for include_self in (True, False)
    ],
    *[
        op_case(
            "aten.scatter_reduce.two",
            TensorSpec("batch 5", I64, -9, 9),
            1,
            below("batch length", 5),
            TensorSpec("batch length", I64, -9, 9),
            way,
            include_self=include_self,
            label=f"int-{way}-{'with' if include_self else 'without'}-self",
        )
        for way in WAYS
        for include_self in (True, False)
    ],
    *[
        op_case("aten.scatter_reduce.two", "3 3", 0, ODD_PLACES, ODD, way, label=f"odd-{way}")
        for way in WAYS
    ],
    *[
        op_case(
            "aten.scatter_reduce.two",
            f"{MANY}",
            0,
            below(f"{MANY}", MANY),
            f"{MANY}",
            way,
            include_self=False,
            label=f"many-{way}",
        )
        for way in ("mean", "amax")
    ],
    op_case(
        "aten.scatter_reduce.two",
        TensorSpec("4", F16),
        0,
        below("5", 4),
        TensorSpec("5", F16),
        "amax",
        label="half",
    ),
    op_case(
        "aten.scatter_reduce.two",
        TensorSpec("40", F16),
        0,
        below("batch 20", 40),
        TensorSpec("batch 20", F16),
        "sum",
        function=lambda x, d, i, s, way: x.scatter_reduce(d, i[0], s[0], way),
        label="half-smaller",
        tolerance=2e-3,
    ),
    op_case(
        "aten.scatter.reduce",
        "batch 5",
        1,
        below("batch 4", 5),
        "batch 4",
        reduce="add",
        label="add",
    ),
    op_case("aten.scatter.reduce", "batch 5", 1, below("batch 4", 5), "batch 4", reduce="multiply"),
    op_case("aten.scatter.value_reduce", "batch 5", 1, below("batch 4", 5), 2.0, reduce="add"),
    op_case("aten.index_add.default", "5 batch", 0, below("length", 5), "length batch"),
    op_case(
        "aten.index_add.default",
        "batch 5 3",
        1,
        below("length", 5),
        "batch length 3",
        alpha=2,
        label="alpha",
    ),
    op_case(
        "aten.index_add.default",
        TensorSpec("5", I32),
        0,
        below("length", 5),
        TensorSpec("length", I32),
        label="int",
    ),
    *[
        op_case(
            "aten.index_reduce.default",
            "batch 5",
            1,
            below("length", 5),
            TensorSpec("batch length", low=0.5),
            way,
            include_self=include_self,
            label=f"{way}-{'with' if include_self else 'without'}-self",
        )
        for way in ("prod", "mean", "amax", "amin")
        for include_self in (True, False)
    ],
    op_case("aten.scatter_add.default", "", 0, below("", 1), "", label="scalar"),
    op_case("aten.scatter_reduce.two", "", 0, below("3", 1), "3", "mean", label="scalar"),
    op_case("aten.index_add.default", "", 0, below("", 1), "", label="scalar"),
    decomposition_case("aten.take.default", "batch length", TensorSpec("4", I64, -3, 2)),
    decomposition_case("aten.put.default", "3 4", TensorSpec(values=[0, -1, 5], dtype=I64), "3"),
    decomposition_case(
        "aten.put.default", "3 4", TensorSpec(values=[0, 0, 5], dtype=I64), "3", True, label="add"
    ),
    decomposition_case("aten.select_scatter.default", "batch 4", "batch", 1, -2),
    decomposition_case("aten.select_scatter.default", "4 length", "4", 1, -1, label="dynamic"),
    decomposition_case("aten.slice_scatter.default", "batch 6", "batch 3", 1, 2, 5),
    decomposition_case(
        "aten.slice_scatter.default", "batch 7", "batch 3", 1, 1, 6, 2, label="step"
    ),
    decomposition_case(
        "aten.slice_scatter.default", "batch 7", "batch 2", 1, -2, None, 1, label="from-end"
    ),
    decomposition_case("aten.slice_scatter.default", "batch 4", "batch 4", 0, 0, 99, label="whole"),
    op_case(
        "aten.where.self",
        "length 4",
        function=lambda x: torch.slice_scatter(x, x[1:] * 2, 0, 1),
        label="slice-scatter-dynamic",
    ),
    decomposition_case("aten.diagonal_scatter.default", "batch 4 5", "batch 4", 1, 1, 2),
    decomposition_case(
        "aten.diagonal_scatter.default", "4 batch 5", "batch 3", -1, 0, 2, label="below"
    ),
    decomposition_case("aten.diagonal_scatter.default", "3 3", "3", label="main"),
    decomposition_case("aten.masked_scatter.default", "4 5", TensorSpec("4 5", BOOL), "20"),
    decomposition_case(
        "aten.masked_scatter.default", "4 5", TensorSpec("5", BOOL), "4 6", label="broadcast"
    ),
    decomposition_case("aten.nonzero_static.default", TensorSpec("4 5", I64, 0, 1), size=7),
    decomposition_case(
        "aten.nonzero_static.default", TensorSpec("4 5", I64, 0, 1), size=30, label="filled"
    ),
    decomposition_case("aten.nonzero_static.default", "5", size=3, fill_value=9, label="vector"),
    decomposition_case(
        "aten.repeat_interleave.Tensor", TensorSpec(values=[2, 0, 3], dtype=I64), output_size=5
    ),
    decomposition_case(
        "aten.isin.Tensor_Tensor", TensorSpec("batch length", I64, 0, 5), TensorSpec("3", I64, 0, 5)
    ),
    decomposition_case(
        "aten.isin.Tensor_Tensor",
        TensorSpec("batch length", I64, 0, 5),
        TensorSpec("3", I64, 0, 5),
        invert=True,
        label="invert",
    ),
    decomposition_case("aten.isin.Tensor_Scalar", TensorSpec("batch length", I64, 0, 5), 3),
    decomposition_case(
        "aten.isin.Tensor_Scalar",
        TensorSpec("batch length", I64, 0, 5),
        3,
        invert=True,
        label="invert",
    ),
    decomposition_case("aten.isin.Scalar_Tensor", 3, TensorSpec("batch length", I64, 0, 5)),
    decomposition_case(
        "aten.index_fill.int_Scalar", "batch 5", 1, TensorSpec(values=[0, -1], dtype=I64), 7.0
    ),
    decomposition_case(
        "aten.index_fill.int_Tensor",
        "batch 5",
        1,
        TensorSpec(values=[0, 2], dtype=I64),
        TensorSpec(""),
    ),
    decomposition_case(
        "aten.index_copy.default", "batch 5", 1, TensorSpec(values=[0, 2], dtype=I64), "batch 2"
    ),
]
