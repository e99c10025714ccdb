"""Builds an engine for each block of a program. A block that cannot be built is split, or stays in PyTorch."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence

from torch.fx import GraphModule, Node

from torchtrt.callers import warn_caller
from torchtrt.errors import BuildError, ConversionError, ConversionWarning
from torchtrt.graphs.nodes import remember_resolution, resolution_of
from torchtrt.registry import Resolution
from torchtrt.registry.candidate import Rejection
from torchtrt.settings import CompilationSettings
from torchtrt_compiler.building.engine import Services, build_engine
from torchtrt_compiler.building.engine_checks import EngineChecks
from torchtrt_compiler.building.equal_blocks import extract_distinct_blocks
from torchtrt_compiler.building.names import name_tensors, warn_of_unused_names
from torchtrt_compiler.cache.engines import BeingBuiltError, BuiltEngine
from torchtrt_compiler.lowering import Program
from torchtrt_compiler.partitioning import Partition, partition_nodes
from torchtrt_compiler.partitioning.blocks import leave_block
from torchtrt_compiler.partitioning.division import split_block
from torchtrt_compiler.record import current_record, names_of
from torchtrt_compiler.reporting.partitions import describe_partition, warn_without_engines
from torchtrt_runtime.reports.report import CompilationReport
from torchtrt_runtime.size_ranges import Profile

_MOST_UNBUILT_OPS = 8
"""How many ops TensorRT may fail to build before the compilation fails."""


class EngineBuilder:
    """Builds the engines of one program.

    Args:
        program: The program.
        partition: Its blocks.
        profiles: The sizes to build for.
        settings: The settings of the compilation.
        report: Its report, which is kept up to date.
        services: What accompanies it.
        checks: What compares its engines with PyTorch.
    """

    def __init__(  # noqa: PLR0913
        self,
        program: Program,
        partition: Partition,
        profiles: Sequence[Profile],
        settings: CompilationSettings,
        report: CompilationReport,
        services: Services,
        checks: EngineChecks,
    ) -> None:
        self.program = program
        self.partition = partition
        self.profiles = profiles
        self.settings = settings
        self.report = report
        self.services = services
        self.checks = checks
        self.built: dict[tuple[Node, ...], BuiltEngine] = {}
        self.blocks: dict[str, GraphModule] = {}
        self.unbuilt = 0
        self.record = current_record()

    def run(self) -> GraphModule:
        """Returns the graph with an engine for each block.

        A block that TensorRT cannot build, or whose engine computes something else, becomes two, and a block of a
        single op stays in PyTorch.

        Raises:
            ConversionError: A converter failed, and the settings do not leave its op to PyTorch.
            BuildError: TensorRT refused a network, and its parts down to a single op, which must not stay in PyTorch.
        """
        had_blocks = bool(self.partition.blocks)
        try:
            while (graph_module := self.attempt()) is None:
                pass
        finally:
            built = (self.built.get(nodes) for nodes in self.partition.blocks.values())
            for module in dict.fromkeys(engine.module for engine in built if engine is not None):
                self.record.layers(module)
        if had_blocks and not self.report.blocks:
            warn_without_engines(self.report, self.settings.min_block_size)
        warn_of_unused_names(graph_module, self.settings)
        return graph_module

    def attempt(self) -> GraphModule | None:
        """Returns the graph with its engines. If a block had to be changed, returns None: all is tried again."""
        distinct = extract_distinct_blocks(
            self.program, self.partition, self.profiles, self.settings
        )
        graph_module, blocks, levels = distinct.graph_module, distinct.modules, distinct.levels
        name_tensors(graph_module, blocks, self.settings)
        if not self.build_all(blocks, levels):
            return None
        engines = {name: self.built[self.partition.blocks[levels[name][0]]] for name in blocks}
        modules = {name: engine.module for name, engine in engines.items()}
        if objection := self.checks.objection(graph_module, blocks, modules):
            name, error = objection
            self.reduce(levels[name], error)
            return None
        for name, module in modules.items():
            module.calls = len(levels[name])
            setattr(graph_module, name, module)
        self.report.blocks = [
            dataclasses.replace(engine.row, calls=len(levels[name]))
            for name, engine in engines.items()
        ]
        self.blocks = dict(blocks)
        return graph_module

    def build_all(
        self, blocks: Mapping[str, GraphModule], levels: Mapping[str, Sequence[int]]
    ) -> bool:
        """Builds the engines of all blocks; returns whether all are there. If one fails, the partition changes.

        Args:
            blocks: The blocks by name, of equal ones the first.
            levels: The levels of the partition that have the block or an equal one.
        """
        equal_blocks = {
            name: [self.partition.blocks[level] for level in levels[name]] for name in blocks
        }
        for name in blocks:
            self.rename(equal_blocks[name], name)
        # First all that no other process is building, and then those that others may have finished meanwhile.
        for waits, name in itertools.product((False, True), blocks):
            try:
                self.build(equal_blocks[name], name, blocks[name], waits)
            except BuildError as error:
                self.reduce(levels[name], error)
                return False
            except ConversionError as error:
                nodes = itertools.chain.from_iterable(equal_blocks[name])
                self.leave_failed(list(nodes), error)
                return False
        return True

    def rename(self, equal_blocks: Sequence[tuple[Node, ...]], name: str) -> None:
        """Gives the engine of equal blocks, if it is there, the name that it has after another block was divided."""
        built = (self.built[nodes] for nodes in equal_blocks if nodes in self.built)
        if (engine := next(built, None)) is None:
            return
        module, row = engine
        if module.name != name:
            self.record.decision("renamed", f"{module.name}, which is {name} from here on")
            module.name = name
        renamed = BuiltEngine(module, dataclasses.replace(row, name=name))
        self.built.update(dict.fromkeys(equal_blocks, renamed))

    def build(
        self, equal_blocks: Sequence[tuple[Node, ...]], name: str, block: GraphModule, waits: bool
    ) -> None:
        """Builds the engine of equal blocks, or takes it from the cache, unless it is there.

        Processes that share a cache divide the work: none waits for a block while another one needs to be built.
        """
        if equal_blocks[0] in self.built:
            return
        start = time.perf_counter()
        with contextlib.suppress(BeingBuiltError):
            engine = build_engine(name, block, self.profiles, self.settings, self.services, waits)
            self.record.engine(engine.row, time.perf_counter() - start)
            self.built.update(dict.fromkeys(equal_blocks, engine))

    def reduce(self, levels: Sequence[int], error: BuildError) -> None:
        """Splits equal blocks that TensorRT cannot build, or leaves them to PyTorch where they are a single op."""
        count = len(self.partition.blocks[levels[0]])
        smaller = self.partition
        for level in reversed(levels):  # those before keep their numbers
            smaller = split_block(smaller, level) or smaller
        if smaller is not self.partition:
            self.report.splits.append(f"A block of {count} nodes became two engines: {error}")
            self.record.decision("split", self.report.splits[-1])
            self.partition = smaller
            return
        self.unbuilt += 1
        is_all = len(self.partition.blocks) == len(levels) or self.unbuilt > _MOST_UNBUILT_OPS
        may_fail = self.settings.torch_executed_on_failure
        if self.settings.require_full_compilation or (is_all and not may_fail):
            raise error
        if may_fail:
            _warn(error)
        for level in levels:
            self.record.decision("not built", names_of(self.partition.blocks[level]), error)
            self.partition = leave_block(self.partition, level, str(error))
        describe_partition(self.report, self.partition)

    def leave_failed(self, nodes: Sequence[Node], error: ConversionError) -> None:
        """Leaves the op of a failed converter to PyTorch, and forms the blocks again."""
        resolution = error.resolution
        failed = [node for node in nodes if resolution_of(node) is resolution]
        if resolution is None or not failed or not self.settings.torch_executed_on_failure:
            raise error
        _warn(error)
        self.record.decision("failed", names_of(failed), error)
        for node in failed:
            remember_resolution(node, _failed(resolution, str(error)))
        graph = self.program.graph_module.graph
        self.partition = partition_nodes(graph, self.settings)
        describe_partition(self.report, self.partition)


def _failed(resolution: Resolution, reason: str) -> Resolution:
    """Returns the resolution of a node whose converter failed."""
    rejection = Rejection(resolution.chosen, reason, "failed")
    return dataclasses.replace(
        resolution, chosen=None, rejections=(*resolution.rejections, rejection)
    )


def _warn(error: ConversionError | BuildError) -> None:
    warn_caller(f"torch_executed_on_failure leaves this to PyTorch: {error}", ConversionWarning)
