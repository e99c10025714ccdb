"""The built form of a network: nodes over numbered slots, plain data from end to end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

ABSENT = -1


@dataclass(slots=True)
class Node:
    """One operation of a built network.

    Attributes:
        operation: Its key in the table of operations.
        name: The layer's name; fused layers join theirs with `` + ``.
        inputs: The slots it reads; ``ABSENT`` for an optional input that is not there.
        outputs: The slots it writes.
        attributes: Names, numbers, texts, None, and tuples of these; graphs for the bodies of control flow, and the
            record of a plugin.
        output_types: The types that were set for its outputs, None where unset.
        metadata: The layer's metadata.
    """

    operation: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: dict[str, Any]
    output_types: tuple[str | None, ...] = ()
    metadata: str = ""

    def bodies(self) -> dict[str, Graph]:
        """Returns the graphs inside it, by the attribute that holds each."""
        return {name: value for name, value in self.attributes.items() if isinstance(value, Graph)}


@dataclass(slots=True)
class Port:
    """An input or output of a graph.

    Attributes:
        name: The tensor's name.
        slot: Where its value is.
        dtype: The name of its type.
        shape: Its dimensions at build time; -1 where the runtime determines them.
        is_shape: Whether its value decides shapes, so that it lives on the host.
        dimension_names: Names of dimensions; equal names are equal lengths.
        formats: The allowed formats, a bit mask.
    """

    name: str
    slot: int
    dtype: str
    shape: tuple[int, ...]
    is_shape: bool = False
    dimension_names: dict[int, str] = field(default_factory=dict)
    formats: int = 1


@dataclass(slots=True)
class Graph:
    """A built network.

    Attributes:
        inputs: What must be given, in the network's order.
        outputs: What comes out, in the order of marking.
        nodes: In an order in which every slot is written before it is read.
        constants: Slots whose value is known, on the CPU. A stripped one is on the device ``meta``, without values.
        constant_types: The names of the constants' types.
        weights_names: The refit names of constants.
        weights_roles: The layers and roles by which constants can be refitted.
        slot_count: The number of slots.
        strong: Whether the network is strongly typed.
        debug: Inner tensors that listeners can receive.
    """

    inputs: list[Port]
    outputs: list[Port]
    nodes: list[Node]
    constants: dict[int, torch.Tensor]
    constant_types: dict[int, str]
    weights_names: dict[int, str]
    weights_roles: dict[int, tuple[str, str]]
    slot_count: int
    strong: bool
    debug: list[Port] = field(default_factory=list)

    def new_slot(self) -> int:
        """Returns a slot that is not in use."""
        self.slot_count += 1
        return self.slot_count - 1

    def ends(self) -> list[Port]:
        """Returns what must be computed: the outputs, and the tensors that listeners can receive."""
        return [*self.outputs, *self.debug]

    def refittable(self) -> set[int]:
        """Returns the constants that may be given other values."""
        return self.weights_names.keys() | self.weights_roles.keys()

    def stripped(self) -> set[int]:
        """Returns the constants that have no values until a refit gives them some."""
        return {slot for slot, value in self.constants.items() if value.is_meta}

    def consumers(self) -> dict[int, list[Node]]:
        """Returns the nodes that read each slot."""
        readers: dict[int, list[Node]] = {}
        for node in self.nodes:
            for slot in dict.fromkeys(node.inputs):
                if slot != ABSENT:
                    readers.setdefault(slot, []).append(node)
        return readers

    def drop_unused(self) -> None:
        """Removes nodes and constants that contribute to no output; assertions stay."""
        needed = {port.slot for port in self.ends()}
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if not node.outputs or any(slot in needed for slot in node.outputs):
                kept.append(node)
                needed.update(node.inputs)
        self.nodes = kept[::-1]
        self.constants = {slot: value for slot, value in self.constants.items() if slot in needed}
        self.constant_types = {slot: self.constant_types[slot] for slot in self.constants}
        self.weights_names = {
            slot: name for slot, name in self.weights_names.items() if slot in self.constants
        }
        self.weights_roles = {
            slot: role for slot, role in self.weights_roles.items() if slot in self.constants
        }
