"""Sliding windows over space: Convolution, Deconvolution, Pooling; and per-channel Scale."""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchtrt.reference.facts import Fact
from torchtrt.reference.operation import FLOATS, Call, Function, Operation, frozen

Tensor = torch.Tensor
_OLD_NAMES = {
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


def _pads(
    call: Call, shape: Sequence[int], window: Sequence[int], stride: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after each spatial dimension, whatever the padding mode."""
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


def _lengths(
    call: Call, shape: Sequence[int], window: Sequence[int], stride: Sequence[int]
) -> tuple[int, ...]:
    """The output's spatial dimensions for windows that move over the padded input."""
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


def _sliced_pad(x: Tensor, before: Sequence[int], after: Sequence[int], value: float) -> Tensor:
    amounts: list[int] = []
    for pre, post in zip(reversed(before), reversed(after), strict=True):
        amounts += [pre, post]
    return torch.nn.functional.pad(x, amounts, value=value) if any(amounts) else x


class _Filter(Operation):
    """What convolution and deconvolution share: weights, groups, strides."""

    renames = frozen({"kernel_shape": "kernel_size_nd"})
    aliases = _OLD_NAMES
    most_inputs = 3
    defaults = frozen(
        {
            "num_output_maps": 1,
            "kernel_size_nd": (),
            "kernel": None,
            "bias": None,
            "stride_nd": None,
            "dilation_nd": None,
            "pre_padding": None,
            "post_padding": None,
            "padding_nd": None,
            "padding_mode": "EXPLICIT_ROUND_DOWN",
            "num_groups": 1,
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
        if value is None and attribute not in ("kernel", "bias"):
            return (0 if "padding" in attribute else 1,) * len(layer._attributes["kernel_size_nd"])
        return value

    def admit(self, call: Call) -> None:
        """Two or three spatial dimensions."""
        count = len(call["kernel_size_nd"])
        call.require(
            count in (2, 3),
            f"the kernel must have 2 or 3 spatial dimensions, not {count}: unsqueeze a 1-D one",
        )
        call.require(
            all(size >= 1 for size in call["kernel_size_nd"]), "kernel dimensions must be positive"
        )
        call.require(call["num_output_maps"] >= 1, "num_output_maps must be positive")

    def _kernel_shape(self, call: Call, channels: int) -> tuple[int, ...]:
        raise NotImplementedError

    def _check(self, call: Call) -> tuple[str, tuple[int, ...]]:
        """Checks types, rank, weights and groups; returns the type and the spatial dimensions."""
        self.admit(call)
        dtype = call.accept(0, FLOATS | {"INT8"}, f"the input of {self.name}")
        shape, size = call.shape(), call["kernel_size_nd"]
        call.require(
            len(shape) == len(size) + 2,
            f"the input of {self.name} must have rank {len(size) + 2}, not {len(shape)}",
        )
        channels, maps, groups = shape[1], int(call["num_output_maps"]), int(call["num_groups"])
        call.require(channels != -1, "the channel dimension must be a build-time constant")
        call.require(
            groups >= 1 and channels % groups == 0 and maps % groups == 0,
            f"{groups} groups do not divide {channels} input and {maps} output channels",
        )
        for name in ("stride_nd", "dilation_nd"):
            call.require(
                all(step >= 1 for step in spatial(call, name, len(size), 1)),
                f"{name} must be positive",
            )
        expected = self._kernel_shape(call, channels)
        self._check_operand(call, 1, "kernel", expected)
        self._check_operand(call, 2, "bias", (maps,))
        if call.optional(1) is not None:
            dtype = call.same_type(0, 1, what="input and kernel")
        return call.declared(dtype), shape[2:]

    @staticmethod
    def _check_operand(call: Call, index: int, name: str, expected: tuple[int, ...]) -> None:
        fact, weights = call.optional(index), call.attributes.get(name)
        if fact is not None:
            call.require(
                len(fact.shape) == len(expected)
                and all(
                    -1 in pair or pair[0] == pair[1]
                    for pair in zip(fact.shape, expected, strict=True)
                ),
                f"the {name} must have the shape {expected}, not {fact.shape}",
            )
            call.require(
                weights is None or weights.size == 0,
                f"the {name} is given both as weights and as input {index}",
            )
            return
        count = 0 if weights is None else weights.size
        if name == "bias" and count == 0:
            return
        call.require(
            count == math.prod(expected),
            f"{name} weights must have {math.prod(expected)} elements (shape {expected}), not {count}",
        )
        assert weights is not None
        given = weights.dtype.name
        matches = given == call.fact(0).dtype or call.fact(0).dtype == "INT8"
        call.require(
            matches or (not call.strong and given in ("FLOAT", "HALF")),
            f"{name} weights of type {given} do not match the input's type {call.fact(0).dtype}",
        )

    def weights(self, attributes: Mapping[str, Any]) -> Mapping[int, tuple[str, tuple[int, ...]]]:
        """Kernel and bias become inputs 1 and 2 of the built program."""
        found: dict[int, tuple[str, tuple[int, ...]]] = {}
        size = tuple(attributes["kernel_size_nd"])
        if attributes["kernel"] is not None and attributes["kernel"].size:
            maps, groups = int(attributes["num_output_maps"]), int(attributes["num_groups"])
            found[1] = ("kernel", self._stored_shape(attributes["kernel"].size, maps, groups, size))
        if attributes["bias"] is not None and attributes["bias"].size:
            found[2] = ("bias", (int(attributes["num_output_maps"]),))
        return found

    def _stored_shape(
        self, count: int, maps: int, groups: int, size: tuple[int, ...]
    ) -> tuple[int, ...]:
        raise NotImplementedError


class Convolution(_Filter):
    """Cross-correlation with zero padding."""

    name = "convolution"
    methods = frozen({"add_convolution_nd": {}, "add_convolution": {}})

    def _kernel_shape(self, call: Call, channels: int) -> tuple[int, ...]:
        return (
            int(call["num_output_maps"]),
            channels // int(call["num_groups"]),
            *call["kernel_size_nd"],
        )

    def _stored_shape(
        self, count: int, maps: int, groups: int, size: tuple[int, ...]
    ) -> tuple[int, ...]:
        return (maps, count // (maps * math.prod(size)), *size)

    def _reach(self, call: Call) -> tuple[int, ...]:
        size = call["kernel_size_nd"]
        dilation = spatial(call, "dilation_nd", len(size), 1)
        return tuple(1 + step * (length - 1) for length, step in zip(size, dilation, strict=True))

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """Rank 4 or 5, static channels, as many weights as the shape needs."""
        dtype, shape = self._check(call)
        stride = spatial(call, "stride_nd", len(shape), 1)
        lengths = _lengths(call, shape, self._reach(call), stride)
        return (Fact(dtype, (call.shape()[0], int(call["num_output_maps"]), *lengths)),)

    def bind(self, call: Call) -> Function:
        """``conv2d`` or ``conv3d``; uneven padding is applied first."""
        shape = call.shape()[2:]
        count = len(shape)
        stride = spatial(call, "stride_nd", count, 1)
        dilation = spatial(call, "dilation_nd", count, 1)
        groups = int(call["num_groups"])
        reach = self._reach(call)
        before, after = _pads(call, shape, reach, stride)
        if call["padding_mode"].endswith("ROUND_UP"):
            lengths = _lengths(call, shape, reach, stride)
            after = tuple(
                (steps - 1) * step + window - length - pre
                for steps, step, window, length, pre in zip(
                    lengths, stride, reach, shape, before, strict=True
                )
            )
        convolve = torch.nn.functional.conv2d if count == 2 else torch.nn.functional.conv3d
        if before == after and min(before) >= 0:
            return lambda x, kernel, bias=None: convolve(
                x, kernel, bias, stride, before, dilation, groups
            )
        return lambda x, kernel, bias=None: convolve(
            _sliced_pad(x, before, after, 0.0), kernel, bias, stride, 0, dilation, groups
        )


class Deconvolution(_Filter):
    """The transpose of a convolution."""

    name = "deconvolution"
    methods = frozen({"add_deconvolution_nd": {}, "add_deconvolution": {}})

    def _kernel_shape(self, call: Call, channels: int) -> tuple[int, ...]:
        return (
            channels,
            int(call["num_output_maps"]) // int(call["num_groups"]),
            *call["kernel_size_nd"],
        )

    def _stored_shape(
        self, count: int, maps: int, groups: int, size: tuple[int, ...]
    ) -> tuple[int, ...]:
        return (count // (maps // groups * math.prod(size)), maps // groups, *size)

    def _crop(self, call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What is cut off before and after each spatial dimension of the full result."""
        size = call["kernel_size_nd"]
        count = len(size)
        pre, post = spatial(call, "pre_padding", count, 0), spatial(call, "post_padding", count, 0)
        mode = call["padding_mode"]
        if mode.startswith("SAME"):
            stride, dilation = (
                spatial(call, "stride_nd", count, 1),
                spatial(call, "dilation_nd", count, 1),
            )
            totals = [
                max(1 + gap * (length - 1) - step, 0)
                for length, step, gap in zip(size, stride, dilation, strict=True)
            ]
            small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
            return (small, large) if mode == "SAME_UPPER" else (large, small)
        call.require(min(pre + post) >= 0, "a deconvolution cannot have negative padding")
        return pre, post

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """Rank 4 or 5, static channels, as many weights as the shape needs."""
        dtype, shape = self._check(call)
        size = call["kernel_size_nd"]
        stride, dilation = (
            spatial(call, "stride_nd", len(size), 1),
            spatial(call, "dilation_nd", len(size), 1),
        )
        before, after = self._crop(call)
        lengths = []
        for index, length in enumerate(shape):
            full = (length - 1) * stride[index] + 1 + dilation[index] * (size[index] - 1)
            result = -1 if length == -1 else full - before[index] - after[index]
            call.require(result >= -1, "the padding of a deconvolution exceeds its result")
            lengths.append(result)
        return (Fact(dtype, (call.shape()[0], int(call["num_output_maps"]), *lengths)),)

    def bind(self, call: Call) -> Function:
        """``conv_transpose2d`` or ``conv_transpose3d``; uneven padding is cut off afterwards."""
        count = len(call["kernel_size_nd"])
        stride, dilation = (
            spatial(call, "stride_nd", count, 1),
            spatial(call, "dilation_nd", count, 1),
        )
        groups = int(call["num_groups"])
        before, after = self._crop(call)
        lengths = self.infer(call)[0].shape[2:]
        convolve = (
            torch.nn.functional.conv_transpose2d
            if count == 2
            else torch.nn.functional.conv_transpose3d
        )
        if before == after:
            return lambda x, kernel, bias=None: convolve(
                x, kernel, bias, stride, before, 0, groups, dilation
            )

        def deconvolve(x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
            full = convolve(x, kernel, bias, stride, 0, 0, groups, dilation)
            for axis, (pre, length) in enumerate(zip(before, lengths, strict=True)):
                full = full.narrow(axis + 2, pre, length)
            return full

        return deconvolve


class Pooling(Operation):
    """The maximum, the average or a blend of both over windows."""

    name = "pooling"
    methods = frozen({"add_pooling_nd": {}, "add_pooling": {}})
    renames = frozen({"window_size": "window_size_nd"})
    aliases = _OLD_NAMES
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
    write = _Filter.write

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
        lengths = _lengths(call, shape[-len(window) :], window, stride)
        return (Fact(call.declared(dtype), shape[: -len(window)] + lengths),)

    def bind(self, call: Call) -> Function:
        """``max_pool``, and ``avg_pool`` with the divisor TensorRT uses."""
        window = tuple(call["window_size_nd"])
        count = len(window)
        shape = call.shape()[-count:]
        stride = spatial(call, "stride_nd", count, 1)
        before, after = _pads(call, shape, window, stride)
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
    return lambda x: pool(_sliced_pad(x, before, after, -math.inf), window, stride)


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
        counted = _sliced_pad(counted, before, tuple(max(post, 0) for post in after), 1.0)
        after_count = tuple(need - max(post, 0) for need, post in zip(needed, after, strict=True))
        counted = _sliced_pad(counted, (0,) * len(window), after_count, 0.0)
    else:
        counted = _sliced_pad(counted, before, needed, 0.0)
    share = pool(counted, window, stride) * area

    def average(x: Tensor) -> Tensor:
        total = pool(_sliced_pad(x, before, needed, 0.0), window, stride) * area
        return (total / share.to(total.device)).to(x.dtype)

    return average


class Scale(Operation):
    """``(x * scale + shift) ** power`` with weights for the whole tensor, per channel or per element."""

    name = "scale"
    methods = frozen({"add_scale": {"channel_axis": None}, "add_scale_nd": {}})
    defaults = frozen(
        {
            "mode": "UNIFORM",
            "shift": None,
            "scale": None,
            "power": None,
            "channel_axis": None,
        }
    )
    most_inputs = 4

    def _axis(self, call: Call) -> int:
        rank = call.fact(0).rank
        axis = rank - 3 if call["channel_axis"] is None else int(call["channel_axis"])
        call.require(0 <= axis < rank, f"channel_axis must be in [0, {rank - 1}], not {axis}")
        return axis

    def _operand_shape(self, call: Call) -> tuple[int, ...]:
        shape, mode = call.shape(), call["mode"]
        axis = self._axis(call)
        if mode == "UNIFORM":
            return (1,)
        return shape[axis : axis + 1] if mode == "CHANNEL" else shape[axis:]

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """Rank 4 at least, floating point, as many weights as the mode needs."""
        dtype = call.accept(0, FLOATS, "the input of scale")
        call.require(call.fact(0).rank >= 4, "the input of scale must have at least rank 4")
        expected = self._operand_shape(call)
        call.require(-1 not in expected, "the scaled dimensions must be build-time constants")
        for index, name in enumerate(("shift", "scale", "power"), start=1):
            weights, fact = call.attributes.get(name), call.optional(index)
            count = fact.volume if fact is not None else 0 if weights is None else weights.size
            call.require(
                count in (0, math.prod(expected)),
                f"{name} weights must have {math.prod(expected)} elements, not {count}",
            )
        return (Fact(call.declared(dtype), call.shape()),)

    def weights(self, attributes: Mapping[str, Any]) -> Mapping[int, tuple[str, tuple[int, ...]]]:
        """Shift, scale and power become inputs 1 to 3 of the built program."""
        found: dict[int, tuple[str, tuple[int, ...]]] = {}
        for index, name in enumerate(("shift", "scale", "power"), start=1):
            if attributes[name] is not None and attributes[name].size:
                found[index] = (name, (attributes[name].size,))
        return found

    def bind(self, call: Call) -> Function:
        """Three element-wise steps, those without weights left out."""
        rank, axis, expected = call.fact(0).rank, self._axis(call), self._operand_shape(call)
        view = (1,) * axis + expected + (1,) * (rank - axis - len(expected))
        if call["mode"] == "UNIFORM":
            view = (1,) * rank

        def scaled(
            x: Tensor,
            shift: Tensor | None = None,
            scale: Tensor | None = None,
            power: Tensor | None = None,
        ) -> Tensor:
            if scale is not None:
                x = x * scale.view(view)
            if shift is not None:
                x = x + shift.view(view)
            return x if power is None else torch.pow(x, power.view(view))

        return scaled


OPERATIONS = (Convolution(), Deconvolution(), Pooling(), Scale())
