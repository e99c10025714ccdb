"""Cases of pooling."""

import torch

from ..harness import T, case

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
]
