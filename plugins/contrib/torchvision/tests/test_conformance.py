"""The pack keeps what every pack should."""

import torch
from torch.nn import functional as F

from torchtrt.testing import PackConformance, TensorSpec, decomposition_case, op_case

from .vision import ops

IMAGES = TensorSpec("2 3 9 8")
MANY = TensorSpec("2 12 9 8")
CORNERS = TensorSpec("regions 4", torch.float32, low=-2.0, high=11.0)
SIZES = {"dimensions": {"regions": (1, 3, 6)}, "tolerance": 1e-3}


def of_the_second(corners, images):
    """Regions of the second image: its number in front of the corners."""
    return F.pad(corners, (1, 0), value=1.0).to(images.dtype)


def regions(op, images, *numbers):
    """The case of an op that pools regions, whose number varies."""

    def function(images, corners):
        return getattr(ops, op)(images, of_the_second(corners, images), *numbers)

    return op_case((), images, CORNERS, function=function, label=op, **SIZES)


class TestTorchvision(PackConformance):
    """torchvision's operators, from their definitions in plain Python."""

    pack = "torchvision"
    imports = (f"{__package__}.vision",)
    cases = (
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
    # The definitions have no kernel for autograd, which torchvision's own operators have.
    opcheck = ("test_schema", "test_faketensor")
