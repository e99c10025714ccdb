"""Cases of resampling."""

import torch
import torch.nn.functional as F

from torchtrt_testing.cases import decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

F16, INF = torch.float16, torch.inf
ONE, TWO, THREE = "batch 2 5", "batch 2 4 5", "batch 2 3 4 5"
SHAPES = {1: (ONE, [7]), 2: (TWO, [7, 3]), 3: (THREE, [5, 2, 7])}

CASES = [
    *[
        op_case(f"aten.{name}{dims}d.default", SHAPES[dims][0], SHAPES[dims][1])
        for name in ("upsample_nearest", "_upsample_nearest_exact")
        for dims in (1, 2, 3)
    ],
    *[
        op_case(
            f"aten.{name}.default", SHAPES[dims][0], SHAPES[dims][1], aligned, label=str(aligned)
        )
        for name, dims in (
            ("upsample_linear1d", 1),
            ("upsample_bilinear2d", 2),
            ("upsample_trilinear3d", 3),
            ("upsample_bicubic2d", 2),
        )
        for aligned in (False, True)
    ],
    *[
        op_case(f"aten.{name}{dims}d.vec", SHAPES[dims][0], None, [2.0] * dims)
        for name in ("upsample_nearest", "_upsample_nearest_exact")
        for dims in (1, 2, 3)
    ],
    *[
        op_case(f"aten.{name}.vec", SHAPES[dims][0], None, False, [2.0] * dims)
        for name, dims in (
            ("upsample_linear1d", 1),
            ("upsample_bilinear2d", 2),
            ("upsample_trilinear3d", 3),
            ("upsample_bicubic2d", 2),
        )
    ],
    op_case(
        "aten.upsample_nearest2d.vec",
        "batch 2 length 4",
        function=lambda x: F.interpolate(x, scale_factor=2),
        label="dynamic-scale",
    ),
    op_case(
        "aten.upsample_bilinear2d.vec",
        "batch 2 length 4",
        "length",
        function=lambda x, y: F.interpolate(x, (2 * y.shape[0], 6), mode="bilinear"),
        label="dynamic-size",
    ),
    *[
        op_case(
            f"aten._upsample_{kind}2d_aa.{overload}",
            "batch 2 7 6",
            size,
            aligned,
            *scales,
            label=label,
        )
        for kind in ("bilinear", "bicubic", "lanczos")
        if hasattr(torch.ops.aten, f"_upsample_{kind}2d_aa")
        for overload, size, scales, aligned, label in (
            ("default", [3, 9], (None, None), False, ""),
            ("default", [4, 4], (None, None), True, "aligned"),
            ("vec", None, ([0.6, 1.5],), False, ""),
        )
    ],
    *[
        op_case(
            f"aten.{kind}.vec",
            "batch 2 7 6",
            None,
            *aligned,
            [0.7, 1.6],
            label="uneven",
            tolerance=1e-4,
        )
        for kind, aligned in (
            ("upsample_bilinear2d", (False,)),
            ("upsample_bicubic2d", (False,)),
            ("upsample_nearest2d", ()),
            ("_upsample_nearest_exact2d", ()),
        )
    ],
    op_case("aten.upsample_linear1d.vec", "batch 2 7", None, False, [1.7], label="uneven"),
    op_case(
        "aten.upsample_trilinear3d.vec", "1 2 3 4 5", None, False, [1.7, 0.6, 1.0], label="uneven"
    ),
    *[
        op_case(
            "aten.grid_sampler_2d.default",
            "batch 2 4 5",
            TensorSpec("batch 3 3 2", low=-1.5, high=1.5),
            mode,
            outside,
            aligned,
            label=f"{mode}{outside}{aligned}",
            tolerance=1e-4,
        )
        for mode, outside, aligned in (
            (0, 0, False),
            (0, 1, True),
            (0, 2, False),
            (1, 0, True),
            (2, 0, False),
        )
    ],
    *[
        op_case(
            op,
            image,
            function=lambda x, mode=mode, scale=scale: F.interpolate(
                x, scale_factor=scale, mode=mode, align_corners=True
            ),
            label=f"aligned-fraction-{scale}",
            tolerance=1e-4,
        )
        for op, image, mode, scale in (
            ("aten.upsample_linear1d.vec", "batch 3 length", "linear", 1.3),
            ("aten.upsample_bilinear2d.vec", "2 3 length 4", "bilinear", 1.5),
            ("aten.upsample_bilinear2d.vec", "2 3 length batch", "bilinear", 2.7),
        )
    ],
    op_case(
        "aten.grid_sampler.default",
        "batch 2 4 5",
        TensorSpec("batch 3 3 2", low=-1.5, high=1.5),
        0,
        0,
        False,
        tolerance=1e-4,
    ),
    *[
        decomposition_case(
            "aten.grid_sampler_3d.default",
            "batch 2 3 4 5",
            TensorSpec("batch 2 3 2 3", low=-1.6, high=1.6),
            mode,
            outside,
            aligned,
            label=f"{mode}{outside}{aligned}",
            tolerance=1e-4,
        )
        for mode in (0, 1)
        for outside in (0, 1, 2)
        for aligned in (False, True)
    ],
    *[
        decomposition_case(
            "aten.grid_sampler_3d.default",
            "1 2 3 4 5",
            TensorSpec(values=[[[[[0.1, INF, 0.3], [-INF, 0.2, 0.5], [1e30, 0.0, 0.9]]]]]),
            mode,
            outside,
            False,
            label=f"{mode}{outside}-far",
        )
        for mode in (0, 1)
        for outside in (0, 1)
    ],
    *[
        decomposition_case(f"aten.{name}.vec", image, None, False, factors, label="fraction")
        for name, image, factors in (
            ("upsample_linear1d", "batch 3 length", [1.7]),
            ("upsample_bilinear2d", "2 3 length batch", [1.5, 2.7]),
            ("upsample_trilinear3d", "1 2 length 4 5", [1.6, 1.0, 2.5]),
        )
    ],
]
