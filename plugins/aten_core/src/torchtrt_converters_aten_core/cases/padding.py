"""Cases of padding, and of tensors turned around."""

import math

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

I64, BOOL, F16 = torch.int64, torch.bool, torch.float16

CASES = [
    op_case("aten.constant_pad_nd.default", "batch length 4", [1, 2]),
    op_case("aten.constant_pad_nd.default", "batch length 4", [1, -2, 2, 0], 7.5, label="negative"),
    op_case(
        "aten.constant_pad_nd.default",
        TensorSpec("batch length", I64),
        [1, 2, 0, 1],
        3,
        label="int",
    ),
    op_case(
        "aten.constant_pad_nd.default", TensorSpec("batch 6", I64), [-1, 2], 3, label="int-negative"
    ),
    op_case(
        "aten.constant_pad_nd.default", TensorSpec("batch length", BOOL), [1, 1], True, label="bool"
    ),
    *[
        op_case(
            "aten.constant_pad_nd.default",
            TensorSpec("batch length", BOOL),
            [1, 1],
            value,
            label=f"bool-{value}",
        )
        for value in (0.5, 2**40, math.inf, math.nan, -0.0)
    ],
    op_case(
        "aten.constant_pad_nd.default", TensorSpec("batch length", F16), [1, 1], -1.5, label="half"
    ),
    op_case(
        "aten.constant_pad_nd.default",
        "batch length",
        [0, 0],
        function=lambda x, p: torch.constant_pad_nd(x, p) + 1,
        label="nothing",
    ),
    op_case(
        "aten.pad.default",
        "batch length",
        [1, 1],
        function=lambda x, p: torch.ops.aten.pad(x, p, "constant", 2.0),
    ),
    op_case(
        "aten.pad.default",
        "batch 3 length",
        [2, 1],
        function=lambda x, p: torch.ops.aten.pad(x, p, "circular"),
        label="circular",
    ),
    op_case("aten.reflection_pad1d.default", "batch length", [2, 1]),
    op_case("aten.reflection_pad2d.default", "batch length 4", [2, 1, 1, 0]),
    op_case("aten.reflection_pad3d.default", "batch length 4 3", [2, 1, 1, 0, 1, 1]),
    op_case("aten.replication_pad1d.default", "batch length", [4, 1]),
    op_case("aten.replication_pad2d.default", "batch length 4", [2, 1, -1, 5]),
    op_case("aten.replication_pad3d.default", "batch length 4 3", [2, 1, 1, 0, 1, 1]),
    op_case("aten._pad_circular.default", "batch 3 length", [2, 3]),
    op_case("aten.flip.default", "batch length 4", [0, -1]),
    op_case("aten.flip.default", TensorSpec("batch length", I64), [1], label="int"),
    op_case("aten.fliplr.default", "batch length"),
    op_case("aten.flipud.default", "batch length"),
    op_case("aten.roll.default", "batch length", [2], [1]),
    op_case("aten.roll.default", "batch 5 length", [2, -3], [1, -1], label="two"),
    op_case("aten.roll.default", "batch length", [4], label="flat"),
]
