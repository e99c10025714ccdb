"""The architectures that must convert whole: those of transformers, and others in small random configurations."""

from __future__ import annotations

import torch

from docs.demo.models import ResNet18
from tests.architectures import written
from torchtrt_converters_transformers.cases.architectures import (
    ARCHITECTURES,
    LENGTHS,
    SIGNALS,
)
from torchtrt_testing.architectures import (
    BATCH,
    SEQUENCE,
    Architecture,
    images,
    signals,
    tokens,
)

ZOO = (
    *ARCHITECTURES,
    Architecture("resnet", lambda: ResNet18(classes=10), images(32), BATCH),
    Architecture("unet", written.UNet, images(32), BATCH),
    Architecture("feature-pyramid", written.FeaturePyramid, images(32), BATCH),
    Architecture("deeplab", written.DeepLab, images(32), BATCH),
    Architecture(
        "mixture-of-experts",
        written.MixtureOfExperts,
        lambda batch, length: (torch.randn(batch, length, 16),),
        SEQUENCE,
        LENGTHS,
    ),
    Architecture(
        "diffusion-unet-block",
        written.DiffusionBlock,
        lambda batch, length: (torch.randn(batch, 4, 8, 8), torch.randint(0, 1000, (batch,))),
        BATCH * 2,
    ),
    Architecture("speech-convolutions", written.SpeechConvolutions, signals, SEQUENCE, SIGNALS),
    Architecture("lstm-tagger", written.Tagger, tokens(50), SEQUENCE, LENGTHS),
    Architecture(
        "graph-network",
        written.GraphNetwork,
        lambda batch, length: (torch.randn(9, 4), torch.randint(0, 9, (2, length))),
        ({}, {1: "length"}),
        (6, 12, 20),
    ),
)
"""All of them."""
