"""Cases of normalization layers."""

import torch
import torch.nn.functional as F

from ..harness import T, case

F16 = torch.float16
up = torch.linspace(0.5, 2, 4)


def batch_norm(x):
    """Returns a batch normalization with fixed statistics."""
    return F.batch_norm(x, up - 1, up, up * 2, up - 2)


CASES = [
    case("aten.layer_norm.default", "b s 4", function=lambda x: F.layer_norm(x, (4,), up, up - 1)),
    case(
        "aten.layer_norm.default",
        "b 3 4",
        function=lambda x: F.layer_norm(x, (3, 4), eps=1e-3),
        label="two-dims-plain",
    ),
    case("aten.layer_norm.default", "b 4", [4], "4", "4", label="dynamic-weight"),
    case(
        "aten.layer_norm.default",
        T("b 4", F16),
        function=lambda x: F.layer_norm(x, (4,)),
        label="half",
        tolerance=5e-3,
    ),
    case(
        "aten.native_layer_norm.default",
        "b s 4",
        function=lambda x: torch.ops.aten.native_layer_norm(x, [4], up, up, 1e-5)[0],
    ),
    case(
        "aten.native_group_norm.default",
        "b 4 6",
        function=lambda x: torch.ops.aten.native_group_norm(x, up, up, x.shape[0], 4, 6, 2, 1e-5)[
            0
        ],
    ),
    case("aten.group_norm.default", "b 4 s", 2, "4", "4", label="dynamic-weight"),
    case("aten.rms_norm.default", "b s 4", function=lambda x: F.rms_norm(x, (4,), up)),
    case(
        "aten.rms_norm.default",
        "b 4",
        function=lambda x: F.rms_norm(x, (4,), eps=1e-3),
        label="plain",
    ),
    case("aten.batch_norm.default", "b 4 s 5", function=batch_norm),
    case("aten.batch_norm.default", "b 4", function=batch_norm, label="rank-2"),
    case("aten.batch_norm.default", "b 4 s", function=batch_norm, label="rank-3"),
    case(
        "aten.batch_norm.default",
        "b 4 s 5",
        function=lambda x: F.batch_norm(x, up - 1, up),
        label="plain",
    ),
    case(
        "aten._native_batch_norm_legit_no_training.default",
        "b 4 s 5",
        function=lambda x: torch.ops.aten._native_batch_norm_legit_no_training(
            x, up, up, up - 1, up, 0.1, 1e-5
        )[0],
    ),
    case("aten.group_norm.default", "b 4 s 5", function=lambda x: F.group_norm(x, 2, up, up - 1)),
    case(
        "aten.group_norm.default",
        "b 4 s",
        function=lambda x: F.group_norm(x, 2, up, up - 1),
        label="rank-3",
    ),
    case(
        "aten.group_norm.default",
        "b 4 s 5 2",
        function=lambda x: F.group_norm(x, 2),
        label="rank-5-plain",
    ),
    case(
        "aten.group_norm.default",
        "b 4 s 5",
        function=lambda x: F.group_norm(x, 1, up),
        label="one-group",
    ),
    case(
        "aten.instance_norm.default",
        "b 4 s 5",
        function=lambda x: F.instance_norm(x, weight=up, bias=up),
    ),
]
