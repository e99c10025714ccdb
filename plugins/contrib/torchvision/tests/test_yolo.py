"""A detector in the manner of YOLOv8, without anchors: its head, the decoding of boxes, and NMS are one engine."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchtrt

from . import vision
from .test_detectors import assert_all_near

pytestmark = pytest.mark.skipif(
    not hasattr(vision, "vision"),
    reason="torchvision is not installed; make test-models installs it",
)


class Convolution(nn.Sequential):
    """A convolution with statistics and an activation."""

    def __init__(self, inputs, outputs, size=3, stride=1):
        super().__init__(
            nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.SiLU(),
        )


class Split(nn.Module):
    """Half of the channels go through bottlenecks, and all that were on the way are joined (C2f)."""

    def __init__(self, channels, count=1):
        super().__init__()
        half = channels // 2
        self.first = Convolution(channels, channels, 1)
        self.inner = nn.ModuleList(
            nn.Sequential(Convolution(half, half), Convolution(half, half)) for _ in range(count)
        )
        self.last = Convolution((2 + count) * half, channels, 1)

    def forward(self, x):
        """Returns features of the same shape."""
        parts = list(self.first(x).chunk(2, 1))
        for module in self.inner:
            parts.append(parts[-1] + module(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Head(nn.Module):
    """Scores of classes, and for each side of a box a distribution of its distance."""

    def __init__(self, channels, classes, bins):
        super().__init__()
        self.box = nn.Sequential(Convolution(channels, channels), nn.Conv2d(channels, 4 * bins, 1))
        self.score = nn.Sequential(Convolution(channels, channels), nn.Conv2d(channels, classes, 1))

    def forward(self, x):
        """Returns logits of sides ``(n, 4 * bins, cells)`` and of classes ``(n, classes, cells)``."""
        return self.box(x).flatten(2), self.score(x).flatten(2)


class Yolo(nn.Module):
    """Two levels of features, a pyramid, and what comes behind the heads."""

    def __init__(self, classes=5, bins=4, width=8, candidates=30):
        super().__init__()
        self.stem = nn.Sequential(
            Convolution(3, width, stride=2), Convolution(width, width, stride=2)
        )
        self.fine, self.down = Split(width), Convolution(width, width, stride=2)
        self.coarse, self.merge = Split(width), Convolution(2 * width, width, 1)
        self.heads = nn.ModuleList(Head(width, classes, bins) for _ in range(2))
        self.bins, self.candidates, self.classes = bins, candidates, classes

    def forward(self, images):
        """Returns boxes, scores and classes of what is left of each image, best first."""
        fine = self.fine(self.stem(images))
        coarse = self.coarse(self.down(fine))
        joined = self.merge(torch.cat([fine, F.interpolate(coarse, scale_factor=2.0)], 1))
        levels = ((joined, 4), (coarse, 8))
        results = [head(features) for head, (features, _) in zip(self.heads, levels, strict=True)]
        sides, scores = (torch.cat(part, 2) for part in zip(*results, strict=True))
        boxes = self.decode(sides, levels)
        return [self.choose(*part) for part in zip(boxes, scores.sigmoid(), strict=True)]

    def decode(self, sides, levels):
        """Returns boxes ``(n, cells, 4)``: the mean of each distribution, from the middle of a cell."""
        middles, strides = [], []
        for features, stride in levels:
            rows, columns = (
                torch.arange(size, device=sides.device) + 0.5 for size in features.shape[-2:]
            )
            y, x = torch.meshgrid(rows, columns, indexing="ij")
            middles.append(torch.stack([x, y], -1).flatten(0, 1))
            strides.append(torch.full((x.numel(), 1), float(stride), device=sides.device))
        middle, stride = torch.cat(middles), torch.cat(strides)
        likely = sides.unflatten(1, (4, self.bins)).softmax(2)
        distance = torch.einsum("nsbc,b->ncs", likely, torch.arange(self.bins, dtype=sides.dtype))
        low, high = distance.chunk(2, -1)
        return torch.cat([middle - low, middle + high], -1) * stride

    def choose(self, boxes, scores):
        """Returns the best candidates of one image that do not overlap others of their class much."""
        from torchvision.ops import batched_nms

        best, position = scores.T.flatten().topk(self.candidates)
        boxes, label = boxes[position // self.classes], position % self.classes
        keep = batched_nms(boxes, best, label, 0.5)
        return boxes[keep], best[keep], label[keep]


def made():
    """Returns a model whose features, sides and scores vary, and images."""
    torch.manual_seed(0)
    model, images = Yolo().requires_grad_(False), torch.randn(2, 3, 32, 48)
    for _ in range(20):
        model(images)  # statistics
    for head in model.heads:
        for part in (head.box, head.score):
            part[-1].weight.mul_(4)
    return model.eval(), images


def test_a_detector_without_anchors_compiles_whole(version):
    model, images = made()

    compiled = torchtrt.compile(model, (images,), require_full_compilation=True)

    expected = model(images)
    assert_all_near(compiled(images), expected)
    assert all(0 < len(boxes) < 30 for boxes, _, _ in expected)
    assert_all_near(compiled(images.flip(0)), model(images.flip(0)))
    assert 1 == len(compiled.report.blocks)
