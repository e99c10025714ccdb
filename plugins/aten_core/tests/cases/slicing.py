"""Cases of pieces of tensors and of tensors put together."""

import torch

from ..harness import T, case

I64, I32, BOOL = torch.int64, torch.int32, torch.bool

CASES = [
    case("aten.slice.Tensor", "b 8", 1, 2, 6),
    case("aten.slice.Tensor", "b 8", 1, -5, -1, 2, label="negative"),
    case("aten.slice.Tensor", "b 8", 1, 6, 100, label="past-the-end"),
    case("aten.slice.Tensor", "b 8", 1, 5, 5, label="empty"),
    case("aten.slice.Tensor", "s 3", function=lambda x: x[:-1], label="dynamic-all-but-last"),
    case("aten.slice.Tensor", "s 3", function=lambda x: x[-2:], label="dynamic-last-two"),
    case("aten.slice.Tensor", "s 3", function=lambda x: x[1:], label="dynamic-rest"),
    case("aten.slice.Tensor", "s 3", function=lambda x: x[::2], label="dynamic-step"),
    case("aten.slice.Tensor", "s 3", function=lambda x: x[1 : x.shape[0]], label="dynamic-part"),
    case(
        "aten.slice.Tensor",
        "9 3",
        "s",
        function=lambda x, y: x[: y.shape[0]],
        label="size-of-another",
    ),
    case(
        "aten.slice.Tensor",
        "19 3",
        "b",
        "s",
        function=lambda x, y, z: x[y.shape[0] : y.shape[0] + z.shape[0]],
        label="offset",
    ),
    case("aten.slice_copy.Tensor", T("b 8", BOOL), 1, 2, 6),
    case("aten.narrow.default", "b 8", 1, 2, 3),
    case("aten.narrow.default", "b 8", 1, -3, 2, label="negative"),
    case("aten.select.int", "b s 4", 1, 0),
    case("aten.select.int", "b s 4", 1, -1, label="last-of-dynamic"),
    case("aten.select.int", T("b 4", I64), -1, -2, label="int"),
    case("aten.select.int", "4", 0, 2, label="vector"),
    case("aten.select_copy.int", "b 4", 1, 2),
    case("aten.unbind.int", "b 3", 1),
    case("aten.split.Tensor", "b 7", 3, 1),
    case(
        ("aten.split.sizes", "operator.getitem"),
        "b 7",
        function=lambda x: torch.ops.aten.split.sizes(x, [2, 4, 1], 1)[1],
    ),
    case("aten.split_with_sizes.default", "b 7", [2, 5], -1),
    case("aten.split_with_sizes_copy.default", "b 7", [2, 5], 1),
    case("aten.split_copy.Tensor", "b 7", 3, 1),
    case("aten.unsafe_split.Tensor", "b 7", 3, 1),
    case("aten.unsafe_split_with_sizes.default", "b 7", [2, 5], 1),
    case("aten.unsafe_chunk.default", "b 7", 3, 1),
    case("aten.chunk.default", "b 7", 3, 1),
    case("aten.tensor_split.sections", "b 7", 3, 1),
    case(
        "aten.split_with_sizes.default",
        "s 3",
        function=lambda x: torch.split(x, [1, x.shape[0] - 1]),
        label="dynamic",
    ),
    case("aten.cat.default", ["b 3", "b 2"], 1),
    case("aten.cat.default", ["b 3", "s 3"], label="dynamic"),
    case("aten.cat.default", [T("b 3", I64), "b 3"], -1, label="promoted"),
    case("aten.cat.default", ["0", "b 3"], label="empty"),
    case(
        "aten.cat.default",
        ["b 3"],
        function=lambda xs: torch.cat([xs[0], torch.ones(2, 3)]),
        label="constant",
    ),
    case("aten.concat.default", ["b 3", "b 2"], 1),
    case("aten.concatenate.default", ["b 3", "b 2"], 1),
    case("aten.stack.default", ["b 3", "b 3"], 1),
    case("aten.stack.default", [T("b", BOOL), T("b", BOOL)], -1, label="bool"),
]
