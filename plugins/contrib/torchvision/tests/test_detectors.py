"""The heads and the post-processing of detectors compile whole."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchtrt

from .vision import ops


def decode(anchors, deltas):
    """Boxes from anchors and a head's offsets: ``(n, 4)``."""
    size = anchors[:, 2:] - anchors[:, :2]
    middle = anchors[:, :2] + size / 2 + deltas[:, :2] * size
    half = size * deltas[:, 2:].clamp(max=2.0).exp() / 2
    return torch.cat([middle - half, middle + half], 1)


def suppress(boxes, scores, classes, threshold):
    """``torchvision.ops.batched_nms`` as it is when it is traced."""
    offsets = classes.to(boxes.dtype) * (boxes.max() + 1)
    return ops.nms(boxes + offsets[:, None], scores, threshold)


def anchors_of(height, width, stride, side):
    """One anchor for each place of a feature map, row by row."""
    y = (torch.arange(height, dtype=torch.float32) + 0.5) * stride
    x = (torch.arange(width, dtype=torch.float32) + 0.5) * stride
    middle = torch.stack([x[None, :].expand(height, -1), y[:, None].expand(-1, width)], -1)
    middle = middle.reshape(-1, 2)
    return torch.cat([middle - side / 2, middle + side / 2], 1)


class OneStage(nn.Module):
    """A RetinaNet in small: two levels of features, heads that they share, and post-processing for each image."""

    def __init__(self, classes=3, candidates=40):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, stride=4)
        self.down = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.head = nn.Conv2d(8, 8, 3, padding=1)
        self.classify, self.regress = nn.Conv2d(8, classes, 1), nn.Conv2d(8, 4, 1)
        self.classes, self.candidates = classes, candidates

    def forward(self, images):
        """Returns for each image its boxes, scores and classes."""
        fine = F.relu(self.stem(images))
        levels = [(fine, 4, 12.0), (F.relu(self.down(fine)), 8, 28.0)]
        logits, deltas, anchors = [], [], []
        for features, stride, side in levels:
            shared = F.relu(self.head(features))
            logits.append(self.classify(shared).flatten(2).transpose(1, 2))
            deltas.append(self.regress(shared).flatten(2).transpose(1, 2))
            anchors.append(anchors_of(*features.shape[-2:], stride, side))
        scores, deltas = torch.cat(logits, 1).sigmoid(), torch.cat(deltas, 1)
        anchors, results = torch.cat(anchors), []
        for image in range(images.shape[0]):
            best, position = scores[image].flatten().topk(self.candidates)
            row, label = position // self.classes, position % self.classes
            boxes = decode(anchors[row], deltas[image][row])
            height, width = images.shape[-2:]
            x, y = boxes[:, 0::2].clamp(min=0).clamp(max=width), boxes[:, 1::2].clamp(min=0)
            boxes = torch.stack([x, y.clamp(max=height)], 2).flatten(1)
            keep = suppress(boxes, best, label, 0.5)
            results.append((boxes[keep], best[keep], label[keep]))
        return results


class TwoStage(nn.Module):
    """A Faster R-CNN in small: proposals that do not overlap, RoIAlign, and boxes of each class."""

    def __init__(self, classes=3, proposals=30):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 4, stride=4)
        self.objectness, self.regress = nn.Conv2d(6, 1, 1), nn.Conv2d(6, 4, 1)
        self.hidden = nn.Linear(6 * 3 * 3, 16)
        self.score, self.refine = nn.Linear(16, classes + 1), nn.Linear(16, 4 * (classes + 1))
        self.classes, self.proposals = classes, proposals

    def propose(self, features, index):
        """The best boxes of one image that do not overlap much, with its number in front: ``(k, 5)``."""
        score = self.objectness(features)[index].flatten()
        deltas = self.regress(features)[index].flatten(1).T
        best, position = score.topk(self.proposals)
        anchors = anchors_of(*features.shape[-2:], 4, 14.0)
        boxes = decode(anchors[position], deltas[position])
        chosen = boxes[ops.nms(boxes, best, 0.7)]
        return F.pad(chosen, (1, 0), value=float(index))

    def forward(self, images):
        """Returns boxes, scores, classes and the number of the image of each, for all images."""
        features = F.relu(self.stem(images))
        rois = torch.cat([self.propose(features, index) for index in range(images.shape[0])])
        pooled = ops.roi_align(features, rois, 0.25, 3, 3, 2, False)
        hidden = F.relu(self.hidden(pooled.flatten(1)))
        scores = self.score(hidden).softmax(1)[:, 1:]
        deltas = self.refine(hidden).reshape(-1, self.classes + 1, 4)[:, 1:]
        anchors = rois[:, None, 1:].expand(-1, self.classes, -1)
        boxes = decode(anchors.reshape(-1, 4), deltas.reshape(-1, 4))
        label = torch.arange(self.classes).expand(rois.shape[0], -1).reshape(-1)
        image = rois[:, :1].expand(-1, self.classes).reshape(-1)
        return boxes, scores.reshape(-1), label, image


class Final(nn.Module):
    """What comes behind the second stage: the boxes of all classes and images that stay."""

    def forward(self, boxes, scores, label, image):
        """Returns the chosen boxes, best first."""
        keep = suppress(boxes, scores, label + 10 * image.to(torch.int64), 0.5)
        return boxes[keep], scores[keep], label[keep], image[keep]


def assert_all_near(mine, theirs):
    """Checks all tensors of two results."""
    for one, other in zip(
        torch.utils._pytree.tree_leaves(mine), torch.utils._pytree.tree_leaves(theirs), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.fixture
def images():
    """Two images."""
    torch.manual_seed(3)
    return torch.randn(2, 3, 48, 64)


def test_a_one_stage_detector_compiles_whole(images, version):
    """Heads, the choice of candidates, boxes and NMS of two images: one engine."""
    model = OneStage().eval().requires_grad_(False)

    compiled = torchtrt.compile(model, (images,), require_full_compilation=True)

    assert_all_near(compiled(images), model(images))
    assert 0 < len(model(images)[0][0]) < 40
    assert 1 == len(compiled.report.blocks)


def test_a_one_stage_detector_takes_images_of_any_size(images, version):
    """So that the number of anchors varies."""
    model = OneStage().eval().requires_grad_(False)
    height, width = (torch.export.Dim(name, min=32, max=128) for name in ("height", "width"))
    shapes = ({2: height, 3: width},)
    program = torch.export.export(model, (images,), dynamic_shapes=shapes)

    compiled = torchtrt.compile(program, require_full_compilation=True)

    for size in ((48, 64), (96, 40)):
        others = torch.randn(2, 3, *size)
        assert_all_near(compiled(others), model(others))


@pytest.mark.parametrize("tensorrt", ["reference@10.16.1", "reference@11.4.0"])
def test_a_two_stage_detector_compiles_whole(images, tensorrt):
    """The number of proposals depends on the images, and RoIAlign and the heads go on with it."""
    model = TwoStage().eval().requires_grad_(False)

    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(model, (images,), require_full_compilation=True)

        assert_all_near(compiled(images), model(images))
        assert 6 <= len(model(images)[0]) < 2 * 30 * 3
        others = torch.randn(2, 3, 48, 64) * 3
        assert_all_near(compiled(others), model(others))


def test_a_two_stage_detector_is_right_where_tensorrt_does_not_tell_sizes_from_data(images):
    """On TensorRT 8.6 the second stage stays in PyTorch, and the report has the reason."""
    model = TwoStage().eval().requires_grad_(False)

    with torchtrt.use_tensorrt("reference@8.6.0"):
        compiled = torchtrt.compile(model, (images,), min_block_size=1)

        assert_all_near(compiled(images), model(images))
        reasons = "; ".join(row.reason for row in compiled.report.in_torch)
        assert "does not return a size that depends on data" in reasons


def test_what_comes_behind_a_two_stage_detector_compiles_whole(images, version):
    """With any number of boxes."""
    model, final = TwoStage().eval().requires_grad_(False), Final().eval()
    inputs = tuple(feature.clone() for feature in model(images))
    count = torch.export.Dim("count", min=1, max=400)
    shapes = tuple({0: count} for _ in inputs)
    program = torch.export.export(final, inputs, dynamic_shapes=shapes)

    compiled = torchtrt.compile(program, require_full_compilation=True)

    for size in (len(inputs[0]), 7, 1):
        some = tuple(input_[:size].clone() for input_ in inputs)
        assert_all_near(compiled(*some), final(*some))
