"""Cases of ops that are computed by other ops."""

import math

import torch

from ..harness import T, case

I64, BOOL = torch.int64, torch.bool
NAN, INF = math.nan, math.inf
NUMBERS = [0.0, -0.0, 1.0, -1.0, INF, -INF, 1e30, 1e-30, -2.5]
first = T(values=[x for x in NUMBERS for _ in NUMBERS])
second = T(values=NUMBERS * len(NUMBERS))
odd = T(values=[*NUMBERS, NAN])


def decomposed(op, *args, label="", **kwargs):
    """Returns a case of an op that does not appear in the engine itself."""
    from torchtrt.targets import parse_target

    return case(
        (), *args, function=parse_target(op), label=f"{op}{label and '-' + label}", **kwargs
    )


CASES = [
    *[
        decomposed(f"aten.{name}.default", T("b 4", low=0.1), tolerance=1e-4)
        for name in ("log2", "log10", "exp2")
    ],
    decomposed("aten.log_sigmoid.default", T(values=[-1e4, -100.0, -20.0, 0.0, 20.0, 1e4])),
    decomposed("aten.signbit.default", odd),
    decomposed("aten.signbit.default", T("b 4", I64), label="int"),
    *[
        decomposed(f"aten.{name}", first, second, label="special")
        for name in (
            "copysign.Tensor",
            "fmax.default",
            "fmin.default",
            "hypot.default",
            "logaddexp.default",
            "logaddexp2.default",
            "atan2.default",
        )
    ],
    *[
        decomposed(f"aten.{name}.default", "b 4", "4")
        for name in ("fmax", "fmin", "hypot", "logaddexp", "logaddexp2", "atan2")
    ],
    decomposed("aten.fmax.default", odd, T(values=[NAN] * 10), label="nan"),
    decomposed("aten.fmin.default", T(values=[NAN] * 10), odd, label="nan"),
    decomposed("aten.isclose.default", first, second),
    decomposed("aten.isclose.default", odd, odd, equal_nan=True, label="nan"),
    decomposed("aten.isclose.default", T("b 4", I64), T("b 4", I64), 0.5, 1.0, label="int"),
    decomposed("aten.one_hot.default", T("b s", I64, 0, 4), 5),
    decomposed("aten.take.default", "b s", T("4", I64, -3, 2)),
    decomposed("aten.select_scatter.default", "b 4", "b", 1, -2),
    decomposed("aten.slice_scatter.default", "b 6", "b 3", 1, 2, 5),
    decomposed("aten.count_nonzero.default", T("b s", I64, 0, 2)),
    decomposed("aten.count_nonzero.default", T("b s", I64, 0, 2), 1, label="dim"),
    decomposed("aten.count_nonzero.dim_IntList", T("b s 4", I64, 0, 2), [0, 2]),
    decomposed("aten.isin.Tensor_Tensor", T("b s", I64, 0, 5), T("3", I64, 0, 5)),
    decomposed(
        "aten.isin.Tensor_Tensor",
        T("b s", I64, 0, 5),
        T("3", I64, 0, 5),
        invert=True,
        label="invert",
    ),
    decomposed("aten.index_fill.int_Scalar", "b 5", 1, T(values=[0, -1], dtype=I64), 7.0),
    decomposed("aten.index_fill.int_Tensor", "b 5", 1, T(values=[0, 2], dtype=I64), T("")),
    decomposed("aten.index_copy.default", "b 5", 1, T(values=[0, 2], dtype=I64), "b 2"),
    decomposed("aten.round.decimals", "b 4", decimals=2),
    decomposed("aten.round.decimals", T("b 4", low=-300, high=300), decimals=-1, label="tens"),
    decomposed("aten.round.decimals", "b 4", decimals=0, label="whole"),
    decomposed("aten.angle.default", odd),
    decomposed("aten.angle.default", T("b 4", I64), label="int"),
    decomposed("aten.addbmm.default", "3 4", "b 3 s", "b s 4", beta=0.5, alpha=2),
    decomposed("aten.diagonal.default", "b 4 5", 1, 1, 2),
    decomposed("aten.diagonal.default", "4 b 5", -2, 0, -1, label="below"),
    decomposed("aten.trace.default", T("4 4", I64)),
    decomposed("aten.meshgrid.default", ["b", "s"]),
    decomposed("aten.meshgrid.indexing", ["b", "s"], indexing="xy", label="xy"),
    decomposed("aten.cdist.default", "b 3 4", "b s 4"),
    decomposed("aten.cdist.default", "b 4", "s 4", 1.0, label="order-1"),
    decomposed("aten.cosine_similarity.default", "b s 4", "b s 4", -1),
    decomposed("aten.bucketize.Tensor", "b s", T(values=[-1.0, 0.0, 1.0, 2.0])),
    decomposed(
        "aten.bucketize.Tensor",
        T("b s", I64),
        T(values=[-1, 0, 1, 2], dtype=I64),
        right=True,
        out_int32=True,
        label="right",
    ),
    decomposed("aten.searchsorted.Tensor", T(values=[[0.0, 1.0, 2.0], [-3.0, 0.0, 3.0]]), "2 s"),
    decomposed("aten.unfold.default", "b 9", 1, 3, 2),
    decomposed("aten.unfold.default", "7 b", 0, 3, 1, label="first"),
]
