"""Cases of ops that are computed by other ops."""

import math

import torch

from ..harness import T, case, decomposed

I64, F16, BOOL = torch.int64, torch.float16, torch.bool
NAN, INF = math.nan, math.inf
NUMBERS = [0.0, -0.0, 1.0, -1.0, INF, -INF, 1e30, 1e-30, -2.5]
first = T(values=[x for x in NUMBERS for _ in NUMBERS])
second = T(values=NUMBERS * len(NUMBERS))
odd = T(values=[*NUMBERS, NAN])

signs = T(values=[[1.0, -1.0, -1.0, 1.0]])


CASES = [
    *[
        decomposed(f"aten.{name}.default", T("b 4", low=0.1), tolerance=1e-4)
        for name in ("log2", "log10", "exp2")
    ],
    decomposed("aten.log_sigmoid.default", T(values=[-1e4, -100.0, -20.0, 0.0, 20.0, 1e4])),
    decomposed("aten.log_sigmoid.default", T("b 4", F16), tolerance=1e-3, label="half"),
    decomposed("aten.as_strided_scatter.default", "3 4", "2 3", [2, 3], [1, 4], 1),
    decomposed("aten.angle.default", T("b 4", F16), label="half"),
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
    decomposed("aten.copysign.Scalar", odd, -0.0),
    decomposed("aten.copysign.Scalar", T("b 4", I64), 2, label="int"),
    decomposed("aten.fmax.default", odd, T(values=[NAN] * 10), label="nan"),
    decomposed("aten.fmin.default", T(values=[NAN] * 10), odd, label="nan"),
    decomposed("aten.isclose.default", first, second),
    decomposed("aten.isclose.default", odd, odd, equal_nan=True, label="nan"),
    decomposed("aten.isclose.default", T("b 4", BOOL), T("b 4", BOOL), label="bool"),
    decomposed("aten.isclose.default", T("b 4", I64), T("b 4", I64), 0.5, 1.0, label="int"),
    decomposed("aten.one_hot.default", T("b s", I64, 0, 4), 5),
    decomposed("aten.count_nonzero.default", T("b s", I64, 0, 2)),
    decomposed("aten.count_nonzero.default", T("b s", I64, 0, 2), 1, label="dim"),
    decomposed("aten.count_nonzero.dim_IntList", T("b s 4", I64, 0, 2), [0, 2]),
    decomposed("aten.round.decimals", "b 4", decimals=2),
    decomposed("aten.round.decimals", T("b 4", low=-300, high=300), decimals=-1, label="tens"),
    decomposed("aten.round.decimals", "b 4", decimals=0, label="whole"),
    decomposed("aten.angle.default", odd),
    decomposed("aten.angle.default", T("b 4", I64), label="int"),
    decomposed("aten.addbmm.default", "3 4", "b 3 s", "b s 4", beta=0.5, alpha=2),
    decomposed(
        "aten.addbmm.default",
        T("3 4", torch.int32),
        T("2 3 5", torch.int32),
        T("2 5 4", torch.int32),
        beta=2,
        label="int",
    ),
    decomposed("aten.repeat.default", "b 3 2 1 2", [2, 3, 2, 2, 2], label="many-dims"),
    decomposed("aten.repeat.default", "b 1 2 1 2 1 s 1", [2, 1, 1, 2, 3, 1, 2, 1], label="rank-8"),
    decomposed("aten.tile.default", "2 1 2 1 2 1 s", [3, 2, 2, 2, 2], label="many-dims"),
    decomposed("aten.diagonal.default", "b 4 5", 1, 1, 2),
    decomposed("aten.diagonal.default", "4 b 5", -2, 0, -1, label="below"),
    decomposed("aten.trace.default", T("4 4", I64)),
    decomposed("aten.meshgrid.default", ["b", "s"]),
    decomposed("aten.meshgrid.indexing", ["b", "s"], indexing="xy", label="xy"),
    decomposed("aten.cdist.default", "b 3 4", "b s 4"),
    decomposed("aten.cdist.default", "b 4", "s 4", 1.0, label="order-1"),
    decomposed("aten.unfold.default", "b 9", 1, 3, 2),
    decomposed("aten.unfold.default", "7 b", 0, 3, 1, label="first"),
    *[
        decomposed(
            "aten.margin_ranking_loss.default", "b 4", "b 4", signs, 0.5, way, label=f"way{way}"
        )
        for way in range(3)
    ],
    *[
        decomposed("aten.hinge_embedding_loss.default", "b 4", signs, 0.5, way, label=f"way{way}")
        for way in range(3)
    ],
    decomposed("aten.bilinear.default", "b 3", "b 4", "2 3 4", "2", tolerance=1e-4),
    decomposed("aten.bilinear.default", "b s 3", "b s 4", "2 3 4", tolerance=1e-4, label="batches"),
    decomposed("aten.take.default", "b 4", T("2 2", I64, -4, 3), label="matrix"),
    decomposed("aten.take.default", "b 4", T("", I64, 0, 3), label="scalar"),
    *[
        decomposed(f"aten.{name}.{overload}", *ends, steps, tolerance=1e-4, label=f"{steps}")
        for name in ("linspace", "logspace")
        for overload, ends in (
            ("Tensor_Tensor", ("", "")),
            ("Tensor_Scalar", ("", 2.5)),
            ("Scalar_Tensor", (-1, "")),
        )
        for steps in (1, 2, 5)
    ],
    decomposed("aten.linspace.Tensor_Tensor", "", "", 4, dtype=F16, tolerance=1e-3, label="half"),
    decomposed("aten.resize.default", "3 4", [4, 3]),
    decomposed("aten.resize.default", T("3 4", I64), [5], label="fewer"),
    *[
        decomposed(op, image, sizes, label=f"varying-{sizes}", tolerance=1e-4)
        for op, image, sizes in (
            ("aten.adaptive_avg_pool1d.default", "b 2 s", [3]),
            ("aten.adaptive_avg_pool2d.default", "2 2 s 5", [2, 3]),
            ("aten._adaptive_avg_pool2d.default", "2 2 s 5", [4, 1]),
            ("aten.adaptive_avg_pool3d.default", "2 2 4 s 5", [2, 2, 3]),
            ("aten._adaptive_avg_pool3d.default", "2 2 4 s 5", [3, 2, 3]),
            ("aten.adaptive_max_pool1d.default", "b 2 s", [3]),
            ("aten.adaptive_max_pool1d.default", "b 2 s", [1]),
            ("aten.adaptive_max_pool2d.default", "2 2 s 5", [2, 3]),
            ("aten.adaptive_max_pool3d.default", "2 2 4 s 5", [2, 2, 3]),
        )
    ],
    decomposed("aten.adaptive_avg_pool1d.default", T("b 2 s", F16), [3], label="half"),
    decomposed("aten._pdist_forward.default", "s 3", label="varying"),
    decomposed("aten.pdist.default", "s 3", 1.0, label="varying"),
    *[
        case(
            (),
            T("9 3"),
            T("b 3"),
            function=function,
            label=f"slice_scatter-{label}",
        )
        for label, function in (
            ("end", lambda x, y: torch.slice_scatter(x, y, 0, 1, 1 + y.shape[0])),
            ("both", lambda x, y: torch.slice_scatter(x, y, 0, y.shape[0] - 1, 2 * y.shape[0] - 1)),
        )
    ],
    *[
        decomposed(
            "aten._grouped_mm.default",
            T(first, torch.bfloat16),
            T(second, torch.bfloat16),
            T(values=[2, 2, 8], dtype=torch.int32) if ends else None,
            label=f"{first}-{ends}",
            tolerance=2e-2,
        )
        for first, second, ends in (
            ("8 16", "3 16 8", True),
            ("3 16 8", "8 8", True),
            ("16 8", "8 16", True),
            ("3 8 16", "3 16 8", False),
        )
        if hasattr(torch.ops.aten, "_grouped_mm")
    ],
]
