"""The processes among which a compiled model exchanges tensors, and its collectives."""

from __future__ import annotations

import ctypes
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from torchtrt.errors import EngineError, ProcessGroupError
from torchtrt.graphs.nodes import inner_graphs
from torchtrt.tensorrt import Capability, supports
from torchtrt_runtime.processes import shifts
from torchtrt_runtime.torch_internals import (
    default_process_group,
    named_process_group,
    nccl_communicator,
)

_NAMESPACES = frozenset({"_c10d_functional", "_c10d_functional_autograd", shifts.NAMESPACE})
_GROUPS = "Make the same device meshes and groups in the same order as before compiling."
_EXCHANGE = re.compile("nccl|dist_collective", re.IGNORECASE)
"""Errors of layers that exchange tensors contain one of these texts."""


def is_distributed(value: Any) -> bool:
    """Returns whether a value is a ``DTensor``: one tensor of several processes."""
    module = sys.modules.get("torch.distributed.tensor")  # code that made one has imported it
    return module is not None and isinstance(value, module.DTensor)


def is_collective(target: Any) -> bool:
    """Returns whether processes exchange tensors in an op, or wait in it for an exchange."""
    return getattr(target, "namespace", None) in _NAMESPACES


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
        actual = tuple(ranks_of(name))
        if actual != ranks:
            raise ProcessGroupError(
                f"The process group {name!r} has the ranks {list(actual)}; when the model was compiled, it had "
                f"{list(ranks)}. {_GROUPS}"
            )


def groups_in(graph_module: GraphModule) -> dict[str, list[int]]:
    """Returns the ranks of each group in which a graph, or an engine of it, has collectives, by the group's name."""
    names = {collective.group for collective in collectives_in(graph_module)}
    return {name: ranks_of(name) for name in sorted(names)}


def ranks_of(group: Any) -> list[int]:
    """Returns the ranks of a process group, in its order.

    Args:
        group: The group's name, or the group.

    Raises:
        ProcessGroupError: There is no group of this name.
    """
    try:
        resolved_group = named_process_group(group)
    except Exception as error:  # of PyTorch, which has several kinds
        raise ProcessGroupError(
            f"The model has collectives in the process group {group!r}, which does not exist. {_GROUPS}"
        ) from error
    return list(torch.distributed.get_process_group_ranks(resolved_group))


def collectives_in(graph_module: GraphModule) -> tuple[Collective, ...]:
    """Returns the collectives of a graph and of its engines, in order."""
    return tuple(
        collective for _, collectives in places_of(graph_module) for collective in collectives
    )


def places_of(graph_module: GraphModule) -> Iterator[tuple[str, Sequence[Collective]]]:
    """Yields the collectives that run at one place: where they run, and one of PyTorch or those of an engine."""
    for node in graph_module.graph.nodes:
        if node.op == "call_module":
            part: Any = graph_module.get_submodule(str(node.target))
            is_block = isinstance(part, GraphModule)  # of a dry run
            yield "engine", collectives_in(part) if is_block else getattr(part, "collectives", ())
        elif (collective := _collective(graph_module, node)) is not None:
            yield "PyTorch", (collective,)
        for inside in inner_graphs(node):
            yield from places_of(inside)


def _collective(graph_module: GraphModule, node: Node) -> Collective | None:
    """Returns a node as a collective; None for another op, and for a wait."""
    if not is_collective(node.target):
        return None
    call = node.normalized_arguments(graph_module, normalize_to_only_use_kwargs=True)
    arguments = node.kwargs if call is None else call.kwargs
    if "group_name" not in arguments:
        return None
    words = tuple(
        str(value)
        for key, value in arguments.items()
        if isinstance(value, (str, int)) and key != "group_name"
    )
    return Collective(str(node.target), str(arguments["group_name"]), words)


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
    rank, cause = torch.distributed.get_rank(), reason.rstrip(". ")
    return ProcessGroupError(
        f"Rank {rank} cannot exchange tensors with the other processes of the model: {cause}. "
        "A process has ended, or has called the model with inputs of other sizes. Read the output of all ranks, and "
        "start all of them again."
    )
