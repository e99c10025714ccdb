"""The magnitudes of a program's values on batches that the user gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.fx import Interpreter, Node

from torchtrt.errors import InputError, SettingsError, kind_of
from torchtrt.graphs.nodes import is_number, mutates
from torchtrt.torch_internals import pytree
from torchtrt_compiler.lowering.program import Program
from torchtrt_runtime.checks.numbers import as_sizes
from torchtrt_runtime.processes.groups import Processes

_SETTING = "autocast_calibration_dataloader"


def largest_magnitudes(program: Program, batches: Iterable[Any] | None) -> Mapping[Node, float]:
    """Returns the largest finite magnitude of each node's floating-point results among batches.

    The graph runs as it is, on the devices of its inputs, and writes to nothing.

    Args:
        program: The program.
        batches: Inputs of the model: a sequence of positional ones, a dictionary of keyword inputs, or the only input.

    Raises:
        SettingsError: There are no batches, or the processes of the model could decide differently.
        InputError: A batch does not fit the model.
    """
    if batches is None:
        return {}
    processes = Processes.of(program.graph_module)
    if processes is not None and processes.are_several:
        raise SettingsError(
            f"{_SETTING} measures one process, and the model exchanges tensors with others, which have to compute in "
            "the same dtypes. Name what computes in float32 in autocast_excluded_ops or autocast_excluded_nodes."
        )
    measuring = _Measuring(program.graph_module)
    number = -1
    devices = {leaf.device for node in program.placeholders for leaf in _tensors(node.meta["val"])}
    with torch.random.fork_rng([device for device in devices if device.type == "cuda"]):
        for number, batch in enumerate(_read(batches)):
            leaves = _leaves(program, batch, f"Batch {number} of {_SETTING}")
            try:
                measuring.run(*leaves, enable_io_processing=False)
            except Exception as error:
                raise InputError(
                    f"The model cannot run batch {number} of {_SETTING}: {str(error).splitlines()[0]}"
                ) from error
    if number < 0:
        raise SettingsError(
            f"{_SETTING} has no batches. An iterator can be read once: give a list, or a DataLoader."
        )
    return measuring.largest


class _Measuring(Interpreter):
    """Runs a graph that writes at its end alone, without these writes.

    Attributes:
        largest: The largest magnitude of each node so far.
    """

    def __init__(self, graph_module: torch.fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.largest: dict[Node, float] = {}

    def run_node(self, n: Node) -> Any:
        """Returns the result of a node, and keeps its magnitude."""
        if mutates(n):
            return self.fetch_args_kwargs_from_env(n)[0][0]
        result = super().run_node(n)
        largest = self.largest.get(n, 0)
        for leaf in _tensors(result):
            if leaf.is_floating_point() and leaf.numel():
                # PyTorch computes little with numbers of 8 bits.
                wide = leaf.detach().float() if leaf.dtype.itemsize == 1 else leaf.detach()
                largest = max(largest, wide.nan_to_num(0, 0, 0).abs().amax().item())
        self.largest[n] = largest
        return result


def _read(batches: Iterable[Any]) -> Iterator[Any]:
    """Yields the batches.

    Raises:
        InputError: Reading one raised an error.
    """
    iterator = iter(batches)
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            raise InputError(
                f"Reading a batch of {_SETTING} raised {type(error).__name__}: {error}"
            ) from error
        yield batch


def _leaves(program: Program, batch: Any, what: str) -> list[Any]:
    """Returns a batch as the graph takes it.

    Raises:
        InputError: Its inputs nest otherwise, or have another dtype, rank or fixed size.
    """
    args: tuple[Any, ...] = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    call = ((), dict(batch)) if isinstance(batch, Mapping) else (args, {})
    names = [node.name for node in program.placeholders]
    try:
        if isinstance(batch, Mapping) and batch.keys() == set(names):
            leaves = [batch[name] for name in names]  # of positional inputs, too
        else:
            leaves = program.input_tree.flatten_up_to(call)
    except ValueError as error:
        raise InputError(
            f"{what} has other inputs than the model, which takes {', '.join(names)}. Give a sequence of the "
            "positional inputs, or a dictionary by name, without labels: a DataLoader's collate_fn can leave them out."
        ) from error
    numbers = [index for index, node in enumerate(program.placeholders) if is_number(node)]
    taken = []
    for node, leaf in zip(program.placeholders, as_sizes(leaves, numbers), strict=True):
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            taken.append(leaf)
            continue
        if not isinstance(leaf, torch.Tensor):
            raise InputError(
                f"{what} has {kind_of(leaf)} for the input {node.target!r}, not a tensor."
            )
        fits = leaf.dim() == value.dim() and all(
            not isinstance(wanted, int) or wanted == size
            for wanted, size in zip(value.shape, leaf.shape, strict=True)
        )
        if leaf.dtype is not value.dtype or not fits:
            shape = ", ".join(str(size) if isinstance(size, int) else "any" for size in value.shape)
            raise InputError(
                f"{what} has a {leaf.dtype} tensor of shape {tuple(leaf.shape)} for the input {node.target!r}. The "
                f"model is compiled for {value.dtype} of shape ({shape})."
            )
        taken.append(leaf.detach().to(value.device))
    return taken


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
