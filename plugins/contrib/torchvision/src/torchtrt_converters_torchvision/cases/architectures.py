"""Architectures of torchvision with random weights, for small images."""

from __future__ import annotations

from functools import partial

import torchvision

from torchtrt_testing.architectures import BATCH, Architecture, images

ARCHITECTURES = tuple(
    Architecture(
        name.replace("_", "-"),
        partial(torchvision.models.get_model, name, weights=None, num_classes=10),
        images(64),
        BATCH,
    )
    for name in ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5")
)
"""All of them; they become engines alone."""
