"""The processes among which a compiled model exchanges tensors.

A collective waits for all processes of its group. Before its first call, a model therefore checks in the store of
``torch.distributed`` whether all of them are there and have the same collectives in the same order. Through the same
store, the processes agree on a choice among compiled models.
"""

from __future__ import annotations

import ctypes
import functools
import json
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch.fx import GraphModule, Node

from torchtrt.errors import EngineError, ProcessGroupError
from torchtrt.graphs.nodes import inner_graphs
from torchtrt.tensorrt import Capability, supports
from torchtrt_runtime.torch_internals import (
    default_process_group,
    default_store,
    named_process_group,
    nccl_communicator,
)

_NAMESPACES = frozenset({"_c10d_functional", "_c10d_functional_autograd"})
_GROUPS = "Make the same device meshes and groups in the same order as before compiling."
_EXCHANGE = re.compile("nccl|dist_collective", re.IGNORECASE)
"""Errors of layers that exchange tensors contain one of these texts."""
Agreed = TypeVar("Agreed")
_met: Counter[str] = Counter()
"""How often this process has met those of a group; all count alike."""


def is_distributed(value: Any) -> bool:
    """Returns whether a value is a ``DTensor``: one tensor of several processes."""
    module = sys.modules.get("torch.distributed.tensor")  # code that made one has imported it
    return module is not None and isinstance(value, module.DTensor)


class Collective(NamedTuple):
    """A call in which processes exchange tensors.

    Attributes:
        op: The op: ``"_c10d_functional.all_reduce.default"``.
        group: The name of the process group.
        words: The other texts and numbers among its arguments: the kind of reduction, the source of a broadcast.
    """

    op: str
    group: str
    words: tuple[str, ...]


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
        groups = {name: tuple(ranks) for name, ranks in groups_in(graph_module).items()}
        if not groups:
            return None
        return cls(torch.distributed.get_world_size(), torch.distributed.get_rank(), groups)

    @property
    def are_several(self) -> bool:
        """Whether a collective waits for another process."""
        return any(len(ranks) > 1 for ranks in self.groups.values())

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

    def real_groups(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yields the name and the ranks of each group, but for groups of the backend ``fake``: it exchanges nothing."""
        for name, ranks in self.groups.items():
            if torch.distributed.get_backend(named_process_group(name)) != "fake":
                yield name, ranks

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
        found = tuple(ranks_of(name))
        if found != ranks:
            raise ProcessGroupError(
                f"The process group {name!r} has the ranks {list(found)}; when the model was compiled, it had "
                f"{list(ranks)}. {_GROUPS}"
            )


class Meeting:
    """A hook before a model's first call in a process group, in which its processes find out that all are there.

    A program may end ``torch.distributed`` and start it again, with other processes. A copy of the model meets anew.

    Args:
        processes: The processes of the model.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._group: Any = None  # of all processes, at the last meeting

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_group": None}

    def __call__(self, module: Any, _: Any) -> None:
        """Waits for the other processes, as long as the timeout of the default process group.

        Raises:
            ProcessGroupError: One of them does not arrive, its model has other collectives, or this process has
                another place than the one that compiled the model.
        """
        if self._group is not None and process_group() is self._group:
            return
        self._processes.check()
        places = list(_places(module.graph_module))
        for name, ranks in self._processes.real_groups():
            sequence = [
                [where, *([each.op, *each.words] for each in found if each.group == name)]
                for where, found in places
            ]
            exchanges = [each for each in sequence if len(each) > 1]
            self._compare(name, ranks, json.dumps(exchanges))
        self._group = process_group()

    def _compare(self, name: str, ranks: tuple[int, ...], collectives: str) -> None:
        """Compares the model's collectives with those of the others of a group."""
        mine = self._processes.rank
        texts = _exchanged(name, ranks, mine, collectives, "called the model")
        for rank, theirs in texts.items():
            if theirs != collectives:
                raise ProcessGroupError(
                    f"The model of rank {rank} has other collectives than that of rank {mine}: {theirs} and "
                    f"{collectives}. Compile the same model with the same plan and settings in all ranks."
                )


def agreed(
    processes: Processes | None,
    about: str,
    value: Agreed,
    combine: Callable[[Agreed, Agreed], Agreed],
) -> Agreed:
    """Returns one value for all processes of a model, which call this at the same place of the program.

    Args:
        processes: The processes; None for a model without collectives.
        about: What the value is.
        value: This process's value, which JSON can hold.
        combine: Returns one value for two, whatever their order, and the value for two equal ones: ``max``, ``and``.

    Raises:
        ProcessGroupError: Another process has ended, or is at another place of the program.
    """
    if processes is None:
        return value
    groups = list(processes.real_groups())
    for (
        _
    ) in groups:  # a value reaches the processes that share no group with its own in several steps
        for name, ranks in groups:
            text = json.dumps([about, value])
            texts = _exchanged(name, ranks, processes.rank, text, f"agreed on {about}")
            found = {rank: json.loads(each) for rank, each in texts.items()}
            for rank, (theirs, _) in found.items():
                if theirs != about:
                    raise ProcessGroupError(
                        f"Rank {rank} agrees on {theirs}, and rank {processes.rank} on {about}: one of them has "
                        "failed. Read the output of both."
                    )
            value = functools.reduce(combine, (each for _, each in found.values()))
    return value


def _exchanged(
    name: str, ranks: tuple[int, ...], rank: int, text: str, what: str
) -> dict[int, str]:
    """Sends a text to the others of a group, and returns the text of each rank.

    Raises:
        ProcessGroupError: Another process sends none; ``what`` is what it has not done.
    """
    store = default_store()
    place = f"torchtrt/{name}/{_met[name]}"
    _met[name] += 1
    store.set(f"{place}/{rank}", text)
    texts = {}
    for each in ranks:
        try:
            store.wait([f"{place}/{each}"], store.timeout)
            texts[each] = store.get(f"{place}/{each}").decode()
        except Exception as error:
            raise ProcessGroupError(
                f"Rank {each} of the ranks {list(ranks)} has not {what} within {store.timeout.total_seconds():g} s: "
                "it has ended, or runs other code. Read its output; all ranks must compile and call the same models "
                "in the same order. If it only needs longer, give init_process_group() a greater timeout."
            ) from error
    return texts


def groups_in(graph_module: GraphModule) -> dict[str, list[int]]:
    """Returns the ranks of each group in which a graph, or an engine of it, has collectives, by the group's name."""
    names = {each.group for each in collectives_in(graph_module)}
    return {name: ranks_of(name) for name in sorted(names)}


def ranks_of(group: Any) -> list[int]:
    """Returns the ranks of a process group, in its order.

    Args:
        group: The group's name, or the group.

    Raises:
        ProcessGroupError: There is no group of this name.
    """
    try:
        found = named_process_group(group)
    except Exception as error:  # of PyTorch, which has several kinds
        raise ProcessGroupError(
            f"The model has collectives in the process group {group!r}, which does not exist. {_GROUPS}"
        ) from error
    return list(torch.distributed.get_process_group_ranks(found))


def collectives_in(graph_module: GraphModule) -> tuple[Collective, ...]:
    """Returns the collectives of a graph and of its engines, in order."""
    return tuple(each for _, found in _places(graph_module) for each in found)


def _places(graph_module: GraphModule) -> Iterator[tuple[str, Sequence[Collective]]]:
    """Yields the collectives that run at one place: where they run, and one of PyTorch or those of an engine."""
    for node in graph_module.graph.nodes:
        if node.op == "call_module":
            part: Any = graph_module.get_submodule(str(node.target))
            is_block = isinstance(part, GraphModule)  # of a dry run
            yield "engine", collectives_in(part) if is_block else getattr(part, "collectives", ())
        elif (collective := _collective(graph_module, node)) is not None:
            yield "PyTorch", (collective,)
        for inside in inner_graphs(node):
            yield from _places(inside)


def _collective(graph_module: GraphModule, node: Node) -> Collective | None:
    """Returns a node as a collective; None for another op, and for a wait."""
    if getattr(node.target, "namespace", None) not in _NAMESPACES:
        return None
    call = node.normalized_arguments(graph_module, normalize_to_only_use_kwargs=True)
    given = node.kwargs if call is None else call.kwargs
    if "group_name" not in given:
        return None
    words = tuple(
        str(value)
        for key, value in given.items()
        if isinstance(value, (str, int)) and key != "group_name"
    )
    return Collective(str(node.target), str(given["group_name"]), words)


def process_group() -> Any:
    """Returns the group of all processes.

    Raises:
        ProcessGroupError: ``torch.distributed`` is not initialized.
    """
    try:
        return default_process_group()
    except ValueError as error:
        raise ProcessGroupError(
            "The model exchanges tensors with other processes, and torch.distributed is not initialized. Call it "
            "between torch.distributed.init_process_group() and destroy_process_group()."
        ) from error


def communicator_of(group: Any, device: torch.device) -> Any:
    """Returns what an execution context of the TensorRT in use takes to exchange tensors in a process group.

    Args:
        group: The group of all processes.
        device: Where the engine runs.
    """
    if supports(Capability.PROCESS_GROUPS):
        return group
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype = ctypes.py_object
    new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new_capsule(nccl_communicator(group, device), b"ncclComm_t", None)


def as_broken_exchange(error: BaseException) -> ProcessGroupError | None:
    """Returns an error with advice for one that a collective of PyTorch raised; None for any other."""
    lines = (frame.line or "" for frame in traceback.extract_tb(error.__traceback__))
    is_collective = any(f"ops.{name}." in line for line in lines for name in _NAMESPACES)
    if isinstance(error, torch.distributed.DistError) or is_collective:
        return broken_exchange(str(error).partition("\n")[0])
    return None


def engine_failure(name: str, reason: str, exchanges: bool) -> EngineError:
    """Returns the error of an engine that TensorRT did not execute.

    Args:
        name: The engine's name.
        reason: The text that TensorRT logged.
        exchanges: Whether the engine exchanges tensors with other processes.
    """
    if exchanges and _EXCHANGE.search(reason):
        return broken_exchange(reason)
    return EngineError(f"The engine of {name} failed: {reason}")


def broken_exchange(reason: str) -> ProcessGroupError:
    """Returns an error with advice for a failed exchange of tensors; ``reason`` is the text of who noticed it."""
    rank, found = torch.distributed.get_rank(), reason.rstrip(". ")
    return ProcessGroupError(
        f"Rank {rank} cannot exchange tensors with the other processes of the model: {found}. "
        "A process has ended, or has called the model with inputs of other sizes. Read the output of all ranks, and "
        "start all of them again."
    )
