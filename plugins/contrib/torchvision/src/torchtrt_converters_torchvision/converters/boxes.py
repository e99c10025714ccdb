"""Non-maximum suppression: boxes that overlap a better one too much go."""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, add, arguments_of, value_of
from torchtrt.tensorrt import Capability, supports, trt
from torchtrt_blocks import creation, indexing, ranking, shape, sizes, slicing, types
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_torchvision import pack

LIMIT = 8192
"""The maximum number of boxes: each is compared with each."""


def too_many_boxes(node: Node) -> str | None:
    """Rejects boxes whose number is not bounded, or too large to compare each with each."""
    (count, *_) = value_of(arguments_of(node).dets).shape
    most = sizes.maximum(count)
    if most is None:
        return "the number of boxes has no upper bound, and each is compared with each"
    if most > LIMIT:
        return f"up to {most} boxes: each is compared with each, and the limit is {LIMIT}"
    return None


def unsorted_scores(node: Node) -> str | None:
    """Rejects scores that cannot be sorted."""
    scores = value_of(arguments_of(node).scores)
    if not scores.dtype.is_floating_point:
        return "the scores are no floating-point numbers"
    if ranking.sorts(scores.dtype, tuple(scores.shape), 0):
        return None
    return "the scores are too many to be sorted"


def size_from_data(node: Node) -> str | None:
    """Rejects a number of boxes that depends on data where TensorRT does not return it."""
    if supports(Capability.SIZES_FROM_DATA):
        return None
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols  # slow to import

    if free_unbacked_symbols(value_of(arguments_of(node).dets).shape):
        return "this TensorRT does not return a size that depends on data"
    return None


@pack.converter(
    "torchvision::nms",
    requires=Capability.DATA_DEPENDENT_SIZES,
    reject_if=(size_from_data, too_many_boxes, unsorted_scores),
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def nms(
    ctx: ConversionContext, dets: NetworkTensor, scores: NetworkTensor, iou_threshold: float
) -> NetworkTensor:
    """The indices of the boxes that stay, best first; of boxes with equal scores the first is better.

    TensorRT's own NMS layer guarantees no order of equal scores, takes corners in any order and limits
    the boxes that it looks at, so that it is not used.
    """
    dets = types.cast(ctx, dets, torch.float32)
    _, order = ranking.sort(ctx, scores, 0, True)
    overlaps = _overlaps(ctx, indexing.gather(ctx, dets, order, 0), iou_threshold)
    kept = _greedy(ctx, overlaps)
    positions = ctx.net.add_non_zero(kept).get_output(0)
    indices = indexing.gather(ctx, order, shape.squeeze(ctx, positions, [0]), 0)
    return ctx.tensor(indices, torch.int64)


def _overlaps(ctx: ConversionContext, boxes: NetworkTensor, threshold: float) -> NetworkTensor:
    """Returns whether a box (row) overlaps one behind it (column) by more than the threshold: bool, ``(n, n)``."""
    corners = (Formula(ctx, slicing.select(ctx, boxes, 1, column)) for column in range(4))
    left, top, right, bottom = corners

    def shared_extent(low: Formula, high: Formula) -> Formula:
        first = low.unsqueeze(1).maximum(low.unsqueeze(0))
        last = high.unsqueeze(1).minimum(high.unsqueeze(0))
        return (last - first).maximum(0.0)

    area = (right - left) * (bottom - top)
    shared = shared_extent(left, right) * shared_extent(top, bottom)
    union = area.unsqueeze(1) + area.unsqueeze(0) - shared
    beyond = shared / union > _float32_at_most(threshold)
    count = sizes.size_of(ctx, boxes, 0)
    return (beyond & creation.triangle_mask(ctx, count, count, 1, False)).tensor


def _float32_at_most(number: float) -> float:
    """Returns the greatest float32 up to a number: float32 values are above one when they are above the other."""
    near = torch.tensor(number, dtype=torch.float32)
    if float(near) > number:
        near = torch.nextafter(near, torch.tensor(-math.inf))
    return float(near)


def _greedy(ctx: ConversionContext, overlaps: NetworkTensor) -> NetworkTensor:
    """Returns which boxes stay: those that overlap none before them that stays. Bool, ``(n,)``.

    All stay at first; each round decides again. A box that depends on ``k`` boxes before it is right after
    ``k + 1`` rounds, and when a round changes nothing all is right.
    """
    count = sizes.size_of(ctx, overlaps, 0)
    suppress = types.cast(ctx, overlaps, torch.float32)
    loop = ctx.net.add_loop()
    now = loop.add_recurrence(creation.full(ctx, 1.0, [1, count], torch.float32))
    before = loop.add_recurrence(creation.full(ctx, 0.0, [1, count], torch.float32))
    staying = now.get_output(0)
    changed = (Formula(ctx, staying) != before.get_output(0)).cast(torch.float32)
    changes = changed.sum([0, 1], keep=False)  # 0 of no boxes
    loop.add_trip_limit((changes > 0.0).tensor, trt.TripLimit.WHILE)
    none = trt.MatrixOperation.NONE
    hits = Formula(ctx, add(ctx, "matrix_multiply", staying, none, suppress, none))
    now.set_input(1, (hits == 0.0).cast(torch.float32).tensor)
    before.set_input(1, add(ctx, "identity", staying))
    last = loop.add_loop_output(staying, trt.LoopOutput.LAST_VALUE, 0).get_output(0)
    return types.cast(ctx, shape.squeeze(ctx, last, [0]), torch.bool)
