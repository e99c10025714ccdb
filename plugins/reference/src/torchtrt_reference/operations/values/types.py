"""Where values and types come from: Constant, Identity, Cast, Shape, Assertion."""

# ruff: noqa: ARG002, ARG005 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.semantics.operation import BOOLEANS, Call, Function, Operation, frozen
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts, Value

_CASTABLE = frozenset({"BOOL", "UINT8", "INT8", "INT32", "INT64", "HALF", "BF16", "FLOAT"})
_LIMITS = {
    torch.int8: (-128.0, 127.0),
    torch.uint8: (0.0, 255.0),
    torch.int32: (-(2.0**31), 2.0**31 - 1),
}


def cast(tensor: torch.Tensor, target: torch.dtype) -> torch.Tensor:
    """Returns ``tensor`` converted as TensorRT does.

    Floats become integers by truncation, saturating, and NaN becomes 0. Integers saturate in int8 and wrap in uint8.
    """
    if tensor.dtype == target:
        return tensor
    if target is torch.bool:
        return tensor != 0
    if tensor.dtype.is_floating_point and not target.is_floating_point:
        doubles = tensor.double().nan_to_num(0.0, torch.inf, -torch.inf)
        if target in _LIMITS:
            return doubles.clamp(*_LIMITS[target]).to(target)
        # The maximum int64 is no double: what rounds up to 2**63 is clamped after the conversion.
        high = doubles >= 2.0**63
        converted = torch.where(high, 0.0, doubles.clamp(min=-(2.0**63))).to(target)
        return converted.masked_fill_(high, 2**63 - 1)
    if target is torch.int8 and tensor.dtype is not torch.bool:
        return tensor.long().clamp(-128, 127).to(target)
    return tensor.to(target)


class Constant(Operation):
    """Weights as a tensor."""

    name = "constant"
    weights_roles = frozen({"weights": "CONSTANT"})
    methods = frozen({"add_constant": {}})
    defaults = frozen({"shape": (), "weights": None})
    keeps_types = True

    def admit(self, call: Call) -> None:
        """Weights of nothing have no address: ``Weights(dtype)`` instead of an empty array."""
        weights = call["weights"]
        call.require(
            bool(weights.size) == bool(weights._address),
            "weights of nothing must not have an address: make them of a type alone, Weights(dtype)",
        )

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The weights' type and the given shape, as many weights as it has elements; the value is known."""
        weights = call["weights"]
        call.require(
            math.prod(call["shape"]) == weights.size,
            f"the shape {call['shape']} holds {math.prod(call['shape'])} elements but the weights hold {weights.size}",
        )
        call.require(
            weights.dtype.name != "UINT8",
            f"constants cannot be of type {weights.dtype.name}",
        )
        data = weights._tensor().view(call["shape"])
        return (TensorFacts(weights.dtype.name, call["shape"], Value(data)),)

    def bind(self, call: Call) -> Function:
        """The value itself."""
        data = call["weights"]._tensor().view(call["shape"])
        return lambda: data

    def weights(self, attributes: Mapping[str, Any]) -> Mapping[int, tuple[str, tuple[int, ...]]]:
        """The one weight of the layer."""
        return {0: ("weights", tuple(attributes["shape"]))}


class Identity(Operation):
    """The input, in a weakly typed network possibly as another type."""

    name = "identity"
    methods = frozen({"add_identity": {}})
    partial = "move"
    keeps_types = True
    decides_output_type = True

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Strong typing keeps the type; weak typing converts among floats, int32 and bool, or floats and uint8."""
        fact = call.facts(0)
        wanted = call.output_type() or fact.dtype
        convertible = {"FLOAT", "HALF", "BF16", "INT32", "INT64", "BOOL"}
        if wanted != fact.dtype:
            pair = {wanted, fact.dtype}
            call.require(
                not call.strong and (pair <= convertible or pair <= {"FLOAT", "HALF", "UINT8"}),
                f"identity cannot convert {dtypes.SPELLING[fact.dtype]} to {dtypes.SPELLING[wanted]}: add a cast",
            )
        value = fact.value
        if value is not None and wanted != fact.dtype:
            value = Value(cast(value.data, dtypes.TORCH[wanted]), value.mask)
        return (TensorFacts(wanted, fact.shape, value),)

    def bind(self, call: Call) -> Function:
        """The input itself, converted if a type was set."""
        target = dtypes.TORCH[call.output_type() or call.facts(0).dtype]
        return lambda x: cast(x, target)


class Cast(Operation):
    """The input as another type."""

    name = "cast"
    methods = frozen({"add_cast": {}})
    defaults = frozen({"to_type": "FLOAT"})
    partial = "each"
    keeps_types = True

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Any plain type to any other; the 4- and 8-bit floats go through Quantize and Dequantize."""
        call.accept(0, _CASTABLE, "the input of a cast")
        target = call["to_type"]
        call.require(target in _CASTABLE, f"a cast cannot produce {dtypes.SPELLING[target]}")
        return (TensorFacts(target, call.shape()),)

    def bind(self, call: Call) -> Function:
        """See ``cast``."""
        target = dtypes.TORCH[call["to_type"]]
        source = dtypes.TORCH[call.facts(0).dtype]
        if source == target:
            return lambda x: x
        if target is torch.int8 and source.is_floating_point and call.rules.types_are_hints:
            # Quantization with a scale of 1: half to even, saturating.
            return lambda x: torch.round(x.nan_to_num(127.0)).clamp(-128, 127).to(target)
        if target.is_floating_point:
            return lambda x: x.to(target)
        return lambda x: cast(x, target)


class Shape(Operation):
    """The dimensions of the input as a one-dimensional tensor."""

    name = "shape"
    methods = frozen({"add_shape": {}})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Known dimensions are known elements."""
        shape = call.shape()
        dtype = call.rules.shape_type
        data = torch.tensor(shape, dtype=dtypes.TORCH[dtype])
        mask = None if call.facts(0).is_static else data != -1
        return (TensorFacts(dtype, (len(shape),), Value(data, mask)),)

    def bind(self, call: Call) -> Function:
        """The shape of the tensor at hand."""
        target = dtypes.TORCH[call.rules.shape_type]
        return lambda x: torch.tensor(x.shape, dtype=target, device=x.device)


class Assertion(Operation):
    """A condition that must hold; it has no output."""

    name = "assertion"
    methods = frozen({"add_assertion": {}})
    defaults = frozen({"message": ""})
    outputs = 0
    value_inputs = frozenset({0})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """A boolean shape tensor of rank 0 or 1; provably false is an error at once."""
        call.accept(0, BOOLEANS, "the condition")
        call.require(call.facts(0).rank <= 1, "the condition of an assertion must have rank 0 or 1")
        constant = call.facts(0).constant
        if constant is not None and not bool(constant.all()):
            message = f"assertion failed: {call['message']}"
            raise RefusedError(message)
        return ()

    def bind(self, call: Call) -> Function:
        """Nothing: what can be known was checked by inference."""
        return lambda condition: ()


OPERATIONS = (Constant(), Identity(), Cast(), Shape(), Assertion())
