"""Cases of pieces of tensors and of tensors put together."""

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

I64, I32, BOOL = torch.int64, torch.int32, torch.bool

CASES = [
    op_case("aten.slice.Tensor", "batch 8", 1, 2, 6),
    op_case("aten.slice.Tensor", "batch 8", 1, -5, -1, 2, label="negative"),
    op_case("aten.slice.Tensor", "batch 8", 1, 6, 100, label="past-the-end"),
    op_case("aten.slice.Tensor", "batch 8", 1, 5, 5, label="empty"),
    op_case(
        "aten.slice.Tensor", "length 3", function=lambda x: x[:-1], label="dynamic-all-but-last"
    ),
    op_case("aten.slice.Tensor", "length 3", function=lambda x: x[-2:], label="dynamic-last-two"),
    op_case("aten.slice.Tensor", "length 3", function=lambda x: x[1:], label="dynamic-rest"),
    op_case("aten.slice.Tensor", "length 3", function=lambda x: x[::2], label="dynamic-step"),
    op_case(
        "aten.slice.Tensor", "length 3", function=lambda x: x[1 : x.shape[0]], label="dynamic-part"
    ),
    op_case(
        "aten.slice.Tensor",
        "9 3",
        "length",
        function=lambda x, y: x[: y.shape[0]],
        label="size-of-another",
    ),
    op_case(
        "aten.slice.Tensor",
        "19 3",
        "batch",
        "length",
        function=lambda x, y, z: x[y.shape[0] : y.shape[0] + z.shape[0]],
        label="offset",
    ),
    op_case("aten.slice_copy.Tensor", TensorSpec("batch 8", BOOL), 1, 2, 6),
    op_case("aten.narrow.default", "batch 8", 1, 2, 3),
    op_case("aten.narrow.default", "batch 8", 1, -3, 2, label="negative"),
    op_case("aten.select.int", "batch length 4", 1, 0),
    op_case("aten.select.int", "batch length 4", 1, -1, label="last-of-dynamic"),
    op_case("aten.select.int", TensorSpec("batch 4", I64), -1, -2, label="int"),
    op_case("aten.select.int", "4", 0, 2, label="vector"),
    op_case("aten.select_copy.int", "batch 4", 1, 2),
    op_case("aten.unbind.int", "batch 3", 1),
    op_case("aten.split.Tensor", "batch 7", 3, 1),
    op_case(
        ("aten.split.sizes", "operator.getitem"),
        "batch 7",
        function=lambda x: torch.ops.aten.split.sizes(x, [2, 4, 1], 1)[1],
    ),
    op_case("aten.split_with_sizes.default", "batch 7", [2, 5], -1),
    op_case("aten.split_with_sizes_copy.default", "batch 7", [2, 5], 1),
    op_case("aten.split_copy.Tensor", "batch 7", 3, 1),
    op_case("aten.unsafe_split.Tensor", "batch 7", 3, 1),
    op_case("aten.unsafe_split_with_sizes.default", "batch 7", [2, 5], 1),
    op_case("aten.unsafe_chunk.default", "batch 7", 3, 1),
    op_case("aten.chunk.default", "batch 7", 3, 1),
    op_case("aten.tensor_split.sections", "batch 7", 3, 1),
    op_case(
        "aten.split_with_sizes.default",
        "length 3",
        function=lambda x: torch.split(x, [1, x.shape[0] - 1]),
        label="dynamic",
    ),
    op_case("aten.cat.default", ["batch 3", "batch 2"], 1),
    op_case("aten.cat.default", ["batch 3", "length 3"], label="dynamic"),
    op_case("aten.cat.default", [TensorSpec("batch 3", I64), "batch 3"], -1, label="promoted"),
    op_case("aten.cat.default", ["0", "batch 3"], label="empty"),
    op_case("aten.cat.default", ["0 3", "batch 3", "0 3"], label="no-rows"),
    op_case("aten.cat.default", ["batch 0", "batch 0"], label="nothing"),
    op_case("aten.as_strided.default", "3 4", [2, 3], [1, 4], 1),
    op_case("aten.as_strided.default", "12", [4, 6], [2, 1], label="windows"),
    op_case("aten.as_strided_copy.default", TensorSpec("3 4", I64), [5], [2]),
    op_case(
        "aten.cat.default",
        ["batch 3"],
        function=lambda xs: torch.cat([xs[0], torch.ones(2, 3)]),
        label="constant",
    ),
    op_case("aten.concat.default", ["batch 3", "batch 2"], 1),
    op_case("aten.concatenate.default", ["batch 3", "batch 2"], 1),
    op_case("aten.stack.default", ["batch 3", "batch 3"], 1),
    op_case(
        "aten.stack.default",
        [TensorSpec("batch", BOOL), TensorSpec("batch", BOOL)],
        -1,
        label="bool",
    ),
]
