"""Pooling: the maximum or the average of windows."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchtrt.reference.facts import Fact
from torchtrt.reference.layers.windows import OLD_NAMES, padded, paddings, spatial, window_counts
from torchtrt.reference.operation import Call, Function, Operation, frozen

Tensor = torch.Tensor


class Pooling(Operation):
    """The maximum, the average or a blend of both over windows."""

    name = "pooling"
    methods = frozen({"add_pooling_nd": {}, "add_pooling": {}})
    renames = frozen({"window_size": "window_size_nd"})
    aliases = OLD_NAMES
    defaults = frozen(
        {
            "type": "MAX",
            "window_size_nd": (),
            "stride_nd": None,
            "pre_padding": None,
            "post_padding": None,
            "padding_nd": None,
            "padding_mode": "EXPLICIT_ROUND_DOWN",
            "blend_factor": 0.0,
            "average_count_excludes_padding": True,
        }
    )

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """``padding_nd`` sets both sides."""
        layer._attributes[attribute] = value
        if attribute == "padding_nd":
            layer._attributes["pre_padding"] = layer._attributes["post_padding"] = value

    def read(self, layer: Any, attribute: str) -> Any:
        """Unset spatial attributes read as ones, or zeros for padding."""
        value = layer._attributes[attribute]
        if value is None:
            return (0 if "padding" in attribute else 1,) * len(layer._attributes["window_size_nd"])
        return value

    def admit(self, call: Call) -> None:
        """Two or three spatial dimensions."""
        count = len(call["window_size_nd"])
        call.require(
            count in (2, 3),
            f"the window must have 2 or 3 dimensions, not {count}: unsqueeze a 1-D one",
        )

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """Floating point, rank 4 at least."""
        self.admit(call)
        dtype = call.accept(
            0,
            frozenset({"FLOAT", "HALF"}) | ({"BF16"} if call.strong else set()),
            "the input of pooling",
        )
        window = call["window_size_nd"]
        rank = call.fact(0).rank
        call.require(
            rank >= len(window) + 2,
            f"the input of pooling must have at least rank {len(window) + 2}, not {rank}",
        )
        stride = spatial(call, "stride_nd", len(window), 1)
        call.require(min(stride) >= 1 and min(window) >= 1, "window and stride must be positive")
        call.require(0.0 <= call["blend_factor"] <= 1.0, "blend_factor must be in [0, 1]")
        shape = call.shape()
        lengths = window_counts(call, shape[-len(window) :], window, stride)
        return (Fact(call.declared(dtype), shape[: -len(window)] + lengths),)

    def bind(self, call: Call) -> Function:
        """``max_pool``, and ``avg_pool`` with the divisor TensorRT uses."""
        window = tuple(call["window_size_nd"])
        count = len(window)
        shape = call.shape()[-count:]
        stride = spatial(call, "stride_nd", count, 1)
        before, after = paddings(call, shape, window, stride)
        lengths = self.infer(call)[0].shape[-count:]
        # The last window may reach beyond the padding (rounding up), or stop short of it.
        needed = tuple(
            (steps - 1) * step + size - length - pre
            for steps, step, size, length, pre in zip(
                lengths, stride, window, shape, before, strict=True
            )
        )
        kind, blend = call["type"], float(call["blend_factor"])
        maximum = _maximum(window, stride, before, needed)
        average = _average(
            window,
            stride,
            before,
            after,
            needed,
            bool(call["average_count_excludes_padding"]),
            shape,
        )
        if kind == "MAX":
            pool = maximum
        elif kind == "AVERAGE":
            pool = average
        else:
            pool = lambda x: (1 - blend) * maximum(x) + blend * average(x)  # noqa: E731
        if len(call.shape()) == count + 2:
            return pool
        return lambda x: pool(x.flatten(0, -count - 2)).reshape(*x.shape[:-count], *lengths)


def _maximum(
    window: tuple[int, ...],
    stride: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> Function:
    pool = torch.nn.functional.max_pool2d if len(window) == 2 else torch.nn.functional.max_pool3d
    fits = all(
        0 <= pre <= size // 2 and post <= pre
        for pre, post, size in zip(before, after, window, strict=True)
    )
    # PyTorch rounds down, so with equal padding on both sides the windows are the same ones.
    if fits and all(
        pre - post < step for pre, post, step in zip(before, after, stride, strict=True)
    ):
        return lambda x: pool(x, window, stride, before)
    return lambda x: pool(padded(x, before, after, -math.inf), window, stride)


def _average(
    window: tuple[int, ...],
    stride: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
    needed: tuple[int, ...],
    excludes_padding: bool,
    shape: tuple[int, ...],
) -> Function:
    pool = torch.nn.functional.avg_pool2d if len(window) == 2 else torch.nn.functional.avg_pool3d
    area = math.prod(window)
    if not any(before) and max(needed) <= 0:
        return lambda x: pool(x, window, stride)
    # The divisor is the part of the window that counts: the input alone, or the input with its declared padding.
    counted = torch.ones((1, 1, *shape))
    if not excludes_padding:
        counted = padded(counted, before, tuple(max(post, 0) for post in after), 1.0)
        after_count = tuple(need - max(post, 0) for need, post in zip(needed, after, strict=True))
        counted = padded(counted, (0,) * len(window), after_count, 0.0)
    else:
        counted = padded(counted, before, needed, 0.0)
    share = pool(counted, window, stride) * area

    def average(x: Tensor) -> Tensor:
        total = pool(padded(x, before, needed, 0.0), window, stride) * area
        return (total / share.to(total.device)).to(x.dtype)

    return average


OPERATIONS = (Pooling(),)
