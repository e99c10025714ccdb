"""Compares engines with PyTorch while a program is compiled, and reports which one computes something else.

TensorRT 8.6 builds some networks with several dynamic sizes into engines that are right for the sizes they are
optimized for, and wrong for others. Only a comparison shows it. The engine builder divides such a block, as it
divides one that cannot be built.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
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
_STEPS = {torch.bfloat16: 2.0**-8}
_STEP = 2.0**-11
"""The rounding of other numbers: float32 is TF32 in the matrix products of engines."""
_ROUNDED_RUNS = 3
_MARGIN = 4.0
"""How many times as much as rounding a difference must be."""
_MOST_BYTES = 2**31
"""The memory that PyTorch may need on a CPU for the comparison of some sizes."""
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
        self.graph = program.graph_module.graph
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
            for sizes in filter(self._has_room, sizes_to_compare(profile)):
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

    def _has_room(self, sizes: Mapping[Any, int]) -> bool:
        """Returns whether a CPU's memory suffices for these sizes. A GPU raises an error where its own does not."""
        values = [node.meta.get("val") for node in self.placeholders]
        if any(isinstance(each, torch.Tensor) and each.device.type != "cpu" for each in values):
            return True
        needed = _most_bytes(self.graph, sizes)
        if needed > _MOST_BYTES:
            shown = ", ".join(map(str, sizes.values()))
            current_record().decision(
                "not compared", f"the sizes {shown} need {needed / 2**30:.1f} GiB"
            )
        return needed <= _MOST_BYTES

    def _inputs(self, sizes: Mapping[Any, int]) -> list[Any]:
        """Returns inputs of these sizes: the caller's examples, repeated or cut, or generated numbers."""
        leaves: list[Any] = []
        for node, example in zip(self.placeholders, self.examples, strict=True):
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                leaves.append(_size(value, sizes))
            elif isinstance(value, torch.Tensor):
                shape = [_size(size, sizes) for size in value.shape]
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
            # Several outputs may be suspects: the runs serve all of them.
            rounded = functools.cache(lambda: _rounded_runs(blocks[name], inputs))
            if difference := _difference(actual, expected, rounded):
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
    """Runs a graph. Sizes that the model itself does not take, or that the GPU has no room for, are skipped.

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


def _difference(actual: Any, expected: Any, rounded: Callable[[], Sequence[Any]]) -> str:
    """Returns where results differ by more than rounding; ``""`` where they do not. Integers may: they may be ranks.

    Args:
        actual: The outputs of an engine.
        expected: Those of PyTorch.
        rounded: Returns those of PyTorch where all numbers are rounded, several times. Only suspects need them.
    """
    pairs = zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True)
    for place, (mine, theirs) in enumerate(pairs):
        if mine.shape != theirs.shape:
            return (
                f"output {place} has the shape {list(mine.shape)} instead of {list(theirs.shape)}"
            )
        if not theirs.dtype.is_floating_point or not bool(theirs.float().isfinite().any()):
            continue
        wrong = _distance(mine, theirs)
        finite = theirs.float().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        largest = max(float(finite.abs().max()), _LEAST_SCALE)
        if wrong > LIMIT * largest and wrong > _MARGIN * max(
            _distance(pytree.tree_leaves(each)[place], theirs) for each in rounded()
        ):
            return (
                f"output {place} differs by {wrong:.3g}, and its largest element is {largest:.3g}"
            )
    return ""


def _distance(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    """Returns the largest difference where the second tensor is finite; infinite where the first is not a number."""
    right = theirs.float()  # FP8 has no isfinite
    is_finite = right.isfinite()
    difference = mine.float()[is_finite] - right[is_finite]
    return float(difference.abs().nan_to_num(nan=float("inf")).max())


def _rounded_runs(block: GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Returns the results of a block in PyTorch whose numbers are rounded, each time at random."""
    return [_Rounding(block, seed).run(*inputs) for seed in range(_ROUNDED_RUNS)]


class _Rounding(Interpreter):
    """Runs a block in PyTorch, and changes each number by as much as rounding may change it.

    Differences of numbers that are about equal, and choices among them, then change as much as they may in an engine.

    Args:
        block: The block.
        seed: Where the random changes start.
    """

    def __init__(self, block: GraphModule, seed: int) -> None:
        super().__init__(block)
        self.seed = seed

    def run_node(self, n: Node) -> Any:
        """Runs a node, and changes its result. Whole numbers are exact."""
        result = super().run_node(n)
        is_number = isinstance(result, torch.Tensor) and result.dtype.is_floating_point
        if n.op == "output" or not is_number or result.element_size() == 1:
            return result
        random = torch.Generator(result.device).manual_seed(self.seed)
        self.seed += _ROUNDED_RUNS
        signs = torch.rand(result.shape, device=result.device, generator=random).mul_(2).sub_(1)
        change = 1 + signs * _STEPS.get(result.dtype, _STEP)
        return torch.where(result == result.round(), result, (result * change).to(result.dtype))


def _size(size: Any, sizes: Mapping[Any, int]) -> int:
    """Returns a size of an example for the size of each symbol."""
    return size if isinstance(size, int) else int(size.node.expr.xreplace(sizes))


def _most_bytes(graph: Graph, sizes: Mapping[Any, int]) -> int:
    """Returns about how much memory the results of a graph need at a time. Sizes that depend on data count as none."""
    known = functools.cache(lambda expr: expr.xreplace(sizes))

    def elements_of(value: torch.Tensor) -> int:
        shape: list[Any] = [getattr(each, "node", each) for each in value.shape]
        shape = [each if isinstance(each, int) else known(each.expr) for each in shape]
        return 0 if any(getattr(each, "free_symbols", ()) for each in shape) else math.prod(shape)

    def bytes_of(node: Node) -> int:
        values = pytree.tree_leaves(node.meta.get("val"))
        tensors = [each for each in values if isinstance(each, torch.Tensor)]
        return sum(int(elements_of(each)) * each.element_size() for each in tensors)

    last = {each: node for node in graph.nodes for each in node.all_input_nodes}
    freed: dict[Node, list[Node]] = {}
    for node, reader in last.items():
        freed.setdefault(reader, []).append(node)
    held = most = 0
    for node in graph.nodes:
        held += bytes_of(node)
        most = max(most, held)
        held -= sum(map(bytes_of, freed.get(node, ())))
    return most


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
    # Only an embedding has a known range of valid numbers; an index that is out of range ends the use of a GPU.
    readers = [arguments_of(user) for user in node.users if user.target is aten.embedding.default]
    rows = [value_of(each.weight).shape[0] for each in readers if each.indices is node]
    if rows and not dtype.is_complex:
        most = min(map(int, rows))
        return torch.randint(most, tuple(shape), device=device, generator=random).to(dtype)
    return torch.zeros(shape, dtype=dtype, device=device)
