"""The boundary of a loop, layer by layer: what the loop reads, what its body gives, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtrt_reference.network.elements import Layer, Tensor
from torchtrt_reference.network.loops import Loop
from torchtrt_reference.rules import Rules
from torchtrt_reference.semantics.tensor_facts import RefusedError


@dataclass(frozen=True, slots=True)
class LoopParts:
    """The layers at the boundary of a loop by what they are for.

    Attributes:
        loop: The loop.
        recurrences: The values it carries over.
        iterators: What it takes a slice of in each iteration.
        outputs: What leaves it.
        limits: What ends it, by kind.
    """

    loop: Loop
    recurrences: Sequence[Layer]
    iterators: Sequence[Layer]
    outputs: Sequence[Layer]
    limits: Mapping[str, Layer]

    @classmethod
    def of(cls, loop: Loop) -> LoopParts:
        """Returns the parts of a loop.

        Raises:
            RefusedError: It has no trip limit, or two of one kind.
        """
        limits = {layer._attributes["kind"]: layer for layer in loop._of("trip_limit")}
        if not limits or len(limits) < len(loop._of("trip_limit")):
            message = f"{loop.name}: a loop needs a trip limit, at most one of each kind"
            raise RefusedError(message)
        recurrences, iterators, outputs = map(loop._of, ("recurrence", "iterator", "loop_output"))
        return cls(loop, recurrences, iterators, outputs, limits)

    def check(self, rules: Rules) -> None:
        """Checks the layers at the boundary, one by one and together.

        Raises:
            RefusedError: A rule is broken; the text names the layer.
        """
        for layer in self.outputs:
            if (
                not _is_stacked(layer)
                and _required_input(layer, 0)._producer not in self.recurrences
            ):
                message = (
                    f"{layer._name}: LAST_VALUE takes the output of a recurrence of the same loop"
                )
                raise RefusedError(message)
        for layer in self.loop._layers:
            layer._output_facts()
        if not rules.loops_may_differ:
            self._check_stacking()

    def carried(self) -> list[Layer]:
        """Returns the layers whose outputs are the body's own inputs."""
        return [*self.recurrences, *self.iterators]

    def operands(self) -> list[Tensor]:
        """Returns what the loop reads: lengths of stacked outputs, the count, initial values, iterated tensors."""
        lengths = [_required_input(layer, 1) for layer in self.outputs if _is_stacked(layer)]
        count = [_required_input(self.limits["COUNT"], 0)] if "COUNT" in self.limits else []
        return [*lengths, *count, *(_required_input(layer, 0) for layer in self.carried())]

    def results(self) -> list[Tensor]:
        """Returns what the body gives: next values, the condition, and what is stacked.

        Raises:
            RefusedError: A recurrence has no next value.
        """
        condition = [_required_input(self.limits["WHILE"], 0)] if "WHILE" in self.limits else []
        stacked = [_required_input(layer, 0) for layer in self.outputs if _is_stacked(layer)]
        return [*map(_next_value, self.recurrences), *condition, *stacked]

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes of the loop's node, except for its body."""
        order = {id(layer): index for index, layer in enumerate(self.recurrences)}
        return {
            "counted": "COUNT" in self.limits,
            "conditional": "WHILE" in self.limits,
            "recurrences": len(self.recurrences),
            "iterators": tuple(
                (layer._attributes["axis"], layer._attributes["reverse"])
                for layer in self.iterators
            ),
            "outputs": tuple(
                (
                    layer._attributes["kind"],
                    layer._attributes["axis"],
                    order.get(id(_required_input(layer, 0)._producer), -1),
                )
                for layer in self.outputs
            ),
        }

    def _check_stacking(self) -> None:
        """TensorRT 8.6 stacks along axis 0, unless an iterator comes in along the same axis; REVERSE needs one."""
        count = self.limits.get("COUNT")
        constant = None if count is None else _required_input(count, 0)._facts().constant
        trips = None if constant is None else int(constant)
        axes = set()
        for layer in self.iterators:
            axis = layer._attributes["axis"]
            length = _required_input(layer, 0)._facts().shape[axis]
            axes.add(axis)
            if trips is not None and length not in (-1, trips):
                message = (
                    f"{layer._name}: Could not find any implementation for {trips} trips over "
                    f"{length} slices"
                )
                raise RefusedError(message)
        for layer in self.outputs:
            kind, axis = layer._attributes["kind"], layer._attributes["axis"]
            is_plain = axis in axes or (axis == 0 and (kind == "CONCATENATE" or trips == 0))
            if kind != "LAST_VALUE" and not is_plain:
                message = (
                    f"{layer._name}: Could not find any implementation for a {kind} loop output "
                    f"along axis {axis}: let an iterator run along the same axis"
                )
                raise RefusedError(message)


def _is_stacked(output: Layer) -> bool:
    return bool(output._attributes["kind"] != "LAST_VALUE")


def _next_value(recurrence: Layer) -> Tensor:
    if len(recurrence._inputs) < 2 or recurrence._inputs[1] is None:
        message = f"{recurrence._name}: a recurrence needs its next value: set_input(1, next)"
        raise RefusedError(message)
    return recurrence._inputs[1]


def _required_input(layer: Layer, index: int) -> Tensor:
    tensor = layer._inputs[index] if index < len(layer._inputs) else None
    if tensor is None:
        message = f"{layer._name}: input {index} is missing"
        raise RefusedError(message)
    return tensor
