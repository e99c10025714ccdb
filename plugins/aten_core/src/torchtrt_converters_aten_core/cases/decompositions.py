"""Cases of ops that are computed by other ops."""

import math

import torch

from torchtrt_testing.cases import decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

I64, F16, BOOL = torch.int64, torch.float16, torch.bool
NAN, INF = math.nan, math.inf
NUMBERS = [0.0, -0.0, 1.0, -1.0, INF, -INF, 1e30, 1e-30, -2.5]
first = TensorSpec(values=[x for x in NUMBERS for _ in NUMBERS])
second = TensorSpec(values=NUMBERS * len(NUMBERS))
odd = TensorSpec(values=[*NUMBERS, NAN])

signs = TensorSpec(values=[[1.0, -1.0, -1.0, 1.0]])


CASES = [
    *[
        decomposition_case(f"aten.{name}.default", TensorSpec("batch 4", low=0.1), tolerance=1e-4)
        for name in ("log2", "log10", "exp2")
    ],
    decomposition_case("aten.ldexp.Tensor", "batch 4", TensorSpec("4", I64, -9, 9)),
    decomposition_case("aten.ldexp.Tensor", "batch 4", "4", label="float"),
    decomposition_case("aten.frexp.Tensor", "batch 4"),
    *[
        decomposition_case(
            "aten.frexp.Tensor",
            TensorSpec(values=[*NUMBERS, NAN, 6e-8, 0.1, 65504.0], dtype=dtype),
            label=str(dtype).removeprefix("torch."),
        )
        for dtype in (torch.float32, F16, torch.bfloat16)
    ],
    decomposition_case(
        "aten.log_sigmoid.default", TensorSpec(values=[-1e4, -100.0, -20.0, 0.0, 20.0, 1e4])
    ),
    decomposition_case(
        "aten.log_sigmoid.default", TensorSpec("batch 4", F16), tolerance=1e-3, label="half"
    ),
    decomposition_case("aten.as_strided_scatter.default", "3 4", "2 3", [2, 3], [1, 4], 1),
    # torch.export fixes the sizes of this op.
    decomposition_case("aten.conv_tbc.default", "6 2 4", "3 4 5", "5", 1, tolerance=1e-5),
    decomposition_case(
        "aten.conv_tbc.default",
        *(TensorSpec(shape, F16) for shape in ("6 2 4", "2 4 6", "6")),
        tolerance=1e-2,
        label="half",
    ),
    decomposition_case("aten.angle.default", TensorSpec("batch 4", F16), label="half"),
    decomposition_case("aten.signbit.default", odd),
    decomposition_case("aten.signbit.default", TensorSpec("batch 4", I64), label="int"),
    *[
        decomposition_case(f"aten.{name}", first, second, label="special")
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
        decomposition_case(f"aten.{name}.default", "batch 4", "4")
        for name in ("fmax", "fmin", "hypot", "logaddexp", "logaddexp2", "atan2")
    ],
    decomposition_case("aten.copysign.Scalar", odd, -0.0),
    decomposition_case("aten.copysign.Scalar", TensorSpec("batch 4", I64), 2, label="int"),
    decomposition_case("aten.fmax.default", odd, TensorSpec(values=[NAN] * 10), label="nan"),
    decomposition_case("aten.fmin.default", TensorSpec(values=[NAN] * 10), odd, label="nan"),
    decomposition_case("aten.isclose.default", first, second),
    decomposition_case("aten.isclose.default", odd, odd, equal_nan=True, label="nan"),
    decomposition_case(
        "aten.isclose.default",
        TensorSpec("batch 4", BOOL),
        TensorSpec("batch 4", BOOL),
        label="bool",
    ),
    decomposition_case(
        "aten.isclose.default",
        TensorSpec("batch 4", I64),
        TensorSpec("batch 4", I64),
        0.5,
        1.0,
        label="int",
    ),
    decomposition_case(
        "aten.isclose.default",
        TensorSpec(values=[2**31 - 1, 2**30, 1, 16777217, 5], dtype=torch.int32),
        TensorSpec(values=[1 - 2**31, -(2**30), 1 - 2**31, 16777218, 5], dtype=torch.int32),
        label="int32-ends",
    ),
    decomposition_case(
        "aten.isclose.default",
        TensorSpec(values=[1.0, 1.0, INF, INF, 3e38, 0.0]),
        TensorSpec(values=[INF, -INF, INF, 1.0, -3e38, NAN]),
        2.0,
        label="infinite",
    ),
    decomposition_case("aten.one_hot.default", TensorSpec("batch length", I64, 0, 4), 5),
    decomposition_case("aten.count_nonzero.default", TensorSpec("batch length", I64, 0, 2)),
    decomposition_case(
        "aten.count_nonzero.default", TensorSpec("batch length", I64, 0, 2), 1, label="dim"
    ),
    decomposition_case(
        "aten.count_nonzero.dim_IntList", TensorSpec("batch length 4", I64, 0, 2), [0, 2]
    ),
    decomposition_case("aten.round.decimals", "batch 4", decimals=2),
    decomposition_case(
        "aten.round.decimals", TensorSpec("batch 4", low=-300, high=300), decimals=-1, label="tens"
    ),
    decomposition_case("aten.round.decimals", "batch 4", decimals=0, label="whole"),
    decomposition_case("aten.angle.default", odd),
    decomposition_case("aten.angle.default", TensorSpec("batch 4", I64), label="int"),
    decomposition_case(
        "aten.addbmm.default", "3 4", "batch 3 length", "batch length 4", beta=0.5, alpha=2
    ),
    decomposition_case(
        "aten.addbmm.default",
        TensorSpec("3 4", torch.float16),
        TensorSpec(values=torch.full((2, 3, 5), 200.0, dtype=torch.float16)),
        TensorSpec(values=torch.full((2, 5, 4), 100.0, dtype=torch.float16)),
        alpha=0.125,
        label="half-large",
    ),
    decomposition_case(
        "aten.addbmm.default",
        TensorSpec("3 4", torch.int32),
        TensorSpec("2 3 5", torch.int32),
        TensorSpec("2 5 4", torch.int32),
        beta=2,
        label="int",
    ),
    decomposition_case("aten.repeat.default", "batch 3 2 1 2", [2, 3, 2, 2, 2], label="many-dims"),
    decomposition_case(
        "aten.repeat.default", "batch 1 2 1 2 1 length 1", [2, 1, 1, 2, 3, 1, 2, 1], label="rank-8"
    ),
    decomposition_case(
        "aten.tile.default", "2 1 2 1 2 1 length", [3, 2, 2, 2, 2], label="many-dims"
    ),
    decomposition_case("aten.diagonal.default", "batch 4 5", 1, 1, 2),
    decomposition_case("aten.diagonal.default", "4 batch 5", -2, 0, -1, label="below"),
    decomposition_case("aten.trace.default", TensorSpec("4 4", I64)),
    decomposition_case("aten.meshgrid.default", ["batch", "length"]),
    decomposition_case("aten.meshgrid.indexing", ["batch", "length"], indexing="xy", label="xy"),
    decomposition_case("aten.cdist.default", "batch 3 4", "batch length 4"),
    decomposition_case("aten.cdist.default", "batch 4", "length 4", 1.0, label="order-1"),
    decomposition_case(
        "aten.cdist.default",
        TensorSpec(values=[[1.0, NAN], [1.0, 0.0], [INF, 0.5]]),
        TensorSpec(values=[[1.0, 1e-30], [INF, 0.0]]),
        0.0,
        label="order-0",
    ),
    decomposition_case("aten.unfold.default", "batch 9", 1, 3, 2),
    decomposition_case("aten.unfold.default", "7 batch", 0, 3, 1, label="first"),
    decomposition_case(
        "aten.unfold.default",
        "batch wide",
        1,
        3,
        2,
        label="varying",
        dimensions={"wide": (5, 7, 9)},
    ),
    *[
        decomposition_case(
            "aten.margin_ranking_loss.default",
            "batch 4",
            "batch 4",
            signs,
            0.5,
            way,
            label=f"way{way}",
        )
        for way in range(3)
    ],
    *[
        decomposition_case(
            "aten.hinge_embedding_loss.default", "batch 4", signs, 0.5, way, label=f"way{way}"
        )
        for way in range(3)
    ],
    decomposition_case("aten.bilinear.default", "batch 3", "batch 4", "2 3 4", "2", tolerance=1e-4),
    decomposition_case(
        "aten.bilinear.default",
        "batch length 3",
        "batch length 4",
        "2 3 4",
        tolerance=1e-4,
        label="batches",
    ),
    decomposition_case(
        "aten.take.default", "batch 4", TensorSpec("2 2", I64, -4, 3), label="matrix"
    ),
    decomposition_case("aten.take.default", "batch 4", TensorSpec("", I64, 0, 3), label="scalar"),
    *[
        decomposition_case(
            f"aten.{name}.{overload}", *ends, steps, tolerance=1e-4, label=f"{steps}"
        )
        for name in ("linspace", "logspace")
        for overload, ends in (
            ("Tensor_Tensor", ("", "")),
            ("Tensor_Scalar", ("", 2.5)),
            ("Scalar_Tensor", (-1, "")),
        )
        for steps in (1, 2, 5)
    ],
    decomposition_case(
        "aten.linspace.Tensor_Tensor", "", "", 4, dtype=F16, tolerance=1e-3, label="half"
    ),
    decomposition_case("aten.resize.default", "3 4", [4, 3]),
    decomposition_case("aten.resize.default", TensorSpec("3 4", I64), [5], label="fewer"),
    *[
        decomposition_case(op, image, sizes, label=f"varying-{sizes}", tolerance=1e-4)
        for op, image, sizes in (
            ("aten.adaptive_avg_pool1d.default", "batch 2 length", [3]),
            ("aten.adaptive_avg_pool2d.default", "2 2 length 5", [2, 3]),
            ("aten._adaptive_avg_pool2d.default", "2 2 length 5", [4, 1]),
            ("aten.adaptive_avg_pool3d.default", "2 2 4 length 5", [2, 2, 3]),
            ("aten._adaptive_avg_pool3d.default", "2 2 4 length 5", [3, 2, 3]),
            ("aten.adaptive_max_pool1d.default", "batch 2 length", [3]),
            ("aten.adaptive_max_pool1d.default", "batch 2 length", [1]),
            ("aten.adaptive_max_pool2d.default", "2 2 length 5", [2, 3]),
            ("aten.adaptive_max_pool3d.default", "2 2 4 length 5", [2, 2, 3]),
        )
    ],
    decomposition_case(
        "aten.adaptive_avg_pool1d.default", TensorSpec("batch 2 length", F16), [3], label="half"
    ),
    decomposition_case("aten._pdist_forward.default", "length 3", label="varying"),
    decomposition_case("aten.pdist.default", "length 3", 1.0, label="varying"),
    *[
        op_case(
            (),
            TensorSpec("9 3"),
            TensorSpec("batch 3"),
            function=function,
            label=f"slice_scatter-{label}",
        )
        for label, function in (
            ("end", lambda x, y: torch.slice_scatter(x, y, 0, 1, 1 + y.shape[0])),
            ("both", lambda x, y: torch.slice_scatter(x, y, 0, y.shape[0] - 1, 2 * y.shape[0] - 1)),
        )
    ],
    *[
        decomposition_case(
            "aten._grouped_mm.default",
            TensorSpec(first, torch.bfloat16),
            TensorSpec(second, torch.bfloat16),
            TensorSpec(values=[2, 2, 8], dtype=torch.int32) if ends else None,
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
