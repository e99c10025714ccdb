"""The processes among which a compiled model exchanges tensors.

A collective waits for all processes of its group. Before its first call, a model therefore asks in the store of
``torch.distributed`` whether all of them are there and have the same collectives in the same order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from torchtrt.errors import ProcessGroupError
from torchtrt_runtime.torch_internals import default_store, named_process_group

_NAMESPACES = frozenset({"_c10d_functional", "_c10d_functional_autograd"})
_met: Counter[str] = Counter()
"""How often this process has met those of a group; all count alike."""


@dataclass(frozen=True)
class Processes:
    """The processes of a model.

    Attributes:
        world_size: How many there are.
        rank: Which of them this one is.
        groups: The ranks of each group in which the model has collectives, by the group's name.
    """

    world_size: int
    rank: int
    groups: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, graph_module: GraphModule) -> Processes | None:
        """Returns the processes of this program, if a graph has collectives; otherwise None."""
        names = {name for _, name, _ in _collectives(graph_module)}
        if not names:
            return None
        dist = torch.distributed
        groups = {
            name: tuple(dist.get_process_group_ranks(named_process_group(name)))
            for name in sorted(names)
        }
        return cls(dist.get_world_size(), dist.get_rank(), groups)

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Processes | None:
        """Returns what ``to_json`` wrote."""
        if data is None:
            return None
        groups = {str(name): tuple(map(int, ranks)) for name, ranks in data["groups"].items()}
        return cls(int(data["world_size"]), int(data["rank"]), groups)

    def to_json(self) -> dict[str, Any]:
        """Returns this as JSON."""
        groups = {name: list(ranks) for name, ranks in self.groups.items()}
        return {"world_size": self.world_size, "rank": self.rank, "groups": groups}

    def check(self) -> None:
        """Checks that this process has the place of the one that compiled the model.

        Raises:
            ProcessGroupError: ``torch.distributed`` is not initialized, its size or this rank is another one, or a
                group is missing or has other ranks.
        """
        dist = torch.distributed
        mine = f"The model was compiled as rank {self.rank} of {self.world_size} processes"
        if not (dist.is_available() and dist.is_initialized()):
            raise ProcessGroupError(
                f"{mine}, and torch.distributed is not initialized. Start the program with "
                f"`torchrun --nproc-per-node {self.world_size}`, and call torch.distributed.init_process_group() first."
            )
        if dist.get_world_size() != self.world_size:
            raise ProcessGroupError(
                f"{mine}, and there are {dist.get_world_size()}. Start {self.world_size} processes, or compile the "
                "model again in as many as there are."
            )
        if dist.get_rank() != self.rank:
            raise ProcessGroupError(
                f"{mine}, and this is rank {dist.get_rank()}. Each rank has a file of its own: put the rank into its "
                'name, as f"model-{torch.distributed.get_rank()}.pt2".'
            )
        for name, ranks in self.groups.items():
            self._check_group(name, ranks)

    @staticmethod
    def _check_group(name: str, ranks: tuple[int, ...]) -> None:
        """Raises ``ProcessGroupError`` if a group is missing or has other ranks."""
        advice = "Make the same device meshes and groups in the same order as before compiling."
        try:
            group = named_process_group(name)
        except Exception as error:
            raise ProcessGroupError(
                f"The model has collectives in the process group {name!r} of the ranks {list(ranks)}, which does not "
                f"exist. {advice}"
            ) from error
        found = tuple(torch.distributed.get_process_group_ranks(group))
        if found != ranks:
            raise ProcessGroupError(
                f"The process group {name!r} has the ranks {list(found)}; when the model was compiled, it had "
                f"{list(ranks)}. {advice}"
            )


class Meeting:
    """A hook before the first call of a model, in which its processes find out that all are there.

    Args:
        processes: The processes of the model.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._is_over = False

    def __call__(self, module: Any, _: Any) -> None:
        """Waits for the other processes, as long as the timeout of the default process group.

        Raises:
            ProcessGroupError: One of them does not arrive, or its model has other collectives.
        """
        if self._is_over:
            return
        self._processes.check()
        found = _collectives(module.graph_module)
        for name, ranks in self._processes.groups.items():
            if torch.distributed.get_backend(named_process_group(name)) != "fake":
                sequence = [[op, words] for op, group, words in found if group == name]
                self._meet(name, ranks, json.dumps(sequence))
        self._is_over = True

    def _meet(self, name: str, ranks: tuple[int, ...], collectives: str) -> None:
        """Tells the others of a group the model's collectives, and waits for theirs."""
        store = default_store()
        place = f"torchtrt/{name}/{_met[name]}"
        _met[name] += 1
        store.set(f"{place}/{self._processes.rank}", collectives)
        for rank in ranks:
            try:
                store.wait([f"{place}/{rank}"], store.timeout)
                theirs = store.get(f"{place}/{rank}").decode()
            except Exception as error:
                raise ProcessGroupError(
                    f"Rank {rank} of the ranks {list(ranks)} has not called the model within "
                    f"{store.timeout.total_seconds():g} s: it has ended, or runs other code. Read its output; all "
                    "ranks must compile and call the same models in the same order. If it only needs longer, give "
                    "init_process_group() a greater timeout."
                ) from error
            if theirs != collectives:
                raise ProcessGroupError(
                    f"The model of rank {rank} has other collectives than that of rank {self._processes.rank}: "
                    f"{theirs} and {collectives}. Compile the same model with the same plan and settings in all ranks."
                )


def _collectives(graph_module: GraphModule) -> list[tuple[str, str, list[str]]]:
    """Returns the op, the group and the other words of each collective, in order."""
    found = []
    for node in graph_module.graph.nodes:
        if getattr(node.target, "namespace", None) not in _NAMESPACES:
            continue
        call = node.normalized_arguments(graph_module, normalize_to_only_use_kwargs=True)
        given = node.kwargs if call is None else call.kwargs
        words = [
            str(value)
            for key, value in given.items()
            if isinstance(value, str) and key != "group_name"
        ]
        if "group_name" in given:
            found.append((str(node.target), str(given["group_name"]), words))
    return found
