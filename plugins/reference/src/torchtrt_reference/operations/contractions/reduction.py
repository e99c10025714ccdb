"""Sums over dimensions and what is built on them: Reduce, SoftMax, RaggedSoftMax, Normalization, Cumulative, LRN."""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import math
from typing import Any

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.operations.values.types import cast
from torchtrt_reference.semantics.operation import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    Call,
    Function,
    Operation,
    frozen,
)
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts

Tensor = torch.Tensor


def _extreme(x: Tensor, axes: tuple[int, ...], keep: bool, is_maximum: bool) -> Tensor:
    """Returns the maximum or minimum along ``axes``, passing over NaN. Of nothing it is the lowest or highest value."""
    if x.dtype.is_floating_point:
        empty = -math.inf if is_maximum else math.inf
    else:
        limits = torch.iinfo(x.dtype)
        empty = limits.min if is_maximum else limits.max
    if any(x.shape[axis] == 0 for axis in axes):
        return torch.full_like(x.sum(axes, keepdim=keep), empty, dtype=x.dtype)
    reduce = torch.amax if is_maximum else torch.amin
    result = reduce(x, axes, keepdim=keep)
    # TensorRT ignores NaN here, PyTorch propagates it.
    if x.dtype.is_floating_point and bool(result.isnan().any()):
        result = reduce(torch.where(x.isnan(), empty, x), axes, keepdim=keep)
    return result


def _product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    for axis in reversed(axes):
        x = x.prod(axis, keepdim=keep, dtype=x.dtype)
    return x


def _average(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if x.dtype.is_floating_point:
        return x.mean(axes, keepdim=keep)
    count = math.prod(x.shape[axis] for axis in axes)
    total = x.sum(axes, keepdim=keep, dtype=x.dtype)
    return torch.div(total, count, rounding_mode="trunc") if count else torch.zeros_like(total)


def _through_float32(x: Tensor) -> Tensor:
    return cast(x.float(), x.dtype)


REDUCTIONS = {
    "SUM": lambda x, axes, keep: x.sum(axes, keepdim=keep, dtype=x.dtype),
    "PROD": _product,
    "MAX": lambda x, axes, keep: _extreme(x, axes, keep, is_maximum=True),
    "MIN": lambda x, axes, keep: _extreme(x, axes, keep, is_maximum=False),
    "AVG": _average,
}


class Reduce(Operation):
    """A sum, product, extreme or average over dimensions."""

    name = "reduce"
    methods = frozen({"add_reduce": {}})
    defaults = frozen({"op": "SUM", "axes": 0, "keep_dims": False})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """A mask that selects at least one dimension; booleans and scalars are refused."""
        op = call["op"]
        call.require(op in REDUCTIONS, f"reduce operation {op} is for collectives only")
        dtype = call.accept(0, NUMBERS, "the input of reduce")
        call.require(call.facts(0).rank >= 1, "a scalar cannot be reduced")
        axes = call.axes_of_mask()
        if call["keep_dims"]:
            shape = tuple(1 if axis in axes else size for axis, size in enumerate(call.shape()))
        else:
            shape = tuple(size for axis, size in enumerate(call.shape()) if axis not in axes)
        return (TensorFacts(call.declared(dtype), shape),)

    def bind(self, call: Call) -> Function:
        """The table's function; on TensorRT 8.6 integers are rounded to float32 before and after."""
        function, axes, keep = REDUCTIONS[call["op"]], call.axes_of_mask(), bool(call["keep_dims"])
        dtype = dtypes.TORCH[call.facts(0).dtype]
        if dtype.is_floating_point or not call.rules.float32_integer_reductions:
            return lambda x: function(x, axes, keep)
        if call["op"] == "AVG":
            count = math.prod(call.shape()[axis] for axis in axes)
            return lambda x: cast(
                _through_float32(x).sum(axes, keepdim=keep, dtype=dtype).float() / count, dtype
            )
        return lambda x: _through_float32(function(_through_float32(x), axes, keep))


class SoftMax(Operation):
    """Softmax along one dimension."""

    name = "softmax"
    methods = frozen({"add_softmax": {}})
    defaults = frozen({"axes": None})

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """The mask selects exactly one dimension."""
        if value.bit_count() != 1:
            message = f"axes is a bit mask that must select exactly one dimension, not {value:#b}"
            raise RefusedError(message)
        layer._attributes[attribute] = value

    def _axis(self, call: Call) -> int:
        rank = call.facts(0).rank
        if call["axes"] is None:
            return max(0, rank - 3)
        return call.axes_of_mask()[0]

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Floating point; rank 2 at least on TensorRT 8.6."""
        dtype = call.accept(0, FLOATS, "the input of softmax")
        minimum = call.rules.softmax_minimum_rank
        call.require(
            call.facts(0).rank >= minimum, f"the input of softmax must have at least rank {minimum}"
        )
        self._axis(call)
        return (TensorFacts(call.declared(dtype), call.shape()),)

    def bind(self, call: Call) -> Function:
        """``torch.softmax``."""
        axis = self._axis(call)
        return lambda x: torch.softmax(x, axis)

    def read(self, layer: Any, attribute: str) -> Any:
        """Unset axes read as TensorRT's default, the third dimension from the end."""
        axes = layer._attributes["axes"]
        return 1 << max(0, layer._input_facts()[0].rank - 3) if axes is None else axes


class RaggedSoftMax(Operation):
    """Softmax over the first elements of each row; the others are 0."""

    name = "ragged_softmax"
    methods = frozen({"add_ragged_softmax": {}})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Input ``[K, Z, S]``, bounds ``[K, Z, 1]``."""
        dtype = call.accept(0, FLOATS, "the input of ragged softmax")
        call.accept(1, frozenset({"INT32"}), "bounds")
        shape, bounds = call.shape(0), call.shape(1)
        call.require(
            len(shape) == len(bounds) == 3, "input and bounds of ragged softmax must have rank 3"
        )
        call.require(bounds[2] == 1, "the last dimension of bounds must be 1")
        for ours, theirs in zip(shape[:2], bounds[:2], strict=True):
            call.require(
                ours == theirs or -1 in (ours, theirs),
                "bounds must match the input's first two dimensions",
            )
        return (TensorFacts(call.declared(dtype), shape),)

    def bind(self, call: Call) -> Function:
        """Softmax with a mask."""
        length = call.shape(0)[2]

        def softmax(x: Tensor, bounds: Tensor) -> Tensor:
            inside = torch.arange(length, device=x.device) < bounds
            return torch.softmax(x.masked_fill(~inside, -math.inf), 2).masked_fill(~inside, 0)

        return softmax


class Normalization(Operation):
    """Layer, instance and group normalization with scale and bias."""

    name = "normalization"
    methods = frozen(
        {"add_normalization": {"is_v2": False}, "add_normalization_v2": {"is_v2": True}}
    )
    renames = frozen({"axesMask": "axes"})
    defaults = frozen(
        {
            "epsilon": 1e-5,
            "axes": 0,
            "num_groups": 1,
            "compute_precision": "FLOAT",
            "is_v2": False,
        }
    )

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Scale and bias have the input's rank and broadcast to it; for groups see the rules on their shape."""
        for index in range(3):
            call.accept(index, FLOATS, f"input {index}")
        dtype = call.same_type(0, 1, 2)
        shape, scale, bias = call.shape(0), call.shape(1), call.shape(2)
        call.require(
            len(shape) == len(scale) == len(bias),
            "input, scale and bias of normalization must have the same rank",
        )
        axes, groups = call.axes_of_mask(), int(call["num_groups"])
        expected: tuple[int, ...]
        if groups != 1:
            minimum = call.rules.group_normalization_minimum_rank
            call.require(
                len(shape) >= minimum, f"group normalization needs at least rank {minimum}"
            )
            call.require(
                shape[1] != -1 and groups > 0 and shape[1] % groups == 0,
                f"{groups} groups do not divide dimension 1 of {shape}",
            )
            call.require(
                axes == tuple(range(2, len(shape))),
                "group normalization reduces exactly the dimensions after dimension 1",
            )
            channels = shape[1] if call["is_v2"] else groups
            expected = (1, channels) + (1,) * (len(shape) - 2)
            fits = scale == bias == expected
        else:
            fits = (scale == bias or call.rules.normalization_bias_broadcasts_alone) and all(
                ours in (1, -1) or ours == theirs or theirs == -1
                for parameter in (scale, bias)
                for ours, theirs in zip(parameter, shape, strict=True)
            )
            expected = shape
        call.require(
            fits,
            f"scale dimensions not compatible for normalization: scale {scale} and bias {bias} must be {expected}"
            + ("" if groups != 1 else ", with 1 where they are broadcast"),
        )
        return (TensorFacts(dtype, shape),)

    def bind(self, call: Call) -> Function:
        """The fused PyTorch kernels where the shapes are theirs."""
        axes, groups, epsilon = call.axes_of_mask(), int(call["num_groups"]), float(call["epsilon"])
        shape, scale_shape = call.shape(0), call.shape(1)
        rank = len(shape)
        if groups != 1:
            per_channel = shape[1] // scale_shape[1]

            def group_norm(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
                weight, shift = (
                    parameter.reshape(-1).repeat_interleave(per_channel)
                    for parameter in (scale, bias)
                )
                return torch.nn.functional.group_norm(x, groups, weight, shift, epsilon)

            return group_norm
        tail = tuple(range(axes[0], rank))
        normalized = shape[axes[0] :]
        if axes == tail and scale_shape == call.shape(2) == (1,) * axes[0] + normalized:
            return lambda x, scale, bias: torch.nn.functional.layer_norm(
                x, normalized, scale.view(normalized), bias.view(normalized), epsilon
            )

        def normalize(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
            # Computed in float32 whatever the type, TensorRT's default.
            wide = x.float()
            variance, mean = torch.var_mean(wide, axes, correction=0, keepdim=True)
            return ((wide - mean) * torch.rsqrt(variance + epsilon)).to(x.dtype) * scale + bias

        return normalize


class Cumulative(Operation):
    """Running sums along an axis."""

    name = "cumulative"
    methods = frozen({"add_cumulative": {}})
    defaults = frozen({"op": "SUM", "exclusive": False, "reverse": False})
    value_inputs = frozenset({1})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The axis is a constant scalar tensor."""
        dtype = call.accept(0, NUMBERS, "the input of cumulative")
        self._axis(call)
        return (TensorFacts(call.declared(dtype), call.shape()),)

    @staticmethod
    def _axis(call: Call) -> int:
        rank = call.facts(0).rank
        call.require(rank >= 1, "the input of cumulative must have at least rank 1")
        axis = call.scalar(1, INTEGERS, "axis")
        call.require(axis is not None, "axis must be a build-time constant")
        call.require(-rank <= axis < rank, f"axis {axis} is not in [{-rank}, {rank - 1}]")
        return int(axis) % rank

    def bind(self, call: Call) -> Function:
        """``torch.cumsum``."""
        axis, exclusive, reverse = self._axis(call), bool(call["exclusive"]), bool(call["reverse"])

        def cumulative(x: Tensor, _: Tensor) -> Tensor:
            ordered = x.flip(axis) if reverse else x
            result = ordered.cumsum(axis, dtype=x.dtype)
            if exclusive:
                result = result - ordered
            return result.flip(axis) if reverse else result

        return cumulative


class LRN(Operation):
    """Local response normalization across channels."""

    name = "lrn"
    methods = frozen({"add_lrn": {}})
    renames = frozen({"window": "window_size"})
    defaults = frozen({"window_size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0})

    def admit(self, call: Call) -> None:
        """The parameters are in TensorRT's ranges."""
        call.require(
            call["window_size"] % 2 == 1 and 1 <= call["window_size"] <= 15,
            "the window must be odd, 1 to 15",
        )
        call.require(abs(call["alpha"]) <= 1e20, "alpha must be at most 1e20 in size")
        call.require(0.01 <= call["beta"] <= 1e5, "beta must be in [0.01, 1e5]")
        call.require(1e-5 <= call["k"] <= 1e10, "k must be in [1e-5, 1e10]")

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Rank 4 at least: channels are the third dimension from the end."""
        self.admit(call)
        dtype = call.accept(0, FLOATS, "the input of lrn")
        call.require(call.facts(0).rank >= 4, "the input of lrn must have at least rank 4")
        return (TensorFacts(call.declared(dtype), call.shape()),)

    def bind(self, call: Call) -> Function:
        """The mean over a window of channels, zeros beyond the edge."""
        window, alpha, beta, k = (call[name] for name in ("window_size", "alpha", "beta", "k"))

        def lrn(x: Tensor) -> Tensor:
            squares = (x * x).movedim(-3, -1)
            padded = torch.nn.functional.pad(squares, (window // 2, window // 2))
            mean = padded.unfold(-1, window, 1).sum(-1).movedim(-1, -3) / window
            return x / torch.pow(k + alpha * mean, beta)

        return lrn


OPERATIONS = (Reduce(), SoftMax(), RaggedSoftMax(), Normalization(), Cumulative(), LRN())
