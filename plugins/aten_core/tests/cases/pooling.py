"""Cases of pooling."""

import torch
import torch.nn.functional as F

from ..harness import T, case, decomposed

CASES = [
    case("aten.max_pool1d.default", "b 3 9", [3], [2], [1]),
    case("aten.max_pool2d.default", "b 3 9 9", [3, 3], [2, 2], [1, 1]),
    case("aten.max_pool2d.default", "b 3 8 9", [3], [2], [1], [1], True, label="ceil"),
    case("aten.max_pool2d.default", "b 3 7 7", [2], [3], [1], [1], True, label="ceil-drops-window"),
    case("aten.max_pool2d.default", "3 9 9", [2], label="unbatched"),
    case("aten.max_pool2d.default", T("b 3 9 9", torch.float16), [2], label="half"),
    case("aten.max_pool2d.default", "b 3 s 9", [3], [1], [1], label="dynamic-height"),
    case("aten.max_pool3d.default", "b 2 5 5 5", [2]),
    case(
        "aten.max_pool2d_with_indices.default",
        "b 3 9 9",
        function=lambda x: torch.ops.aten.max_pool2d_with_indices(x, [2])[0],
    ),
    case(
        "aten.max_pool3d_with_indices.default",
        "b 2 5 5 5",
        function=lambda x: torch.ops.aten.max_pool3d_with_indices(x, [2])[0],
    ),
    case("aten.avg_pool1d.default", "b 3 9", [3], [2], [1]),
    case("aten.avg_pool2d.default", "b 3 9 9", [3], [2], [1]),
    case(
        "aten.avg_pool2d.default",
        "b 3 9 9",
        [3],
        [2],
        [1],
        False,
        False,
        label="not-counting-padding",
    ),
    case("aten.avg_pool2d.default", "b 3 8 8", [3], [2], [0], True, label="ceil"),
    case(
        "aten.avg_pool2d.default",
        "b 3 8 8",
        [3],
        [2],
        [1],
        True,
        False,
        label="ceil-not-counting-padding",
    ),
    case("aten.avg_pool2d.default", "b 3 9 9", [3], [2], [1], False, True, 5, label="divisor"),
    case("aten.avg_pool3d.default", "b 2 5 5 5", [2]),
    case("aten.adaptive_avg_pool1d.default", "b 3 9", [3]),
    case("aten.adaptive_avg_pool2d.default", "b 3 s 9", [1, 1]),
    case("aten.adaptive_avg_pool2d.default", "b 3 8 6", [4, 3], label="equal-parts"),
    case("aten.adaptive_avg_pool2d.default", "b 3 7 5", [3, 2], label="unequal-parts"),
    case("aten.adaptive_avg_pool2d.default", "b 3 s 5", [1, 3], label="mixed"),
    case("aten._adaptive_avg_pool2d.default", "b 3 8 6", [4, 3]),
    case("aten.adaptive_avg_pool3d.default", "b 3 4 4 4", [2, 1, 4]),
    case("aten._adaptive_avg_pool3d.default", "b 3 4 4 4", [2, 2, 2]),
    case(
        "aten.adaptive_max_pool1d.default",
        "b 3 9",
        function=lambda x: torch.ops.aten.adaptive_max_pool1d(x, [3])[0],
    ),
    case(
        "aten.adaptive_max_pool2d.default",
        "b 3 8 6",
        function=lambda x: torch.ops.aten.adaptive_max_pool2d(x, [4, 3])[0],
    ),
    case(
        "aten.adaptive_max_pool3d.default",
        "b 3 4 4 4",
        function=lambda x: torch.ops.aten.adaptive_max_pool3d(x, [2, 1, 4])[0],
    ),
    # What the layer does not do is gathered: dilation, places, ceil_mode over padding, unequal parts.
    *[
        decomposed(f"aten.{op}.default", shape, *args, label=label)
        for op, shape in (
            ("max_pool2d_with_indices", "b 2 7 8"),
            ("max_pool3d_with_indices", "b 2 5 6 4"),
        )
        for label, args in (
            ("places", ([2],)),
            ("padding", ([3], [2], [1])),
            ("dilation", ([2], [1], [1], [2])),
            ("dilation-ceil", ([2], [3], [1], [2], True)),
        )
    ],
    decomposed("aten.max_pool2d_with_indices.default", T("b 2 7 8", torch.int64), [3], label="int"),
    case(
        (), "b 3 9", [3], [2], [1], [2], function=torch.ops.aten.max_pool1d, label="pool1d-dilation"
    ),
    case(
        (),
        "b 3 9 9",
        [3],
        [2],
        [1],
        [2],
        function=torch.ops.aten.max_pool2d,
        label="pool2d-dilation",
    ),
    case(
        (),
        "2 5 6 4",
        [2],
        [1],
        [0],
        [2],
        function=torch.ops.aten.max_pool3d,
        label="pool3d-dilation",
    ),
    case((), "b 3 9", 3, 2, return_indices=True, function=F.max_pool1d, label="pool1d-places"),
    case(
        (), "b 3 9", 3, function=F.adaptive_max_pool1d, return_indices=True, label="parts1d-places"
    ),
    decomposed("aten.adaptive_max_pool2d.default", "b 3 7 5", [3, 2], label="places"),
    decomposed("aten.adaptive_max_pool3d.default", "b 3 7 5 4", [3, 2, 4], label="places"),
    *[
        decomposed(f"aten.{op}.default", shape, [3], [2], [1], True, counts, label=f"ceil-{counts}")
        for op, shape in (
            ("avg_pool1d", "b 2 8"),
            ("avg_pool2d", "b 2 8 6"),
            ("avg_pool3d", "b 2 4 6 5"),
        )
        for counts in (True, False)
    ],
    decomposed(
        "aten.avg_pool2d.default", "b 2 8 6", [3], [2], [1], True, True, 5, label="ceil-divisor"
    ),
    *[
        decomposed(
            "aten.avg_pool2d.default",
            T("b 2 5 6", torch.int64, -99, 99),
            [2],
            [2],
            [1],
            False,
            counts,
            label=f"int-{counts}",
        )
        for counts in (True, False)
    ],
    case((), "b 2 8 6", 2.0, 3, 2, function=F.lp_pool2d, label="lp_pool2d"),
    case(
        (),
        "b 2 8",
        3.0,
        3,
        2,
        function=lambda x, *args: F.lp_pool1d(x.abs(), *args),
        label="lp_pool1d",
    ),
    decomposed(
        "aten.max_unpool2d.default",
        "2 2 3",
        T(values=[[[0, 5, 7], [9, 11, 3]]] * 2, dtype=torch.int64),
        [3, 4],
    ),
    decomposed(
        "aten.max_unpool3d.default",
        "1 2 1 2",
        T(values=[[[[0, 5]], [[7, 11]]]], dtype=torch.int64),
        [3, 2, 2],
        [1, 1, 1],
        [0, 0, 0],
    ),
]
