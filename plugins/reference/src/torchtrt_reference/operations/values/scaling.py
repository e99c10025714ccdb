"""Scale: a factor, a shift and a power per tensor, channel or element."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_reference.semantics.operation import FLOATS, Call, Function, Operation, frozen
from torchtrt_reference.semantics.tensor_facts import TensorFacts

Tensor = torch.Tensor
WEIGHTS = ("shift", "scale", "power")
"""The attributes that are weights; in the built graph they are the inputs 1 to 3."""


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
    maximum_inputs = 4
    weights_roles = frozen({"shift": "SHIFT", "scale": "SCALE", "power": None})

    def admit(self, call: Call) -> None:
        """Two or three dimensions after the channels, where their axis is given; weights of one type."""
        fact, axis = call.optional(0), call["channel_axis"]
        call.require(
            fact is None or axis is None or fact.rank - int(axis) - 1 in (2, 3),
            "scale needs 2 or 3 dimensions after the channel axis",
        )
        weight_types = {call[name].dtype.name for name in WEIGHTS if call[name] is not None}
        omitted = {"FLOAT" for name in WEIGHTS if call[name] is None}
        call.require(
            not call.rules.scale_weights_of_one_type or len(weight_types | omitted) == 1,
            "shift, scale and power weights must have one type, those without elements included",
        )

    def _axis(self, call: Call) -> int:
        rank = call.facts(0).rank
        axis = rank - 3 if call["channel_axis"] is None else int(call["channel_axis"])
        call.require(0 <= axis < rank, f"channel_axis must be in [0, {rank - 1}], not {axis}")
        return axis

    def _operand_shape(self, call: Call) -> tuple[int, ...]:
        shape, mode = call.shape(), call["mode"]
        axis = self._axis(call)
        if mode == "UNIFORM":
            return (1,)
        return shape[axis : axis + 1] if mode == "CHANNEL" else shape[axis:]

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Rank 4 at least (3 on TensorRT 8), floating point, as many weights as the mode needs."""
        dtype = call.accept(0, FLOATS, "the input of scale")
        minimum = call.rules.scale_minimum_rank
        call.require(
            call.facts(0).rank >= minimum, f"the input of scale must have at least rank {minimum}"
        )
        expected = self._operand_shape(call)
        call.require(-1 not in expected, "the scaled dimensions must be build-time constants")
        for index, name in enumerate(WEIGHTS, start=1):
            weights, fact = call.attributes.get(name), call.optional(index)
            count = fact.volume if fact is not None else 0 if weights is None else weights.size
            kind = fact.dtype if fact is not None else weights and weights.dtype.name
            call.require(
                count in (0, math.prod(expected)),
                f"{name} weights must have {math.prod(expected)} elements, not {count}",
            )
            call.require(
                not (count and call.strong) or kind == dtype,
                f"{name} weights must have the type of the input",
            )
        return (TensorFacts(call.declared(dtype), call.shape()),)

    def weights(self, attributes: Mapping[str, Any]) -> Mapping[int, tuple[str, tuple[int, ...]]]:
        """Shift, scale and power become inputs 1 to 3 of the built graph."""
        inputs: dict[int, tuple[str, tuple[int, ...]]] = {}
        for index, name in enumerate(WEIGHTS, start=1):
            if attributes[name] is not None and attributes[name].size:
                inputs[index] = (name, (attributes[name].size,))
        return inputs

    def bind(self, call: Call) -> Function:
        """Three element-wise steps, those without weights left out."""
        rank, axis, expected = call.facts(0).rank, self._axis(call), self._operand_shape(call)
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


OPERATIONS = (Scale(),)
