"""Pooling: the maximum or the average of windows."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchtrt_reference.semantics.operation import Call, Function, frozen
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts
from torchtrt_reference.semantics.windows import (
    WINDOW_DEFAULTS,
    Windowed,
    padded,
    paddings,
    spatial,
    window_counts,
)

Tensor = torch.Tensor


class Pooling(Windowed):
    """The maximum, the average or a blend of both over windows."""

    name = "pooling"
    methods = frozen({"add_pooling_nd": {}, "add_pooling": {}})
    renames = frozen({"window_size": "window_size_nd"})
    window = "window_size_nd"
    defaults = frozen(
        {
            **WINDOW_DEFAULTS,
            "type": "MAX",
            "window_size_nd": (),
            "blend_factor": 0.0,
            "average_count_excludes_padding": True,
        }
    )

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """As for all windows; a blend factor is in [0, 1]."""
        if attribute == "blend_factor" and not 0.0 <= value <= 1.0:
            message = f"blend_factor must be in [0, 1], not {value}"
            raise RefusedError(message)
        super().write(layer, attribute, value)

    def admit(self, call: Call) -> None:
        """Two or three spatial dimensions."""
        count = len(call["window_size_nd"])
        call.require(
            count in (2, 3),
            f"the window must have 2 or 3 dimensions, not {count}: unsqueeze a 1-D one",
        )
        call.require(
            all(size >= 1 for size in call["window_size_nd"]), "window dimensions must be positive"
        )

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Floating point, rank 4 at least."""
        self.admit(call)
        dtype = call.accept(
            0,
            frozenset({"FLOAT", "HALF"}) | ({"BF16"} if call.strong else set()),
            "the input of pooling",
        )
        window = call["window_size_nd"]
        rank = call.facts(0).rank
        call.require(
            rank >= len(window) + 2,
            f"the input of pooling must have at least rank {len(window) + 2}, not {rank}",
        )
        stride = spatial(call, "stride_nd", len(window), 1)
        shape = call.shape()
        lengths = window_counts(call, shape[-len(window) :], window, stride, drops_last=True)
        if call["type"] != "MAX" and call["average_count_excludes_padding"]:
            before, after = (
                spatial(call, name, len(window), 0) for name in ("pre_padding", "post_padding")
            )
            call.require(
                call["padding_mode"].startswith("SAME")
                or all(max(pads) < size for *pads, size in zip(before, after, window, strict=True)),
                "the padding size is larger than or equal to the window for exclusive-counting pooling",
            )
        return (TensorFacts(call.declared(dtype), shape[: -len(window)] + lengths),)

    def bind(self, call: Call) -> Function:
        """``max_pool``, and ``avg_pool`` with the divisor TensorRT uses."""
        window = tuple(call["window_size_nd"])
        count = len(window)
        shape = call.shape()[-count:]
        stride = spatial(call, "stride_nd", count, 1)
        before, _ = paddings(call, shape, window, stride)
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
    """Returns maximum pooling with PyTorch's function, padded first where the two round differently."""
    pool = torch.nn.functional.max_pool2d if len(window) == 2 else torch.nn.functional.max_pool3d
    fits = all(
        0 <= pre <= size // 2 and post <= pre
        for pre, post, size in zip(before, after, window, strict=True)
    )
    # PyTorch rounds down, so with equal padding on both sides the windows are the same ones.
    is_plain = fits and all(
        pre - post < step for pre, post, step in zip(before, after, stride, strict=True)
    )

    def pooled(x: Tensor) -> Tensor:
        if is_plain:
            return pool(x, window, stride, before)
        return pool(padded(x, before, after, torch.finfo(x.dtype).min), window, stride)

    def maximum(x: Tensor) -> Tensor:
        result = pooled(x)
        if result.numel() and not bool(result.amin() >= torch.finfo(x.dtype).min):
            # TensorRT starts from the lowest finite number and ignores NaN; PyTorch from -inf, and propagates it.
            lowest = torch.finfo(x.dtype).min
            return pooled(torch.where(x > lowest, x, lowest))
        return result

    return maximum


def _average(
    window: tuple[int, ...],
    stride: tuple[int, ...],
    before: tuple[int, ...],
    needed: tuple[int, ...],
    excludes_padding: bool,
    shape: tuple[int, ...],
) -> Function:
    """Returns average pooling with PyTorch's function, with the padding counted as TensorRT counts it."""
    pool = torch.nn.functional.avg_pool2d if len(window) == 2 else _average_volumes
    area = math.prod(window)
    if not any(before) and max(needed) <= 0:
        return lambda x: pool(x, window, stride)
    if not excludes_padding:
        # Seen on TensorRT 8.6: every window counts in full, also where it reaches beyond the declared padding.
        return lambda x: pool(padded(x, before, needed, 0.0), window, stride)
    share = pool(padded(torch.ones((1, 1, *shape)), before, needed, 0.0), window, stride) * area

    def average(x: Tensor) -> Tensor:
        total = pool(padded(x, before, needed, 0.0), window, stride) * area
        return (total / share.to(total.device)).to(x.dtype)

    return average


def _average_volumes(x: Tensor, window: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    # PyTorch has none for half precision on a CPU.
    return torch.nn.functional.avg_pool3d(x.float(), window, stride).to(x.dtype)


OPERATIONS = (Pooling(),)
