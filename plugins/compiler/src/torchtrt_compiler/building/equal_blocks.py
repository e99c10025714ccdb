"""Finds blocks that become equal engines: one engine serves them all, and its weights are in memory once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from torch.fx import GraphModule

from torchtrt.graphs.nodes import draws_random_numbers
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, supports
from torchtrt_compiler.building.engine import request_of
from torchtrt_compiler.cache.key import block_identity
from torchtrt_compiler.lowering import Program
from torchtrt_compiler.lowering.watchers import ProgramWatcher
from torchtrt_compiler.partitioning import Partition, extract_blocks
from torchtrt_runtime.reports.report import BlockReport
from torchtrt_runtime.size_ranges import Profile


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The blocks of a program, equal ones together.

    Attributes:
        graph_module: The graph, which calls a block once for each place where it or an equal one was.
        modules: A block for each engine, by its name.
        levels: The levels of the partition that have the block or an equal one.
    """

    graph_module: GraphModule
    modules: dict[str, GraphModule]
    levels: dict[str, tuple[int, ...]]

    def rows(self, partition: Partition) -> list[BlockReport]:
        """Returns the rows of a report on the engines of a partition that are not built."""
        return [
            BlockReport(name, len(partition.blocks[levels[0]]), calls=len(levels))
            for name, levels in self.levels.items()
        ]


def extract_distinct_blocks(
    program: Program,
    partition: Partition,
    profiles: Sequence[Profile],
    settings: CompilationSettings,
) -> Blocks:
    """Returns the blocks of a partition. Equal ones are one block, which the graph calls several times.

    Args:
        program: The program.
        partition: Its blocks.
        profiles: The sizes to build for.
        settings: The settings of the compilation.
    """
    graph_module, modules = extract_blocks(program.graph_module, partition, program.mutated)
    first = _first_equals(modules, profiles, settings, program.watcher)
    names = {name: f"block_{index}" for index, name in enumerate(dict.fromkeys(first.values()))}
    levels: dict[str, tuple[int, ...]] = {}
    for level, name in zip(partition.blocks, modules, strict=True):
        new = names[first[name]]
        levels[new] = (*levels.get(new, ()), level)
    if len(names) < len(modules):
        for call in graph_module.graph.find_nodes(op="call_module"):
            call.target = names[first[str(call.target)]]
        for name in modules:
            delattr(graph_module, name)
        modules = {new: modules[old] for old, new in names.items()}
        for name, module in modules.items():
            graph_module.add_module(name, module)
        graph_module.recompile()
    return Blocks(graph_module, modules, levels)


def _first_equals(
    modules: Mapping[str, GraphModule],
    profiles: Sequence[Profile],
    settings: CompilationSettings,
    watcher: ProgramWatcher,
) -> dict[str, str]:
    """Returns for each block the name of the first one that is equal to it, which may be itself."""
    first = {name: name for name in modules}
    if len(profiles) > 1 and not supports(Capability.SHARED_PROFILES):
        return first  # each execution context would need an engine of its own
    alike: dict[tuple[object, ...], list[str]] = {}
    for name, module in modules.items():
        ops = tuple(node.target for node in module.graph.nodes if node.op == "call_function")
        if not any(map(draws_random_numbers, module.graph.nodes)):
            alike.setdefault(ops, []).append(name)
    for names in alike.values():
        seen: dict[str, str] = {}
        for name in names if len(names) > 1 else ():
            request, _ = request_of(name, modules[name], profiles, settings, watcher)
            identity = block_identity(request)
            if identity is not None:
                first[name] = seen.setdefault(identity, name)
    return first
