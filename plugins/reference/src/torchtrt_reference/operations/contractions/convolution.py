"""Convolution and Deconvolution."""
# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_reference.semantics.operation import FLOATS, Call, Function, frozen
from torchtrt_reference.semantics.tensor_facts import TensorFacts
from torchtrt_reference.semantics.windows import (
    WINDOW_DEFAULTS,
    Windowed,
    padded,
    paddings,
    spatial,
    window_counts,
)

Tensor = torch.Tensor


class _Filter(Windowed):
    """The common base of convolution and deconvolution: weights, groups, strides."""

    renames = frozen({"kernel_shape": "kernel_size_nd"})
    window = "kernel_size_nd"
    maximum_inputs = 3
    weights_roles = frozen({"kernel": "KERNEL", "bias": "BIAS"})
    defaults = frozen(
        {
            **WINDOW_DEFAULTS,
            "num_output_maps": 1,
            "kernel_size_nd": (),
            "kernel": None,
            "bias": None,
            "dilation_nd": None,
            "num_groups": 1,
        }
    )

    def admit(self, call: Call) -> None:
        """Positive sizes."""
        call.require(
            all(size >= 1 for size in call["kernel_size_nd"]), "kernel dimensions must be positive"
        )
        call.require(call["num_output_maps"] >= 1, "num_output_maps must be positive")

    @staticmethod
    def _check_count(call: Call) -> None:
        count = len(call["kernel_size_nd"])
        call.require(
            count in (2, 3),
            f"the kernel must have 2 or 3 spatial dimensions, not {count}: unsqueeze a 1-D one",
        )

    def _kernel_shape(self, call: Call, channels: int) -> tuple[int, ...]:
        raise NotImplementedError

    def _kernel_channels(self, call: Call) -> int:
        """The channels that the kernel is for, where the input's may vary; -1 where they may not."""
        return -1

    def _check(self, call: Call) -> tuple[str, tuple[int, ...]]:
        """Checks types, rank, weights and groups; returns the type and the spatial dimensions."""
        self.admit(call)
        self._check_count(call)
        dtype = call.accept(0, FLOATS | {"INT8"}, f"the input of {self.name}")
        shape, size = call.shape(), call["kernel_size_nd"]
        call.require(
            len(shape) == len(size) + 2,
            f"the input of {self.name} must have rank {len(size) + 2}, not {len(shape)}",
        )
        channels, maps, groups = shape[1], int(call["num_output_maps"]), int(call["num_groups"])
        channels = self._kernel_channels(call) if channels == -1 else channels
        call.require(channels != -1, "the channel dimension must be a build-time constant")
        call.require(
            groups >= 1 and channels % groups == 0 and maps % groups == 0,
            f"{groups} groups do not divide {channels} input and {maps} output channels",
        )
        expected = self._kernel_shape(call, channels)
        self._check_operand(call, 1, "kernel", expected)
        self._check_operand(call, 2, "bias", (maps,))
        if call.optional(1) is not None:
            dtype = call.same_type(0, 1, what="input and kernel")
        return call.declared(dtype), shape[2:]

    @staticmethod
    def _check_operand(call: Call, index: int, name: str, expected: tuple[int, ...]) -> None:
        """Requires that a kernel or a bias has the expected shape, as a tensor or as weights."""
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
                fact.is_static, f"the {name} must have a build-time shape, not {fact.shape}"
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
        dtype = weights.dtype.name
        matches = dtype == call.facts(0).dtype or call.facts(0).dtype == "INT8"
        call.require(
            matches or (not call.strong and dtype in ("FLOAT", "HALF")),
            f"{name} weights of type {dtype} do not match the input's type {call.facts(0).dtype}",
        )

    def weights(self, attributes: Mapping[str, Any]) -> Mapping[int, tuple[str, tuple[int, ...]]]:
        """Kernel and bias become inputs 1 and 2 of the built graph."""
        inputs: dict[int, tuple[str, tuple[int, ...]]] = {}
        size = tuple(attributes["kernel_size_nd"])
        if attributes["kernel"] is not None and attributes["kernel"].size:
            maps, groups = int(attributes["num_output_maps"]), int(attributes["num_groups"])
            inputs[1] = (
                "kernel",
                self._stored_shape(attributes["kernel"].size, maps, groups, size),
            )
        if attributes["bias"] is not None and attributes["bias"].size:
            inputs[2] = ("bias", (int(attributes["num_output_maps"]),))
        return inputs

    def _stored_shape(
        self, count: int, maps: int, groups: int, size: tuple[int, ...]
    ) -> tuple[int, ...]:
        raise NotImplementedError


class Convolution(_Filter):
    """Cross-correlation with zero padding."""

    name = "convolution"
    methods = frozen({"add_convolution_nd": {}, "add_convolution": {}})

    def admit(self, call: Call) -> None:
        """Two or three spatial dimensions; a deconvolution finds out when it is built."""
        super().admit(call)
        self._check_count(call)

    def _kernel_channels(self, call: Call) -> int:
        fact, weights = call.optional(1), call.attributes.get("kernel")
        count: int = fact.volume if fact is not None else 0 if weights is None else weights.size
        if not call.rules.convolution_channels_may_vary or not count:
            return -1
        of_a_channel: int = call["num_output_maps"] * math.prod(call["kernel_size_nd"])
        return int(call["num_groups"]) * (count // of_a_channel)

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

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Rank 4 or 5, static channels, as many weights as the shape needs."""
        dtype, shape = self._check(call)
        stride = spatial(call, "stride_nd", len(shape), 1)
        lengths = window_counts(call, shape, self._reach(call), stride)
        return (TensorFacts(dtype, (call.shape()[0], int(call["num_output_maps"]), *lengths)),)

    def bind(self, call: Call) -> Function:
        """``conv2d`` or ``conv3d``; uneven padding is applied first."""
        shape = call.shape()[2:]
        count = len(shape)
        stride = spatial(call, "stride_nd", count, 1)
        dilation = spatial(call, "dilation_nd", count, 1)
        groups = int(call["num_groups"])
        reach = self._reach(call)
        before, after = paddings(call, shape, reach, stride)
        if call["padding_mode"].endswith("ROUND_UP"):
            lengths = window_counts(call, shape, reach, stride)
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
            padded(x, before, after, 0.0), kernel, bias, stride, 0, dilation, groups
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
        """The sizes that are cut off before and after each spatial dimension of the full result."""
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
        return pre, post

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
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
            result = full - before[index] - after[index]
            call.require(
                length == -1 or result >= 0, "the padding of a deconvolution exceeds its result"
            )
            lengths.append(-1 if length == -1 else result)
        return (TensorFacts(dtype, (call.shape()[0], int(call["num_output_maps"]), *lengths)),)

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


OPERATIONS = (Convolution(), Deconvolution())
