"""Fewer bits: Quantize, Dequantize, DynamicQuantize."""

# ruff: noqa: ARG005 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import math

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.semantics.operation import FLOATS, Call, Function, Operation, frozen
from torchtrt_reference.semantics.tensor_facts import TensorFacts

Tensor = torch.Tensor
_QUANTIZED = frozenset({"INT8", "FP8", "INT4", "FP4"})
_RANGES = {"INT8": (-128.0, 127.0), "INT4": (-8.0, 7.0), "FP8": (-448.0, 448.0), "FP4": (-6.0, 6.0)}


def quantized(x: Tensor, dtype: str) -> Tensor:
    """Returns scaled values rounded to a quantized type: ties to even, saturating; NaN is the minimum integer."""
    low, high = _RANGES[dtype]
    clamped = x.nan_to_num(low if dtype in ("INT8", "INT4") else 0.0).clamp(low, high)
    if dtype == "FP8":
        return clamped.to(dtypes.TORCH["FP8"])
    if dtype == "FP4":
        steps = torch.tensor(dtypes.FP4_VALUES, device=x.device)
        middles = (steps[1:] + steps[:-1]) / 2
        magnitudes = clamped.abs().float()
        lower, upper = (
            torch.bucketize(magnitudes, middles, right=right) for right in (False, True)
        )
        nearest = torch.where(lower % 2 == 0, lower, upper)  # of a tie the even one
        return torch.copysign(steps[nearest], clamped.float()).to(dtypes.TORCH["FP4"])
    return torch.round(clamped).to(torch.int8)


def _spread(scale: Tensor, shape: tuple[int, ...], axis: int) -> Tensor:
    """A scale for every element: one for all, one per channel, or one per block."""
    if scale.numel() == 1:
        return scale.reshape(())
    if scale.dim() == 1:
        view = [1] * len(shape)
        view[axis] = -1
        return scale.view(view)
    for dimension, (blocks, length) in enumerate(zip(scale.shape, shape, strict=True)):
        if blocks not in (1, length):
            scale = scale.repeat_interleave(length // blocks, dimension)
    return scale


class _Scaled(Operation):
    """The common base of Quantize and Dequantize: the scale."""

    maximum_inputs = 3

    def _check_scale(self, call: Call, scale_types: frozenset[str]) -> None:
        """Requires a positive scale of one element, one for each channel, or one for each block."""
        call.accept(1, scale_types, "the scale")
        shape, scale = call.shape(0), call.facts(1)
        if call.rules.quantize_scale_must_be_constant:
            call.require(scale.constant is not None, "the scale must be a build-time constant")
        if scale.constant is not None:
            call.require(bool((scale.constant.float() > 0).all()), "every scale must be positive")
        if scale.rank == 1 and scale.shape != (1,):
            axis = int(call["axis"])
            call.require(
                0 <= axis < len(shape),
                f"a scale per channel needs axis in [0, {len(shape) - 1}], not {axis}",
            )
            call.require(
                -1 in (scale.shape[0], shape[axis]) or scale.shape[0] == shape[axis],
                f"the scale has {scale.shape[0]} elements, dimension {axis} has {shape[axis]}",
            )
        elif scale.rank > 1:
            call.require(scale.rank == len(shape), "a scale per block must have the input's rank")
            for blocks, length in zip(scale.shape, shape, strict=True):
                call.require(
                    -1 in (blocks, length) or (blocks > 0 and length % blocks == 0),
                    f"{blocks} blocks do not divide {length}",
                )
            blocked = [
                dimension
                for dimension, sizes in enumerate(zip(scale.shape, shape, strict=True))
                if sizes[0] != sizes[1]
            ]
            call.require(
                len(blocked) == 1 and blocked[0] >= len(shape) - 2,
                "the blocking dimension must be the last or second to last dimension",
            )
        zero = call.optional(2)
        if zero is not None:
            call.require(
                zero.constant is not None and not bool((zero.constant != 0).any()),
                "zero points must be constant zeros",
            )


class Quantize(_Scaled):
    """Values divided by a scale and rounded to a quantized type."""

    name = "quantize"
    methods = frozen({"add_quantize": {}})
    renames = frozen({"output_type": "to_type"})
    defaults = frozen({"axis": -1, "to_type": "INT8", "block_shape": None})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """A floating-point input of rank 1 at least."""
        call.accept(0, FLOATS, "the input of quantize")
        call.require(call.facts(0).rank >= 1, "a scalar cannot be quantized")
        self._check_scale(call, FLOATS)
        call.require(
            call["to_type"] in _QUANTIZED,
            f"quantize cannot produce {dtypes.SPELLING[call['to_type']]}",
        )
        return (TensorFacts(call["to_type"], call.shape()),)

    def bind(self, call: Call) -> Function:
        """See ``quantized``."""
        shape, axis, dtype = call.shape(0), int(call["axis"]), call["to_type"]
        return lambda x, scale, zero=None: quantized(
            x.float() / _spread(scale.float(), shape, axis), dtype
        )


class Dequantize(_Scaled):
    """Quantized values multiplied by their scale."""

    name = "dequantize"
    methods = frozen({"add_dequantize": {}})
    renames = frozen({"output_type": "to_type"})
    defaults = frozen({"axis": -1, "to_type": "FLOAT", "block_shape": None})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """A quantized input; the output is floating point."""
        call.accept(0, _QUANTIZED, "the input of dequantize")
        self._check_scale(call, FLOATS | {"FP8", "E8M0"})
        call.require(
            call["to_type"] in FLOATS,
            f"dequantize cannot produce {dtypes.SPELLING[call['to_type']]}",
        )
        dtype, scale_type = call.facts(0).dtype, call.facts(1).dtype
        call.require(
            dtype not in ("INT4", "FP4") or scale_type == call["to_type"],
            f"the scale of {dtypes.SPELLING[dtype]} must have the type of the output, "
            f"{dtypes.SPELLING[call['to_type']]}, not {dtypes.SPELLING[scale_type]}",
        )
        return (TensorFacts(call["to_type"], call.shape()),)

    def bind(self, call: Call) -> Function:
        """A product in float32."""
        shape, axis, target = call.shape(0), int(call["axis"]), dtypes.TORCH[call["to_type"]]
        return lambda x, scale, zero=None: (x.float() * _spread(scale.float(), shape, axis)).to(
            target
        )


class DynamicQuantize(Operation):
    """Values quantized by blocks with scales computed from the values."""

    name = "dynamic_quantize"
    methods = frozen(
        {
            "add_dynamic_quantize": {"block_shape": None},
            "add_dynamic_quantize_v2": {"axis": -1, "block_size": 0},
        }
    )
    renames = frozen({"output_type": "to_type"})
    defaults = frozen(
        {
            "axis": -1,
            "block_size": 0,
            "block_shape": None,
            "to_type": "FP4",
            "scale_type": "FP8",
        }
    )
    maximum_inputs = 2
    outputs = 2

    def _blocks(self, call: Call) -> tuple[int, ...]:
        """Returns how many elements share a scale along each dimension."""
        shape = call.shape(0)
        if call["block_shape"] is not None:
            blocks = tuple(call["block_shape"])
            call.require(len(blocks) == len(shape), f"block_shape must have {len(shape)} elements")
            return tuple(
                length if block == -1 else block
                for block, length in zip(blocks, shape, strict=True)
            )
        call.require(len(shape) in (2, 3), "dynamic quantization needs rank 2 or 3")
        axis = int(call["axis"]) % len(shape)
        call.require(axis >= len(shape) - 2, "the blocks lie along one of the last two dimensions")
        call.require(
            call["block_size"] in (16, 32),
            f"blockSize supports only 16 or 32 element blocks, not {call['block_size']}",
        )
        return tuple(int(call["block_size"]) if index == axis else 1 for index in range(len(shape)))

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Blocks divide their dimensions, which are static."""
        call.accept(0, FLOATS, "the input of dynamic quantize")
        shape, blocks = call.shape(0), self._blocks(call)
        call.require(call["to_type"] in _QUANTIZED, f"cannot quantize to {call['to_type']}")
        call.require(
            call["scale_type"] in ("FP8", "E8M0", "FLOAT"),
            f"scales cannot be of type {call['scale_type']}",
        )
        self._check_double(call)
        scales = []
        for length, block in zip(shape, blocks, strict=True):
            call.require(
                block == 1 or (length != -1 and block > 0 and length % block == 0),
                f"blocks of {block} do not divide {length}",
            )
            scales.append(length if block == 1 else length // block)
        return (TensorFacts(call["to_type"], shape), TensorFacts(call["scale_type"], tuple(scales)))

    def _check_double(self, call: Call) -> None:
        """Scales of FP8 are relative to a second input, of float32 or of the type of the first, as RTX has it."""
        double = call.optional(1)
        if double is None:
            call.require(call["scale_type"] != "FP8", "scales of type FP8 require two inputs")
            return
        call.require(call["block_shape"] is None, "a second input needs a scalar block size")
        call.require(
            double.rank == 0 and double.dtype in ("FLOAT", call.facts(0).dtype),
            "the second input must be a scalar of type FLOAT or of the type of the first",
        )

    def bind(self, call: Call) -> Function:
        """The maximum magnitude of each block decides its scale."""
        shape, blocks = call.shape(0), self._blocks(call)
        dtype, scale_type = call["to_type"], call["scale_type"]
        limit = _RANGES[dtype][1]
        split = [
            part
            for length, block in zip(shape, blocks, strict=True)
            for part in (length // block, block)
        ]
        inner = tuple(range(1, len(split), 2))

        def quantize(x: Tensor, double: Tensor | None = None) -> tuple[Tensor, Tensor]:
            scale = x.float().reshape(split).abs().amax(inner) / limit
            scale = scale if double is None else scale / double
            if scale_type == "E8M0":
                exponent = torch.ceil(torch.log2(scale.clamp(min=2.0**-127)))
                stored = torch.pow(2.0, exponent).to(dtypes.TORCH["E8M0"])
            else:
                stored = scale.clamp(max=448.0 if scale_type == "FP8" else math.inf).to(
                    dtypes.TORCH[scale_type]
                )
            used = stored.float() if double is None else stored.float() * double
            safe = torch.where(used == 0, 1.0, used)
            return quantized(x.float() / _spread(safe, shape, 0), dtype), stored

        return quantize


OPERATIONS = (Quantize(), Dequantize(), DynamicQuantize())
