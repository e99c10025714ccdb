"""Windows that slide over space: what convolution and pooling have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from torchtrt_reference.semantics.operation import Call, Operation, frozen
from torchtrt_reference.semantics.tensor_facts import RefusedError

Tensor = torch.Tensor
# What TensorRT 8 called the attributes of two dimensions.
OLD_NAMES = {
    "kernel_size": "kernel_size_nd",
    "stride": "stride_nd",
    "dilation": "dilation_nd",
    "padding": "padding_nd",
    "window_size": "window_size_nd",
}
_PADDINGS = ("pre_padding", "post_padding", "padding_nd")
WINDOW_DEFAULTS: Mapping[str, Any] = frozen(
    {"stride_nd": None, **dict.fromkeys(_PADDINGS), "padding_mode": "EXPLICIT_ROUND_DOWN"}
)


class Windowed(Operation):
    """The common base of convolution and pooling: their spatial attributes.

    Attributes:
        window: The attribute that holds the window's size.
    """

    window: ClassVar[str]
    aliases = OLD_NAMES

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """``padding_nd`` sets both sides. Strides and dilations are at least 1, padding at least 0."""
        minimum = 0 if attribute in _PADDINGS else 1
        is_spatial = attribute in (*_PADDINGS, "stride_nd", "dilation_nd")
        if is_spatial and any(size < minimum for size in value):
            message = f"every {attribute} must be at least {minimum}, not {tuple(value)}"
            raise RefusedError(message)
        layer._attributes[attribute] = value
        if attribute == "padding_nd":
            layer._attributes["pre_padding"] = layer._attributes["post_padding"] = value

    def read(self, layer: Any, attribute: str) -> Any:
        """Unset attributes of space read as ones, or zeros for padding."""
        value = layer._attributes[attribute]
        if value is None and (attribute in _PADDINGS or attribute in ("stride_nd", "dilation_nd")):
            return (0 if attribute in _PADDINGS else 1,) * len(layer._attributes[self.window])
        return value


def spatial(call: Call, name: str, count: int, default: int) -> tuple[int, ...]:
    """Returns a spatial attribute, all ``default`` when it is unset, checked for its length."""
    value = call[name]
    values = (default,) * count if value is None else tuple(value)
    call.require(len(values) == count, f"{name} must have {count} elements, not {len(values)}")
    return values


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
    call: Call,
    shape: Sequence[int],
    window: Sequence[int],
    stride: Sequence[int],
    drops_last: bool = False,
) -> tuple[int, ...]:
    """Returns the output's spatial dimensions for windows that move over the padded input.

    Args:
        call: The layer, with its padding.
        shape: The input's spatial dimensions; -1 where unknown.
        window: The size of a window.
        stride: How far windows are apart.
        drops_last: Whether Caffe's modes drop a last window that starts in the padding (pooling does).
    """
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
        if drops_last and mode.startswith("CAFFE") and (steps - 1) * step >= length + before:
            steps -= 1
        result.append(steps)
    return tuple(result)


def padded(x: Tensor, before: Sequence[int], after: Sequence[int], value: float) -> Tensor:
    """Returns a tensor with its spatial dimensions padded, or cropped where the amount is negative."""
    amounts: list[int] = []
    for pre, post in zip(reversed(before), reversed(after), strict=True):
        amounts += [pre, post]
    return torch.nn.functional.pad(x, amounts, value=value) if any(amounts) else x
