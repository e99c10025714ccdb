"""Compares engines with PyTorch while a program is compiled, and says which one computes something else.

TensorRT 8.6 builds some networks with several dynamic sizes into engines that are right for the sizes they are
optimized for, and wrong for others. Only a comparison shows it. The engine builder divides such a block, as it
divides one that cannot be built.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from torchtrt.contract import arguments_of, value_of
from torchtrt.conversion.size_ranges import Profile
from torchtrt.errors import BuildError, EngineError, InputError
from torchtrt.graphs.nodes import draws_random_numbers
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, is_real, supports
from torchtrt.tensorrt.selection import describe
from torchtrt_compiler.lowering import Program
from torchtrt_compiler.profiling import unchanged
from torchtrt_compiler.record import current_record
from torchtrt_runtime.engine_module import EngineModule
from torchtrt_runtime.process_groups import groups_in

aten = torch.ops.aten
LIMIT = 0.2
"""The largest difference that counts as rounding, as a share of the largest magnitude of an output."""
_LEAST_SCALE = 1e-4
_Inputs = tuple[Sequence[Any], Mapping[str, Any]]


class EngineChecks:
    """Compares engines with their blocks in PyTorch, for inputs of several sizes.

    Args:
        program: The program.
        profiles: The sizes that are compared. Without any, nothing is.
        given: The inputs that the caller gave, positional and by keyword.
    """

    def __init__(self, program: Program, profiles: Sequence[Profile], given: _Inputs) -> None:
        self.placeholders = program.placeholders
        self.profiles = profiles
        self.examples = _examples(program, given)
        self.right: set[EngineModule] = set()

    def objection(
        self,
        graph_module: GraphModule,
        blocks: Mapping[str, GraphModule],
        engines: Mapping[str, EngineModule],
    ) -> tuple[str, BuildError] | None:
        """Returns the first engine that computes something else than PyTorch, by name, and what it does.

        Args:
            graph_module: The graph with the blocks, in PyTorch.
            blocks: The blocks by name.
            engines: The engine of each block. Those that were right before are not compared again.

        Raises:
            BuildError: An engine left the GPU unusable.
        """
        compared = {
            name: engine
            for name, engine in engines.items()
            if engine not in self.right
            and not any(map(draws_random_numbers, blocks[name].graph.nodes))
        }
        for profile in self.profiles if compared else ():
            for sizes in sizes_to_compare(profile):
                leaves = self._inputs(sizes)
                shapes = ", ".join(
                    str(list(each.shape)) for each in leaves if isinstance(each, torch.Tensor)
                )
                with _comparing(blocks, compared) as found, unchanged(graph_module, leaves):
                    _run(graph_module, leaves)
                for name, difference in found.items():
                    return name, BuildError(
                        f"{describe()} computes something else than PyTorch for inputs of the sizes {shapes}: "
                        f"{difference}"
                    )
        self.right.update(compared.values())
        return None

    def _inputs(self, sizes: Mapping[Any, int]) -> list[Any]:
        """Returns inputs of these sizes: the caller's examples, repeated or cut, or generated numbers."""
        leaves: list[Any] = []
        for node, example in zip(self.placeholders, self.examples, strict=True):
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                leaves.append(int(value.node.expr.xreplace(sizes)))
            elif isinstance(value, torch.Tensor):
                shape = [
                    size if isinstance(size, int) else int(size.node.expr.xreplace(sizes))
                    for size in value.shape
                ]
                leaves.append(
                    _resized(example, shape) if example is not None else _generated(node, shape)
                )
            else:
                leaves.append(value)
        return leaves


def engine_checks_for(
    program: Program, profiles: Sequence[Profile], given: _Inputs, settings: CompilationSettings
) -> EngineChecks:
    """Returns what compares the engines of a program, as the setting ``verify`` asks.

    Without the setting, they are compared where TensorRT is known to need it. Nothing is compared where weights are
    offloaded or left out of engines, and in programs of several processes.
    """
    is_suspect = is_real() and not supports(Capability.SEVERAL_VARYING_SIZES)
    is_needed = settings.verify is None and is_suspect
    varying = max(
        (sum(each.min < each.max for each in profile.values()) for profile in profiles), default=0
    )
    is_wanted = settings.verify == "engines" or (is_needed and varying > 1)
    # PyTorch needs the weights on the GPU, engines need theirs, and processes must not wait for each other.
    is_possible = not (settings.offload_module_to_cpu or settings.strip_engine_weights)
    if not is_wanted or not is_possible or groups_in(program.graph_module):
        profiles = ()
    return EngineChecks(program, profiles, given)


def sizes_to_compare(profile: Profile) -> Iterator[dict[Any, int]]:
    """Yields sizes of a profile: the optimal ones, its limits, and each size at one limit and the others at the other.

    Args:
        profile: The range of each symbol.
    """
    seen: list[dict[Any, int]] = []
    mixed = [(symbol, *bounds) for symbol in profile for bounds in (("max", "min"), ("min", "max"))]
    for own, mine, others in (
        (None, "opt", "opt"),
        (None, "min", "min"),
        (None, "max", "max"),
        *mixed,
    ):
        sizes = {
            symbol: int(getattr(bounds, mine if symbol == own else others))
            for symbol, bounds in profile.items()
        }
        if sizes not in seen:
            seen.append(sizes)
            yield sizes


@contextlib.contextmanager
def _comparing(
    blocks: Mapping[str, GraphModule], engines: Mapping[str, EngineModule]
) -> Iterator[dict[str, str]]:
    """Runs the engine of each block whenever the block runs, and yields what differs, by name."""
    found: dict[str, str] = {}

    def compare(name: str, inputs: tuple[Any, ...], expected: Any) -> None:
        if name in found:
            return
        try:
            actual = engines[name](*inputs)
        except (EngineError, InputError) as error:
            found[name] = str(error)
        else:
            if difference := _difference(actual, expected):
                found[name] = difference

    hooks = [
        blocks[name].register_forward_hook(
            lambda _, inputs, result, name=name: compare(name, inputs, result)
        )
        for name in engines
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _run(graph_module: GraphModule, leaves: Sequence[Any]) -> None:
    """Runs a graph. Sizes that the model itself does not take, or that the GPU has no room for, tell nothing.

    Raises:
        BuildError: The GPU cannot be used any more.
    """
    try:
        with torch.no_grad():
            graph_module(*leaves)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
    except torch.AcceleratorError as error:
        raise BuildError(
            f"{describe()} built an engine that reads or writes memory of others, and this process can use the GPU no "
            "more. In a new process, compile for fewer or smaller ranges of sizes, or leave some ops to PyTorch with "
            f"torch_executed_ops: {error}"
        ) from error
    except Exception as error:
        current_record().decision("not compared", f"{type(error).__name__}: {error}")


def _difference(actual: Any, expected: Any) -> str:
    """Returns where results differ by more than rounding; ``""`` where they do not. Integers may: they may be ranks."""
    pairs = zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True)
    for place, (mine, theirs) in enumerate(pairs):
        if mine.shape != theirs.shape:
            return (
                f"output {place} has the shape {list(mine.shape)} instead of {list(theirs.shape)}"
            )
        right, found = theirs.float(), mine.float()
        is_finite = right.isfinite()
        if not theirs.dtype.is_floating_point or not bool(is_finite.any()):
            continue
        right, found = right[is_finite], found[is_finite]
        wrong = (found - right).abs().nan_to_num(nan=float("inf")).max()
        largest = right.abs().max().clamp_min(_LEAST_SCALE)
        if wrong > LIMIT * largest:
            return f"output {place} differs by {float(wrong):.3g}, and its largest element is {float(largest):.3g}"
    return ""


def _examples(program: Program, given: _Inputs) -> list[torch.Tensor | None]:
    """Returns the caller's example of each input, or None."""
    leaves: Sequence[Any] = ()
    with contextlib.suppress(ValueError):  # by other names: then there are generated numbers
        leaves = program.input_tree.flatten_up_to((tuple(given[0]), dict(given[1])))
    if len(leaves) != len(program.placeholders):
        leaves = [None] * len(program.placeholders)
    return [
        each.detach() if isinstance(each, torch.Tensor) and each.numel() else None
        for each in leaves
    ]


def _resized(example: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Returns an example of another shape: its elements, repeated or cut along each dimension."""
    for dim, size in enumerate(shape):
        places = torch.arange(size, device=example.device) % example.shape[dim]
        example = example.index_select(dim, places)
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
    # Only an embedding tells which numbers are valid; an index that is out of range ends the use of a GPU.
    readers = [arguments_of(user) for user in node.users if user.target is aten.embedding.default]
    rows = [value_of(each.weight).shape[0] for each in readers if each.indices is node]
    if rows and not dtype.is_complex:
        most = min(map(int, rows))
        return torch.randint(most, tuple(shape), device=device, generator=random).to(dtype)
    return torch.zeros(shape, dtype=dtype, device=device)
