"""Cases of normalization layers."""

import torch
import torch.nn.functional as F

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

F16 = torch.float16
up = torch.linspace(0.5, 2, 4)


def batch_norm(x: torch.Tensor) -> torch.Tensor:
    """Returns a batch normalization with fixed statistics."""
    return F.batch_norm(x, up - 1, up, up * 2, up - 2)


CASES = [
    op_case(
        "aten.layer_norm.default",
        "batch length 4",
        function=lambda x: F.layer_norm(x, (4,), up, up - 1),
    ),
    op_case(
        "aten.layer_norm.default",
        "batch 3 4",
        function=lambda x: F.layer_norm(x, (3, 4), eps=1e-3),
        label="two-dims-plain",
    ),
    op_case("aten.layer_norm.default", "batch 4", [4], "4", "4", label="dynamic-weight"),
    op_case(
        "aten.layer_norm.default",
        TensorSpec("batch 4", F16),
        function=lambda x: F.layer_norm(x, (4,)),
        label="half",
        tolerance=5e-3,
    ),
    op_case(
        "aten.native_layer_norm.default",
        "batch length 4",
        function=lambda x: torch.ops.aten.native_layer_norm(x, [4], up, up, 1e-5)[0],
    ),
    op_case(
        "aten.native_group_norm.default",
        "batch 4 6",
        function=lambda x: torch.ops.aten.native_group_norm(x, up, up, x.shape[0], 4, 6, 2, 1e-5)[
            0
        ],
    ),
    op_case("aten.group_norm.default", "batch 4 length", 2, "4", "4", label="dynamic-weight"),
    op_case("aten.rms_norm.default", "batch length 4", function=lambda x: F.rms_norm(x, (4,), up)),
    op_case(
        "aten.rms_norm.default",
        "batch 4",
        function=lambda x: F.rms_norm(x, (4,), eps=1e-3),
        label="plain",
    ),
    op_case("aten.batch_norm.default", "batch 4 length 5", function=batch_norm),
    op_case("aten.batch_norm.default", "batch 4", function=batch_norm, label="rank-2"),
    op_case("aten.batch_norm.default", "batch 4 length", function=batch_norm, label="rank-3"),
    op_case(
        "aten.batch_norm.default",
        "batch 4 length 5",
        function=lambda x: F.batch_norm(x, up - 1, up),
        label="plain",
    ),
    op_case(
        "aten._native_batch_norm_legit_no_training.default",
        "batch 4 length 5",
        function=lambda x: torch.ops.aten._native_batch_norm_legit_no_training(
            x, up, up, up - 1, up, 0.1, 1e-5
        )[0],
    ),
    op_case(
        "aten.group_norm.default",
        "batch 4 length 5",
        function=lambda x: F.group_norm(x, 2, up, up - 1),
    ),
    op_case(
        "aten.group_norm.default",
        "batch 4 length",
        function=lambda x: F.group_norm(x, 2, up, up - 1),
        label="rank-3",
    ),
    op_case(
        "aten.group_norm.default",
        "batch 4 length 5 2",
        function=lambda x: F.group_norm(x, 2),
        label="rank-5-plain",
    ),
    op_case(
        "aten.group_norm.default",
        "batch 4 length 5",
        function=lambda x: F.group_norm(x, 1, up),
        label="one-group",
    ),
    op_case(
        "aten.instance_norm.default",
        "batch 4 length 5",
        function=lambda x: F.instance_norm(x, weight=up, bias=up),
    ),
    op_case(
        "aten.instance_norm.default",
        "batch 4 length",
        function=lambda x: F.instance_norm(x, bias=up),
        label="rank-3",
    ),
    op_case(
        "aten.group_norm.default",
        "batch 4",
        function=lambda x: F.group_norm(x, 2, up, up - 1),
        label="rank-2",
    ),
    op_case(
        "aten.group_norm.default",
        "batch 4 length 5 2",
        function=lambda x: F.group_norm(x, 1, up, up - 1),
        label="rank-5-one-group",
    ),
]
