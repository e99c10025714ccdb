"""Windows that slide over space: what convolution and pooling have in common."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchtrt.reference.operation import Call

Tensor = torch.Tensor
# What TensorRT 8 called the attributes of two dimensions.
OLD_NAMES = {
    "kernel_size": "kernel_size_nd",
    "stride": "stride_nd",
    "dilation": "dilation_nd",
    "padding": "padding_nd",
    "window_size": "window_size_nd",
}


def spatial(call: Call, name: str, count: int, default: int) -> tuple[int, ...]:
    """Returns a spatial attribute, all ``default`` when it is unset, checked for its length."""
    value = call[name]
    given = (default,) * count if value is None else tuple(value)
    call.require(len(given) == count, f"{name} must have {count} elements, not {len(given)}")
    return given


def paddings(
    call: Call, shape: Sequence[int], window: Sequence[int], stride: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the padding before and after each spatial dimension, whatever the padding mode."""
    count = len(window)
    pre, post = spatial(call, "pre_padding", count, 0), spatial(call, "post_padding", count, 0)
    mode = call["padding_mode"]
    if not mode.startswith("SAME"):
        return pre, post
    before, after = [], []
    for length, reach, step in zip(shape, window, stride, strict=True):
        total = (length - 1) // step * step + reach - length
        half = total // 2
        before.append(half if mode == "SAME_UPPER" else total - half)
        after.append(total - half if mode == "SAME_UPPER" else half)
    return tuple(before), tuple(after)


def window_counts(
    call: Call, shape: Sequence[int], window: Sequence[int], stride: Sequence[int]
) -> tuple[int, ...]:
    """Returns the output's spatial dimensions for windows that move over the padded input."""
    mode = call["padding_mode"]
    count = len(window)
    pre, post = spatial(call, "pre_padding", count, 0), spatial(call, "post_padding", count, 0)
    result = []
    for length, reach, step, before, after in zip(shape, window, stride, pre, post, strict=True):
        if length == -1:
            result.append(-1)
            continue
        if mode.startswith("SAME"):
            result.append(-(-length // step))
            continue
        room = length + before + after - reach
        call.require(
            room >= 0,
            f"the window of {reach} is larger than the padded dimension {length + before + after}",
        )
        steps = -(-room // step) + 1 if mode.endswith("ROUND_UP") else room // step + 1
        if mode.startswith("CAFFE") and (steps - 1) * step >= length + before:
            steps -= 1
        result.append(steps)
    return tuple(result)


def padded(x: Tensor, before: Sequence[int], after: Sequence[int], value: float) -> Tensor:
    """Returns a tensor with its spatial dimensions padded, or cropped where the amount is negative."""
    amounts: list[int] = []
    for pre, post in zip(reversed(before), reversed(after), strict=True):
        amounts += [pre, post]
    return torch.nn.functional.pad(x, amounts, value=value) if any(amounts) else x
