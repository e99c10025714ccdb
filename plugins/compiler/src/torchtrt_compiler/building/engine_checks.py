"""Compares engines with PyTorch while a program is compiled, and reports which one computes something else.

TensorRT 8.6 builds some networks with several dynamic sizes into engines that are right for the sizes they are
optimized for, and wrong for others. Only a comparison shows it. The engine builder divides such a block, as it
divides one that cannot be built.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from torchtrt.errors import BuildError, EngineError, InputError
from torchtrt.graphs.nodes import draws_random_numbers
from torchtrt.graphs.symbols import size_at
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, is_real, supports
from torchtrt.tensorrt.selection import describe
from torchtrt.torch_internals import pytree
from torchtrt_compiler.building.rounding import difference_beyond_rounding, rounded_runs
from torchtrt_compiler.inputs import CallInputs
from torchtrt_compiler.lowering import Program
from torchtrt_compiler.record import current_record
from torchtrt_compiler.sizes.accepted import Values, nearest_point
from torchtrt_compiler.sizes.program_sizes import CompiledSizes
from torchtrt_compiler.trial_calls import ProgramInputs, unchanged
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.processes.groups import groups_in
from torchtrt_runtime.size_ranges import Profile

_MOST_BYTES = 2**31
"""The memory that PyTorch may need on a CPU for the comparison of some sizes."""


class EngineChecks:
    """Compares engines with their blocks in PyTorch, for inputs of several sizes.

    Args:
        program: The program.
        profiles: The sizes that are compared. Without any, nothing is.
        conditions: What sizes of calls satisfy besides.
        inputs: The program's inputs in any sizes.
    """

    def __init__(
        self,
        program: Program,
        profiles: Sequence[Profile],
        conditions: Sequence[Any],
        inputs: ProgramInputs,
    ) -> None:
        self.placeholders = program.placeholders
        self.graph = program.graph_module.graph
        self.profiles, self.conditions = profiles, conditions
        self.inputs = inputs
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
            for sizes in filter(self._has_room, sizes_to_compare(profile, self.conditions)):
                leaves = self.inputs.of(sizes)
                shapes = ", ".join(
                    str(list(leaf.shape)) for leaf in leaves if isinstance(leaf, torch.Tensor)
                )
                with (
                    _comparing(blocks, compared) as differences,
                    unchanged(graph_module, leaves),
                ):
                    _run(graph_module, leaves)
                for name, difference in differences.items():
                    return name, BuildError(
                        f"{describe()} computes something else than PyTorch for inputs of the sizes {shapes}: "
                        f"{difference}"
                    )
        self.right.update(compared.values())
        return None

    def _has_room(self, sizes: Mapping[Any, int]) -> bool:
        """Returns whether a CPU's memory suffices for these sizes. A GPU raises an error where its own does not."""
        values = [node.meta.get("val") for node in self.placeholders]
        if any(isinstance(value, torch.Tensor) and value.device.type != "cpu" for value in values):
            return True
        needed = _most_bytes(self.graph, sizes)
        if needed > _MOST_BYTES:
            shown = ", ".join(map(str, sizes.values()))
            current_record().decision(
                "not compared", f"the sizes {shown} need {needed / 2**30:.1f} GiB"
            )
        return needed <= _MOST_BYTES


def engine_checks_for(
    program: Program,
    sizes: CompiledSizes,
    inputs: CallInputs,
    settings: CompilationSettings,
) -> EngineChecks:
    """Returns what compares the engines of a program, as the setting ``verify`` asks.

    Without the setting, they are compared where TensorRT is known to need it. Nothing is compared where weights are
    offloaded or left out of engines, and in programs of several processes.
    """
    is_suspect = is_real() and not supports(Capability.SEVERAL_VARYING_SIZES)
    is_needed = settings.verify is None and is_suspect
    profiles = sizes.profiles
    varying = max(
        (sum(size.min < size.max for size in profile.values()) for profile in profiles), default=0
    )
    is_wanted = settings.verify == "engines" or (is_needed and varying > 1)
    # PyTorch needs the weights on the GPU, engines need theirs, and processes must not wait for each other.
    is_possible = not (settings.offload_module_to_cpu or settings.strip_engine_weights)
    if not is_wanted or not is_possible or groups_in(program.graph_module):
        profiles = ()
    return EngineChecks(program, profiles, sizes.conditions, ProgramInputs(program, inputs))


def sizes_to_compare(profile: Profile, conditions: Sequence[Any] = ()) -> Iterator[Values]:
    """Yields sizes of a profile: the optimal ones, its limits, and each size at one limit and the others at the other.

    TensorRT 8.6 ends the process for a slice beyond the end of a tensor, which no call has.

    Args:
        profile: The range of each symbol.
        conditions: What the sizes must satisfy: the closest ones that do are yielded.
    """
    least, greatest = dict.fromkeys(profile, "min"), dict.fromkeys(profile, "max")
    limits = [dict.fromkeys(profile, "opt"), least, greatest]
    for symbol in profile:
        limits += [{**least, symbol: "max"}, {**greatest, symbol: "min"}]
    seen: list[Values] = []
    for limit_of in limits:
        wanted = {
            symbol: bounds._replace(opt=getattr(bounds, limit_of[symbol]))
            for symbol, bounds in profile.items()
        }
        sizes = nearest_point(conditions, wanted)
        if sizes is not None and sizes not in seen:
            seen.append(sizes)
            yield sizes


@contextlib.contextmanager
def _comparing(
    blocks: Mapping[str, GraphModule], engines: Mapping[str, EngineModule]
) -> Iterator[dict[str, str]]:
    """Runs the engine of each block whenever the block runs, and yields what differs, by name."""
    differences: dict[str, str] = {}

    def compare(name: str, inputs: tuple[Any, ...], expected: Any) -> None:
        if name in differences:
            return
        try:
            actual = engines[name](*inputs)
        except (EngineError, InputError) as error:
            differences[name] = str(error)
        else:
            # Several outputs may be suspects: the runs serve all of them.
            rounded = functools.cache(lambda: rounded_runs(blocks[name], inputs))
            if difference := difference_beyond_rounding(actual, expected, rounded):
                differences[name] = difference

    hooks = [
        blocks[name].register_forward_hook(
            lambda _, inputs, result, name=name: compare(name, inputs, result)
        )
        for name in engines
    ]
    try:
        yield differences
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


def _most_bytes(graph: Graph, sizes: Mapping[Any, int]) -> int:
    """Returns about how much memory the results of a graph need at a time. Sizes that depend on data count as none."""
    size_of = functools.cache(lambda expression: size_at(expression, sizes))

    def elements_of(value: torch.Tensor) -> int:
        shape: list[Any] = [getattr(size, "node", size) for size in value.shape]
        shape = [size if isinstance(size, int) else size_of(size.expr) for size in shape]
        return math.prod(shape) if all(isinstance(size, int) for size in shape) else 0

    def bytes_of(node: Node) -> int:
        values = pytree.tree_leaves(node.meta.get("val"))
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        return sum(elements_of(tensor) * tensor.element_size() for tensor in tensors)

    last = {source: node for node in graph.nodes for source in node.all_input_nodes}
    freed: dict[Node, list[Node]] = {}
    for node, reader in last.items():
        freed.setdefault(reader, []).append(node)
    held = most = 0
    for node in graph.nodes:
        held += bytes_of(node)
        most = max(most, held)
        held -= sum(map(bytes_of, freed.get(node, ())))
    return most
