"""Calls that the compiler makes itself, to compare, measure and profile: their inputs, their state, and their time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.contract import arguments_of, value_of
from torchtrt.graphs.nodes import writes
from torchtrt.graphs.symbols import size_at
from torchtrt_compiler.inputs import CallInputs
from torchtrt_compiler.lowering import Program
from torchtrt_runtime import CompiledModule
from torchtrt_runtime.checks.tensors import TensorCheck

aten = torch.ops.aten
WARM_UPS = 3
"""Calls before any is measured: what is made on first calls, captured graphs too, is not what calls take."""


def example_leaves(compiled: CompiledModule, sizes: Mapping[Any, int] | None = None) -> list[Any]:
    """Returns inputs, flattened, of random numbers or ones. No number is negative, so that most models take them.

    Args:
        compiled: The compiled model.
        sizes: The size of each symbol; those that the engines are optimized for if omitted.
    """
    checks, device = compiled.checks, _device_of(compiled)
    random = torch.Generator(device).manual_seed(0)  # the caller's draws what it would without
    if sizes is None:
        sizes = {symbol: bounds.opt for symbol, bounds in checks.profiles[0].items()}
    leaves = []
    for _, wanted in checks.inputs:
        leaf = wanted
        if isinstance(wanted, TensorCheck):
            shape = [size_at(size, sizes) for size in wanted.sizes]
            leaf = torch.ones(shape, dtype=wanted.dtype, device=device)
            leaf = leaf.uniform_(generator=random) if wanted.dtype.is_floating_point else leaf
        leaves.append(leaf)
    return leaves


def given_leaves(compiled: CompiledModule, inputs: CallInputs) -> Sequence[Any]:
    """Returns the caller's inputs, flattened; none for an exported program, which has inputs of its own."""
    return compiled.flatten(*inputs.tree) if inputs.args or inputs.kwargs else ()


def with_given(leaves: Sequence[Any], examples: Sequence[Any]) -> list[Any]:
    """Returns inputs with copies of the caller's in the places where these have the same shapes.

    Args:
        leaves: Flattened inputs.
        examples: The caller's, flattened; may be empty.
    """
    return [
        theirs.detach().clone() if is_plain(theirs) and theirs.shape == leaf.shape else leaf
        for leaf, theirs in zip(leaves, examples or [None] * len(leaves), strict=True)
    ]


def is_plain(value: Any) -> bool:
    """Returns whether a value is a tensor of no further subclass."""
    return type(value) in (torch.Tensor, torch.nn.Parameter)


def _device_of(compiled: CompiledModule) -> torch.device:
    tensors = (*compiled.parameters(), *compiled.buffers())
    if tensors:
        return tensors[0].device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ProgramInputs:
    """Inputs of a program in several sizes, with values as close to the caller's as possible.

    Args:
        program: The program.
        inputs: The inputs that the caller gave.
    """

    def __init__(self, program: Program, inputs: CallInputs) -> None:
        self.placeholders = program.placeholders
        self.examples = _examples(program, inputs)

    def of(self, sizes: Mapping[Any, int]) -> list[Any]:
        """Returns inputs of these sizes: the caller's examples, repeated or cut, or generated numbers."""
        leaves: list[Any] = []
        for node, example in zip(self.placeholders, self.examples, strict=True):
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                leaves.append(size_at(value, sizes))
            elif isinstance(value, torch.Tensor):
                shape = [size_at(size, sizes) for size in value.shape]
                leaves.append(
                    _resized(example, shape) if example is not None else _generated(node, shape)
                )
            else:
                leaves.append(value)
        return leaves


def _examples(program: Program, inputs: CallInputs) -> list[torch.Tensor | None]:
    """Returns the caller's example of each input, or None."""
    leaves: Sequence[Any] = ()
    with contextlib.suppress(ValueError):  # by other names: then there are generated numbers
        leaves = program.input_tree.flatten_up_to(inputs.tree)
    if len(leaves) != len(program.placeholders):
        leaves = [None] * len(program.placeholders)
    return [
        leaf.detach() if isinstance(leaf, torch.Tensor) and leaf.numel() else None
        for leaf in leaves
    ]


def _resized(example: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Returns an example of another shape: its elements, repeated or cut along each dimension."""
    for dim, size in enumerate(shape):
        indices = torch.arange(size, device=example.device) % example.shape[dim]
        example = example.index_select(dim, indices)
    return example.clone()


def _generated(node: Node, shape: Sequence[int]) -> torch.Tensor:
    """Returns an input: random floating-point numbers, true, and integers that are valid as indices."""
    value = node.meta["val"]
    device, dtype = value.device, value.dtype
    random = torch.Generator(device).manual_seed(0)
    if dtype.is_floating_point:
        return torch.rand(shape, device=device, generator=random).mul_(2).sub_(1).to(dtype)
    if dtype is torch.bool:
        return torch.ones(shape, dtype=dtype, device=device)
    # Only an embedding has a known range of valid numbers; an index that is out of range ends the use of a GPU.
    readers = [arguments_of(user) for user in node.users if user.target is aten.embedding.default]
    rows = [value_of(reader.weight).shape[0] for reader in readers if reader.indices is node]
    if rows and not dtype.is_complex:
        most = min(map(int, rows))
        return torch.randint(most, tuple(shape), device=device, generator=random).to(dtype)
    return torch.zeros(shape, dtype=dtype, device=device)


@contextlib.contextmanager
def unchanged(graph_module: GraphModule, leaves: Sequence[Any]) -> Iterator[Callable[[], None]]:
    """Yields a function that gives what a model writes to, its own or an input, what it held; so does the end.

    Random numbers that are drawn meanwhile are not missing afterwards.
    """
    graph = graph_module.graph
    leaf_by_input = dict(zip(graph.find_nodes(op="placeholder"), leaves, strict=True))
    targets = {node.args[0] for node in graph.nodes if writes(node)}
    own = {str(target.target) for target in targets if target.op == "get_attr"}
    written = [leaf_by_input[target] for target in targets if target in leaf_by_input]
    written += [attrgetter(name)(graph_module) for name in own]
    held = [(tensor, tensor.clone()) for tensor in written]

    def restore() -> None:
        for tensor, value in held:
            tensor.copy_(value)

    device = Clock.of(leaves).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield restore
        finally:
            restore()


class Clock:
    """Measures a function from when the device is idle to when it is idle again.

    Args:
        device: Where it runs.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @classmethod
    def of(cls, leaves: Sequence[Any]) -> Clock:
        """Returns the clock for a call with these flattened inputs."""
        devices = (leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor))
        return cls(next(devices, torch.device("cpu")))

    def measure(self, function: Callable[[], Any]) -> tuple[Any, float]:
        """Returns what the function returns, and the milliseconds that it takes."""
        self.wait()
        start = time.perf_counter()
        result = function()
        self.wait()
        return result, (time.perf_counter() - start) * 1e3

    def wait(self) -> None:
        """Waits until the device is idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
