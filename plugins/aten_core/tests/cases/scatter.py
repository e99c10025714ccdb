"""Cases of values combined with what is at the places that indices name."""

import math

import torch

from ..harness import T, case, decomposed

I64, I32, BOOL, F16 = torch.int64, torch.int32, torch.bool, torch.float16
NAN, INF = math.nan, math.inf
WAYS = ("sum", "prod", "mean", "amax", "amin")
MANY = 5000
"""So many elements that a dense comparison with as many places would be too large."""


def below(shape, size, dtype=I64):
    """Returns indices from 0 to below ``size``."""
    return T(shape, dtype, 0, size - 1)


ODD = T(values=[[1.0, NAN, INF], [-INF, 2.0, -INF]])
ODD_PLACES = T(values=[[0, 1, 2], [0, 0, 2]], dtype=I64)


CASES = [
    case("aten.scatter_add.default", "b 5", 1, below("b s", 5), "b s"),
    case("aten.scatter_add.default", "s 4", 0, below("b 4", 3), "b 4", label="dynamic-places"),
    case("aten.scatter_add.default", "b 5", -1, below("1 3", 5), "2 4", label="smaller"),
    case("aten.scatter_add.default", T("b 5", I64), 1, below("b 7", 5), T("b 7", I64), label="int"),
    case("aten.scatter_add.default", T("5", BOOL), 0, below("7", 5), T("7", BOOL), label="bool"),
    case("aten.scatter_add.default", "3 3", 0, ODD_PLACES, ODD, label="infinite"),
    case(
        "aten.scatter_add.default",
        f"{MANY}",
        0,
        below(f"{MANY}", 20),
        f"{MANY}",
        label="many",
    ),
    *[
        case(
            "aten.scatter_reduce.two",
            "b 5",
            1,
            below("b s", 5),
            T("b s", low=0.5),
            way,
            include_self=include_self,
            label=f"{way}-{'with' if include_self else 'without'}-self",
        )
        for way in WAYS
        for include_self in (True, False)
    ],
    *[
        case(
            "aten.scatter_reduce.two",
            T("b 5", I64, -9, 9),
            1,
            below("b s", 5),
            T("b s", I64, -9, 9),
            way,
            include_self=include_self,
            label=f"int-{way}-{'with' if include_self else 'without'}-self",
        )
        for way in WAYS
        for include_self in (True, False)
    ],
    *[
        case("aten.scatter_reduce.two", "3 3", 0, ODD_PLACES, ODD, way, label=f"odd-{way}")
        for way in WAYS
    ],
    *[
        case(
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
    case(
        "aten.scatter_reduce.two", T("4", F16), 0, below("5", 4), T("5", F16), "amax", label="half"
    ),
    case(
        "aten.scatter_reduce.two",
        T("40", F16),
        0,
        below("b 20", 40),
        T("b 20", F16),
        "sum",
        function=lambda x, d, i, s, way: x.scatter_reduce(d, i[0], s[0], way),
        label="half-smaller",
        tolerance=2e-3,
    ),
    case("aten.scatter.reduce", "b 5", 1, below("b 4", 5), "b 4", reduce="add", label="add"),
    case("aten.scatter.reduce", "b 5", 1, below("b 4", 5), "b 4", reduce="multiply"),
    case("aten.scatter.value_reduce", "b 5", 1, below("b 4", 5), 2.0, reduce="add"),
    case("aten.index_add.default", "5 b", 0, below("s", 5), "s b"),
    case("aten.index_add.default", "b 5 3", 1, below("s", 5), "b s 3", alpha=2, label="alpha"),
    case("aten.index_add.default", T("5", I32), 0, below("s", 5), T("s", I32), label="int"),
    *[
        case(
            "aten.index_reduce.default",
            "b 5",
            1,
            below("s", 5),
            T("b s", low=0.5),
            way,
            include_self=include_self,
            label=f"{way}-{'with' if include_self else 'without'}-self",
        )
        for way in ("prod", "mean", "amax", "amin")
        for include_self in (True, False)
    ],
    case("aten.scatter_add.default", "", 0, below("", 1), "", label="scalar"),
    case("aten.scatter_reduce.two", "", 0, below("3", 1), "3", "mean", label="scalar"),
    case("aten.index_add.default", "", 0, below("", 1), "", label="scalar"),
    decomposed("aten.take.default", "b s", T("4", I64, -3, 2)),
    decomposed("aten.put.default", "3 4", T(values=[0, -1, 5], dtype=I64), "3"),
    decomposed("aten.put.default", "3 4", T(values=[0, 0, 5], dtype=I64), "3", True, label="add"),
    decomposed("aten.select_scatter.default", "b 4", "b", 1, -2),
    decomposed("aten.select_scatter.default", "4 s", "4", 1, -1, label="dynamic"),
    decomposed("aten.slice_scatter.default", "b 6", "b 3", 1, 2, 5),
    decomposed("aten.slice_scatter.default", "b 7", "b 3", 1, 1, 6, 2, label="step"),
    decomposed("aten.slice_scatter.default", "b 7", "b 2", 1, -2, None, 1, label="from-end"),
    case(
        "aten.where.self",
        "s 4",
        function=lambda x: torch.slice_scatter(x, x[1:] * 2, 0, 1),
        label="slice-scatter-dynamic",
    ),
    decomposed("aten.diagonal_scatter.default", "b 4 5", "b 4", 1, 1, 2),
    decomposed("aten.diagonal_scatter.default", "4 b 5", "b 3", -1, 0, 2, label="below"),
    decomposed("aten.diagonal_scatter.default", "3 3", "3", label="main"),
    decomposed("aten.masked_scatter.default", "4 5", T("4 5", BOOL), "20"),
    decomposed("aten.masked_scatter.default", "4 5", T("5", BOOL), "4 6", label="broadcast"),
    decomposed("aten.nonzero_static.default", T("4 5", I64, 0, 1), size=7),
    decomposed("aten.nonzero_static.default", T("4 5", I64, 0, 1), size=30, label="filled"),
    decomposed("aten.nonzero_static.default", "5", size=3, fill_value=9, label="vector"),
    decomposed("aten.repeat_interleave.Tensor", T(values=[2, 0, 3], dtype=I64), output_size=5),
    decomposed("aten.isin.Tensor_Tensor", T("b s", I64, 0, 5), T("3", I64, 0, 5)),
    decomposed(
        "aten.isin.Tensor_Tensor",
        T("b s", I64, 0, 5),
        T("3", I64, 0, 5),
        invert=True,
        label="invert",
    ),
    decomposed("aten.isin.Tensor_Scalar", T("b s", I64, 0, 5), 3),
    decomposed("aten.isin.Tensor_Scalar", T("b s", I64, 0, 5), 3, invert=True, label="invert"),
    decomposed("aten.isin.Scalar_Tensor", 3, T("b s", I64, 0, 5)),
    decomposed("aten.index_fill.int_Scalar", "b 5", 1, T(values=[0, -1], dtype=I64), 7.0),
    decomposed("aten.index_fill.int_Tensor", "b 5", 1, T(values=[0, 2], dtype=I64), T("")),
    decomposed("aten.index_copy.default", "b 5", 1, T(values=[0, 2], dtype=I64), "b 2"),
]
