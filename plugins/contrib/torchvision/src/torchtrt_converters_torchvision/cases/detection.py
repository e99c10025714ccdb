"""Cases of ops for detection."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchtrt_testing.cases import OpCase, decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

if not hasattr(torch.ops.torchvision, "nms"):
    import torchvision  # noqa: F401  # defines the ops

IMAGES = TensorSpec("2 3 9 8")
MANY = TensorSpec("2 12 9 8")
CORNERS = TensorSpec("regions 4", torch.float32, low=-2.0, high=11.0)


def of_the_second(corners: Tensor, images: Tensor) -> Tensor:
    """Returns regions of the second image: its number in front of the corners."""
    return F.pad(corners, (1, 0), value=1.0).to(images.dtype)


def regions(op: str, images: TensorSpec, *numbers: float) -> OpCase:
    """Returns the case of an op that pools regions, whose number varies."""

    def function(images: Tensor, corners: Tensor) -> Any:
        return getattr(torch.ops.torchvision, op)(images, of_the_second(corners, images), *numbers)

    return op_case(
        (),
        images,
        CORNERS,
        function=function,
        label=op,
        dimensions={"regions": (1, 3, 6)},
        tolerance=1e-3,
    )


CASES = (
    op_case(
        "torchvision::nms",
        TensorSpec("boxes 4", low=0.0, high=9.0),
        TensorSpec("boxes"),
        0.4,
        dimensions={"boxes": (1, 6, 12)},
    ),
    decomposition_case(
        "torchvision::roi_align",
        IMAGES,
        TensorSpec(values=[[1.0, 1, 1, 6, 7]]),
        1.0,
        3,
        2,
        2,
        False,
    ),
    decomposition_case(
        "torchvision::ps_roi_align", MANY, TensorSpec(values=[[1.0, 1, 1, 6, 7]]), 1.0, 2, 3, 2
    ),
    decomposition_case(
        "torchvision::roi_pool", IMAGES, TensorSpec(values=[[1.0, 1, 1, 6, 7]]), 1.0, 3, 2
    ),
    decomposition_case(
        "torchvision::ps_roi_pool", MANY, TensorSpec(values=[[1.0, 1, 1, 6, 7]]), 1.0, 2, 3
    ),
    decomposition_case(
        "torchvision::deform_conv2d",
        "batch 4 5 6",
        torch.linspace(-1, 1, 3 * 4 * 3 * 3).reshape(3, 4, 3, 3),
        "batch 18 5 6",
        "batch 9 5 6",
        torch.linspace(-1, 1, 3),
        *(1, 1, 1, 1, 1, 1, 1, 1, True),
        tolerance=1e-4,
    ),
    regions("roi_align", IMAGES, 1.0, 3, 2, 2, True),
    regions("ps_roi_align", MANY, 0.5, 2, 3, 2),
    regions("roi_pool", IMAGES, 1.0, 3, 2),
    regions("ps_roi_pool", MANY, 1.0, 2, 3),
)
