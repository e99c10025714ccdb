"""Cases of pooling."""

from typing import Any

import torch
import torch.nn.functional as F

from torchtrt_testing.cases import decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

NOTHING = [[-torch.inf, -torch.inf, 1.0, 2.0], [-torch.inf, -torch.inf, -torch.inf, 3.0]]
_LENGTHS: Any = {"dimensions": {"height": (4, 6, 9), "width": (4, 8, 11)}}

CASES = [
    op_case("aten.max_pool1d.default", "batch 3 9", [3], [2], [1]),
    op_case("aten.max_pool1d.default", TensorSpec(values=[NOTHING]), [2], label="minus-infinity"),
    *(
        op_case(
            "aten.max_pool2d.default",
            TensorSpec(values=[[NOTHING]], dtype=dtype),
            [2],
            label=f"minus-infinity-{dtype}",
        )
        for dtype in (torch.float32, torch.float16)
    ),
    op_case("aten.max_pool2d.default", "batch 3 9 9", [3, 3], [2, 2], [1, 1]),
    op_case("aten.max_pool2d.default", "batch 3 8 9", [3], [2], [1], [1], True, label="ceil"),
    op_case(
        "aten.max_pool2d.default",
        "batch 3 2 2",
        [3],
        [2],
        [0],
        [1],
        True,
        label="ceil-larger-window",
    ),
    op_case(
        "aten.max_pool2d.default",
        "batch 3 7 7",
        [2],
        [3],
        [1],
        [1],
        True,
        label="ceil-drops-window",
    ),
    op_case("aten.max_pool2d.default", "3 9 9", [2], label="unbatched"),
    op_case("aten.max_pool2d.default", TensorSpec("batch 3 9 9", torch.float16), [2], label="half"),
    op_case("aten.max_pool2d.default", "batch 3 length 9", [3], [1], [1], label="dynamic-height"),
    op_case("aten.max_pool3d.default", "batch 2 5 5 5", [2]),
    op_case(
        "aten.max_pool2d_with_indices.default",
        "batch 3 9 9",
        function=lambda x: torch.ops.aten.max_pool2d_with_indices(x, [2])[0],
    ),
    op_case(
        "aten.max_pool3d_with_indices.default",
        "batch 2 5 5 5",
        function=lambda x: torch.ops.aten.max_pool3d_with_indices(x, [2])[0],
    ),
    op_case("aten.avg_pool1d.default", "batch 3 9", [3], [2], [1]),
    op_case("aten.avg_pool2d.default", "batch 3 9 9", [3], [2], [1]),
    op_case(
        "aten.avg_pool2d.default",
        "batch 3 9 9",
        [3],
        [2],
        [1],
        False,
        False,
        label="not-counting-padding",
    ),
    op_case("aten.avg_pool2d.default", "batch 3 8 8", [3], [2], [0], True, label="ceil"),
    op_case(
        "aten.avg_pool2d.default", "batch 3 2 2", [3], [2], [0], True, label="ceil-larger-window"
    ),
    op_case(
        "aten.avg_pool2d.default",
        "batch 3 8 8",
        [3],
        [2],
        [1],
        True,
        False,
        label="ceil-not-counting-padding",
    ),
    op_case(
        "aten.avg_pool2d.default", "batch 3 9 9", [3], [2], [1], False, True, 5, label="divisor"
    ),
    op_case("aten.avg_pool3d.default", "batch 2 5 5 5", [2]),
    op_case("aten.adaptive_avg_pool1d.default", "batch 3 9", [3]),
    op_case("aten.adaptive_avg_pool2d.default", "batch 3 length 9", [1, 1]),
    op_case("aten.adaptive_avg_pool2d.default", "batch 3 8 6", [4, 3], label="equal-parts"),
    op_case("aten.adaptive_avg_pool2d.default", "batch 3 7 5", [3, 2], label="unequal-parts"),
    op_case("aten.adaptive_avg_pool2d.default", "batch 3 length 5", [1, 3], label="mixed"),
    op_case("aten._adaptive_avg_pool2d.default", "batch 3 8 6", [4, 3]),
    op_case("aten.adaptive_avg_pool3d.default", "batch 3 4 4 4", [2, 1, 4]),
    op_case("aten._adaptive_avg_pool3d.default", "batch 3 4 4 4", [2, 2, 2]),
    op_case(
        "aten.adaptive_max_pool1d.default",
        "batch 3 9",
        function=lambda x: torch.ops.aten.adaptive_max_pool1d(x, [3])[0],
    ),
    op_case(
        "aten.adaptive_max_pool2d.default",
        "batch 3 8 6",
        function=lambda x: torch.ops.aten.adaptive_max_pool2d(x, [4, 3])[0],
    ),
    op_case(
        "aten.adaptive_max_pool3d.default",
        "batch 3 4 4 4",
        function=lambda x: torch.ops.aten.adaptive_max_pool3d(x, [2, 1, 4])[0],
    ),
    # What the layer does not do is gathered: dilation, places, ceil_mode over padding, unequal parts.
    *[
        decomposition_case(f"aten.{op}.default", shape, *args, label=label)
        for op, shape in (
            ("max_pool2d_with_indices", "batch 2 7 8"),
            ("max_pool3d_with_indices", "batch 2 5 6 4"),
        )
        for label, args in (
            ("places", ([2],)),
            ("padding", ([3], [2], [1])),
            ("dilation", ([2], [1], [1], [2])),
            ("dilation-ceil", ([2], [3], [1], [2], True)),
        )
    ],
    *[
        decomposition_case(f"aten.{op}.default", shape, *args, label=f"varying-{label}", **_LENGTHS)
        for op, shape in (
            ("max_pool2d_with_indices", "2 2 height width"),
            ("max_pool3d_with_indices", "1 2 height 6 width"),
        )
        for label, args in (
            ("places", ([2],)),
            ("padding", ([3], [2], [1])),
            ("dilation", ([2], [1], [1], [2])),
        )
    ],
    *[
        decomposition_case(
            f"aten.{op}.default",
            shape,
            [2],
            [3],
            [1],
            False,
            counts,
            label=f"varying-{counts}",
            **_LENGTHS,
        )
        for op, shape in (
            ("avg_pool1d", "2 2 height"),
            ("avg_pool2d", "2 2 height width"),
            ("avg_pool3d", "1 2 height 6 width"),
        )
        for counts in (True, False)
    ],
    decomposition_case(
        "aten.max_pool2d_with_indices.default",
        TensorSpec("batch 2 7 8", torch.int64),
        [3],
        label="int",
    ),
    op_case(
        (),
        "batch 3 9",
        [3],
        [2],
        [1],
        [2],
        function=torch.ops.aten.max_pool1d,
        label="pool1d-dilation",
    ),
    op_case(
        (),
        "batch 3 9 9",
        [3],
        [2],
        [1],
        [2],
        function=torch.ops.aten.max_pool2d,
        label="pool2d-dilation",
    ),
    op_case(
        (),
        "2 5 6 4",
        [2],
        [1],
        [0],
        [2],
        function=torch.ops.aten.max_pool3d,
        label="pool3d-dilation",
    ),
    op_case(
        (), "batch 3 9", 3, 2, return_indices=True, function=F.max_pool1d, label="pool1d-places"
    ),
    op_case(
        (),
        "batch 3 9",
        3,
        function=F.adaptive_max_pool1d,
        return_indices=True,
        label="parts1d-places",
    ),
    decomposition_case("aten.adaptive_max_pool2d.default", "batch 3 7 5", [3, 2], label="places"),
    decomposition_case(
        "aten.adaptive_max_pool3d.default", "batch 3 7 5 4", [3, 2, 4], label="places"
    ),
    *[
        decomposition_case(
            f"aten.{op}.default", shape, [3], [2], [1], True, counts, label=f"ceil-{counts}"
        )
        for op, shape in (
            ("avg_pool1d", "batch 2 8"),
            ("avg_pool2d", "batch 2 8 6"),
            ("avg_pool3d", "batch 2 4 6 5"),
        )
        for counts in (True, False)
    ],
    decomposition_case(
        "aten.avg_pool2d.default", "batch 2 8 6", [3], [2], [1], True, True, 5, label="ceil-divisor"
    ),
    *[
        decomposition_case(
            "aten.avg_pool2d.default",
            TensorSpec("batch 2 5 6", torch.int64, -99, 99),
            [2],
            [2],
            [1],
            False,
            counts,
            label=f"int-{counts}",
        )
        for counts in (True, False)
    ],
    op_case((), "batch 2 8 6", 2.0, 3, 2, function=F.lp_pool2d, label="lp_pool2d"),
    op_case(
        (),
        "batch 2 8",
        3.0,
        3,
        2,
        function=lambda x, *args: F.lp_pool1d(x.abs(), *args),
        label="lp_pool1d",
    ),
    decomposition_case(
        "aten.max_unpool2d.default",
        "2 2 3",
        TensorSpec(values=[[[0, 5, 7], [9, 11, 3]]] * 2, dtype=torch.int64),
        [3, 4],
    ),
    decomposition_case(
        "aten.max_unpool3d.default",
        "1 2 1 2",
        TensorSpec(values=[[[[0, 5]], [[7, 11]]]], dtype=torch.int64),
        [3, 2, 2],
        [1, 1, 1],
        [0, 0, 0],
    ),
]
