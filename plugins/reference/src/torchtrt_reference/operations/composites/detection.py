"""Boxes that overlap less than a threshold: non-maximum suppression."""

from __future__ import annotations

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.semantics.operation import INTEGERS, Call, Function, Operation, frozen
from torchtrt_reference.semantics.tensor_facts import TensorFacts

Tensor = torch.Tensor
_BOX_LIMIT = 5000


class NMS(Operation):
    """Non-maximum suppression per batch element and class."""

    name = "nms"
    methods = frozen({"add_nms": {}})
    defaults = frozen(
        {
            "bounding_box_format": "CORNER_PAIRS",
            "topk_box_limit": _BOX_LIMIT,
            "indices_type": "INT32",
        }
    )
    maximum_inputs = 5
    outputs = 2

    def admit(self, call: Call) -> None:
        """Boxes of rank 3 or 4."""
        call.admit_rank(0, range(3, 5), "boxes must be [B, N, 4] or [B, N, C, 4]")

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Boxes ``[B, N, 4]`` or ``[B, N, C, 4]``, scores ``[B, N, C]``; the number of results depends on the data."""
        for index in (0, 1):
            call.accept(index, frozenset({"FLOAT", "HALF"}), f"input {index} of nms")
        call.same_type(0, 1)
        boxes, scores = call.shape(0), call.shape(1)
        call.require(
            len(boxes) in (3, 4) and boxes[-1] == 4, "boxes must be [B, N, 4] or [B, N, C, 4]"
        )
        call.require(len(scores) == 3, "scores must be [B, N, C]")
        for ours, theirs in zip(boxes[:2], scores[:2], strict=True):
            call.require(
                -1 in (ours, theirs) or ours == theirs,
                "boxes and scores must agree in batch and boxes",
            )
        call.scalar(2, frozenset({"INT32"}), "max_output_boxes_per_class")
        for index, what in ((3, "the IoU threshold"), (4, "the score threshold")):
            if call.optional(index) is not None:
                call.scalar(index, frozenset({"FLOAT"}), what)
        call.require(
            0 < call["topk_box_limit"] <= _BOX_LIMIT, f"topk_box_limit must be in [1, {_BOX_LIMIT}]"
        )
        call.require(call["indices_type"] in INTEGERS, "indices_type must be Int32 or Int64")
        return (TensorFacts(call["indices_type"], (-1, 3)), TensorFacts("INT32", ()))

    def infer_maximum(self, call: Call) -> tuple[TensorFacts, ...]:
        """As many boxes of each class as there are, or as the limit allows if that is a constant."""
        scores, maximum = (
            call.facts(1),
            call.scalar(2, frozenset({"INT32"}), "max_output_boxes_per_class"),
        )
        rows = -1
        if scores.is_static:
            batch, boxes, classes = scores.shape
            rows = batch * classes * (boxes if maximum is None else min(boxes, max(0, maximum)))
        return (TensorFacts(call["indices_type"], (rows, 3)), TensorFacts("INT32", ()))

    def bind(self, call: Call) -> Function:
        """Greedy suppression, the highest score first; results are sorted by batch, then score."""
        centered, limit = call["bounding_box_format"] == "CENTER_SIZES", int(call["topk_box_limit"])
        target = dtypes.TORCH[call["indices_type"]]

        def suppress(
            boxes: Tensor,
            scores: Tensor,
            maximum_boxes: Tensor,
            iou_threshold: Tensor | None = None,
            score_threshold: Tensor | None = None,
        ) -> tuple[Tensor, Tensor]:
            maximum_overlap = 0.0 if iou_threshold is None else float(iou_threshold)
            minimum_score = 0.0 if score_threshold is None else float(score_threshold)
            selected: list[
                tuple[int, float, int, int]
            ] = []  # of equal scores the lower box comes first
            for batch in range(scores.shape[0]):
                for kind in range(scores.shape[2]):
                    of_class = boxes[batch] if boxes.dim() == 3 else boxes[batch, :, kind]
                    kept = _greedy(
                        _corners(of_class.float(), centered),
                        scores[batch, :, kind].float(),
                        int(maximum_boxes),
                        maximum_overlap,
                        minimum_score,
                        limit,
                    )
                    selected += [
                        (batch, -float(scores[batch, index, kind]), index, kind) for index in kept
                    ]
            selected.sort()
            rows = [[batch, kind, index] for batch, _, index, kind in selected]
            indices = torch.tensor(rows, dtype=target, device=boxes.device).reshape(-1, 3)
            return indices, torch.tensor(len(rows), dtype=torch.int32, device=boxes.device)

        return suppress


def _corners(boxes: Tensor, centered: bool) -> Tensor:
    if centered:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        return torch.cat([middle - half, middle + half], 1)
    return torch.cat(
        [torch.minimum(boxes[:, :2], boxes[:, 2:]), torch.maximum(boxes[:, :2], boxes[:, 2:])], 1
    )


def _greedy(
    boxes: Tensor,
    scores: Tensor,
    maximum_boxes: int,
    maximum_overlap: float,
    minimum_score: float,
    limit: int,
) -> list[int]:
    """Returns the indices of the boxes that stay, the best first."""
    order = torch.sort(scores, descending=True, stable=True).indices[:limit]
    order = order[scores[order] > minimum_score]
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    kept: list[int] = []
    while order.numel() and len(kept) < maximum_boxes:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        low = torch.maximum(boxes[best, :2], boxes[order, :2])
        high = torch.minimum(boxes[best, 2:], boxes[order, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        order = order[shared <= maximum_overlap * (areas[best] + areas[order] - shared)]
    return kept


OPERATIONS = (NMS(),)
