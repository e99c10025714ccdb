"""The order in which layers are lowered: producers first, and a loop with everything inside it as one unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchtrt_reference.network.elements import Layer, Tensor
from torchtrt_reference.network.loops import Loop, LoopBoundaryLayer
from torchtrt_reference.semantics.tensor_facts import RefusedError


@dataclass(frozen=True, slots=True)
class Unit:
    """The nodes that are lowered together.

    Attributes:
        layers: One layer, or all layers of a loop: its boundary and what is inside.
        loop: The loop, if it is one.
    """

    layers: tuple[Layer, ...]
    loop: Loop | None = None


def units_of(layers: Sequence[Layer]) -> list[Unit]:
    """Returns the units of a scope, in the order of their first layers; loops inside loops belong to the outer one."""
    loops: dict[int, Loop] = {}
    for layer in layers:
        if isinstance(layer, LoopBoundaryLayer):
            loops[id(layer._loop)] = layer._loop
    members = {key: _members(loop) for key, loop in loops.items()}
    owner: dict[int, int] = {}
    # A loop inside another has all its layers there too, so the larger one owns them.
    for key in sorted(members, key=lambda loop_id: len(members[loop_id])):
        for layer in members[key]:
            owner[id(layer)] = key
    units: list[Unit] = []
    seen: set[int] = set()
    for layer in layers:
        key = owner.get(id(layer), 0)
        if not key:
            units.append(Unit((layer,)))
        elif key not in seen:
            seen.add(key)
            units.append(Unit(tuple(members[key]), loops[key]))
    return units


def _members(loop: Loop) -> list[Layer]:
    """The layers of a loop: its boundary, and what depends on its recurrences and iterators."""
    members: dict[int, Layer] = {id(layer): layer for layer in loop._layers}
    pending: list[Layer] = [*loop._of("recurrence"), *loop._of("iterator")]
    while pending:
        for tensor in pending.pop()._outputs:
            for consumer in _layers_reading(tensor):
                inner = consumer._loop if isinstance(consumer, LoopBoundaryLayer) else None
                if id(consumer) in members or inner is loop:
                    continue
                new = [consumer] if inner is None else _members(inner)
                members.update((id(layer), layer) for layer in new)
                pending += new if inner is None else inner._of("loop_output")
    return list(members.values())


def _layers_reading(tensor: Tensor) -> list[Layer]:
    return [layer for layer in tensor._consumers.values() if layer._network is tensor._network]


def inside_conditionals(layers: Sequence[Layer]) -> set[int]:
    """Returns the ids of the layers between the inputs and the outputs of conditionals."""
    inside: set[int] = set()
    pending = [layer for layer in layers if layer._operation.name == "conditional_input"]
    while pending:
        layer = pending.pop()
        if id(layer) in inside or layer._operation.name == "conditional_output":
            continue
        inside.add(id(layer))
        pending += [reader for tensor in layer._outputs for reader in _layers_reading(tensor)]
    return inside


def ordered(units: Sequence[Unit]) -> list[Unit]:
    """Returns units so that each comes after those it reads from; otherwise in the given order.

    Raises:
        RefusedError: Units read from each other in a circle.
    """
    unit_of = {id(layer): unit for unit in units for layer in unit.layers}
    done: set[int] = set()
    result: list[Unit] = []
    for first in units:
        stack: list[tuple[Unit, bool]] = [(first, False)]
        active: set[int] = set()
        while stack:
            unit, is_ready = stack.pop()
            if id(unit) in done:
                continue
            if is_ready:
                done.add(id(unit))
                active.discard(id(unit))
                result.append(unit)
                continue
            if id(unit) in active:
                message = f"{unit.layers[0]._name}: the network has a cycle"
                raise RefusedError(message)
            active.add(id(unit))
            stack.append((unit, True))
            for layer in unit.layers:
                # A recurrence's next value is no operand of its own, but may come from outside of the loop.
                for tensor in (*layer._operands(), *layer._inputs):
                    before = None if tensor is None else unit_of.get(id(tensor._producer))
                    if before is not None and before is not unit and id(before) not in done:
                        stack.append((before, False))
    return result
