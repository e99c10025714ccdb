"""The facts about a program that the compiler and lowering passes exchange, beside its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

_FACTS = "torchtrt_facts"


@dataclass
class ProgramFacts:
    """Facts about a program.

    Attributes:
        examples: Returns the tensors that the program was exported with, by their placeholders.
        largest: Returns the largest finite magnitude of each node's results among the batches that the user gave for
            calibration; nothing where there are none. The graph runs as it is then.
        equal_weights: The weights that must stay equal in all processes of the program. Passes add to them.
        divided: What ``async_tensor_parallel`` does with each all-reduce: sentences for the report. A pass adds them.
        in_float32: What computes in float32 because of its magnitudes or its sums: likewise.
        conditions: The conditions on sizes, of SymPy, without which the model's ops raise errors although PyTorch
            exports them, each with the line of the model. Passes add to them. A call that breaks one is refused.
    """

    examples: Callable[[], Mapping[Node, torch.Tensor]] = dict
    largest: Callable[[], Mapping[Node, float]] = dict
    equal_weights: set[Node] = field(default_factory=set)
    divided: list[str] = field(default_factory=list)
    in_float32: list[str] = field(default_factory=list)
    conditions: dict[Any, str] = field(default_factory=dict)


def facts_of(graph_module: GraphModule) -> ProgramFacts:
    """Returns the facts about a program in lowering; a graph that is in no compilation has none yet."""
    facts: ProgramFacts = graph_module.meta.setdefault(_FACTS, ProgramFacts())
    return facts


def take_facts(graph_module: GraphModule) -> ProgramFacts:
    """Returns the facts about a program, whose passes have run, and removes them from the graph."""
    facts = facts_of(graph_module)
    del graph_module.meta[_FACTS]
    return facts
