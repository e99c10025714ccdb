"""Cases of padding, and of tensors turned around."""

import torch

from ..harness import T, case

I64, BOOL, F16 = torch.int64, torch.bool, torch.float16

CASES = [
    case("aten.constant_pad_nd.default", "b s 4", [1, 2]),
    case("aten.constant_pad_nd.default", "b s 4", [1, -2, 2, 0], 7.5, label="negative"),
    case("aten.constant_pad_nd.default", T("b s", I64), [1, 2, 0, 1], 3, label="int"),
    case("aten.constant_pad_nd.default", T("b 6", I64), [-1, 2], 3, label="int-negative"),
    case("aten.constant_pad_nd.default", T("b s", BOOL), [1, 1], True, label="bool"),
    case("aten.constant_pad_nd.default", T("b s", F16), [1, 1], -1.5, label="half"),
    case(
        "aten.constant_pad_nd.default",
        "b s",
        [0, 0],
        function=lambda x, p: torch.constant_pad_nd(x, p) + 1,
        label="nothing",
    ),
    case(
        "aten.pad.default",
        "b s",
        [1, 1],
        function=lambda x, p: torch.ops.aten.pad(x, p, "constant", 2.0),
    ),
    case(
        "aten.pad.default",
        "b 3 s",
        [2, 1],
        function=lambda x, p: torch.ops.aten.pad(x, p, "circular"),
        label="circular",
    ),
    case("aten.reflection_pad1d.default", "b s", [2, 1]),
    case("aten.reflection_pad2d.default", "b s 4", [2, 1, 1, 0]),
    case("aten.reflection_pad3d.default", "b s 4 3", [2, 1, 1, 0, 1, 1]),
    case("aten.replication_pad1d.default", "b s", [4, 1]),
    case("aten.replication_pad2d.default", "b s 4", [2, 1, -1, 5]),
    case("aten.replication_pad3d.default", "b s 4 3", [2, 1, 1, 0, 1, 1]),
    case("aten._pad_circular.default", "b 3 s", [2, 3]),
    case("aten.flip.default", "b s 4", [0, -1]),
    case("aten.flip.default", T("b s", I64), [1], label="int"),
    case("aten.fliplr.default", "b s"),
    case("aten.flipud.default", "b s"),
    case("aten.roll.default", "b s", [2], [1]),
    case("aten.roll.default", "b 5 s", [2, -3], [1, -1], label="two"),
    case("aten.roll.default", "b s", [4], label="flat"),
]
