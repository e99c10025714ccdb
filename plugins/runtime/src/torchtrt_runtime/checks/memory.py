"""Checks that what a compiled model writes to is read under no other name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule

from torchtrt.contract import constant_of
from torchtrt.errors import InputError
from torchtrt.graphs.memory import overlap
from torchtrt.graphs.nodes import writes


@dataclass(frozen=True)
class MemoryChecks:
    """Where a compiled model writes.

    Attributes:
        inputs: The names of its inputs.
        written: The positions of the inputs that it writes to.
        attributes: For each weight or buffer that its graph holds, whether it writes to it.
    """

    inputs: tuple[str, ...]
    written: frozenset[int]
    attributes: Mapping[str, bool]

    @classmethod
    def of(cls, graph_module: GraphModule) -> MemoryChecks | None:
        """Returns the checks for a graph, or None if it writes nowhere."""
        graph = graph_module.graph
        destinations = {node.args[0] for node in graph.nodes if writes(node)}
        if not destinations:
            return None
        inputs = graph.find_nodes(op="placeholder")
        own = {str(node.target) for node in destinations if node.op == "get_attr"}
        read = [node for node in graph.find_nodes(op="get_attr") if constant_of(node) is not None]
        return cls(
            tuple(node.name for node in inputs),
            frozenset(index for index, node in enumerate(inputs) if node in destinations),
            {str(node.target): str(node.target) in own for node in read},
        )

    def check(self, leaves: Sequence[Any], graph_module: GraphModule) -> None:
        """Checks flattened inputs.

        Raises:
            InputError: The model writes to an input that is also another input or a weight, or to a buffer that is
                also an input. Or several elements of an input that it writes to are one place in memory.
        """
        tensors = [
            (index in self.written, f"input {self.inputs[index]!r}", leaf)
            for index, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor)
        ]
        for is_written, name, tensor in tensors:
            if is_written and _repeats(tensor):
                raise InputError(
                    f"The model writes to {name}, several of whose elements are one place in memory, as after expand. "
                    "Pass a clone() of the input."
                )
        others = [
            (is_written, f"the model's {name!r}", attrgetter(name)(graph_module))
            for name, is_written in self.attributes.items()
        ]
        for position, (is_written, name, tensor) in enumerate(tensors):
            for other_is_written, other_name, other in tensors[position + 1 :] + others:
                if (is_written or other_is_written) and overlap(tensor, other):
                    written, read = (name, other_name) if is_written else (other_name, name)
                    raise InputError(
                        f"The model writes to {written}, which shares memory with {read}. It was compiled for inputs "
                        "that share none, so it would miss what the write changes: pass a clone() of the input, or "
                        "give the model one name for this memory."
                    )


def _repeats(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is expanded."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return any(size > 1 and stride == 0 for size, stride in pairs)
