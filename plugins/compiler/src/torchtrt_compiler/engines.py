"""Builds an engine for each block of a program. A block that cannot be built is split, or stays in PyTorch."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Sequence

from torch.fx import GraphModule, Node

from torchtrt.callers import warn_caller
from torchtrt.conversion.size_ranges import Profile
from torchtrt.errors import BuildError, ConversionError, ConversionWarning
from torchtrt.graphs.nodes import remember_resolution, resolution_of
from torchtrt.registry import Resolution
from torchtrt.registry.candidate import Rejection
from torchtrt.settings import CompilationSettings
from torchtrt_compiler.building import Services, build_engine
from torchtrt_compiler.cache.engines import BeingBuiltError, BuiltEngine
from torchtrt_compiler.engine_checks import EngineChecks
from torchtrt_compiler.engine_names import name_tensors, warn_of_unused_names
from torchtrt_compiler.equal_blocks import extract_distinct_blocks
from torchtrt_compiler.lowering import Program
from torchtrt_compiler.partitioning import Partition, partition_nodes
from torchtrt_compiler.partitioning.blocks import leave_block
from torchtrt_compiler.partitioning.division import split_block
from torchtrt_compiler.record import current_record, names_of
from torchtrt_compiler.reporting import describe_partition, warn_without_engines
from torchtrt_runtime.report import CompilationReport

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
            for engine in dict.fromkeys(each[0] for each in built if each is not None):
                self.record.layers(engine)
        if had_blocks and not self.report.blocks:
            warn_without_engines(self.report, self.settings.min_block_size)
        warn_of_unused_names(graph_module, self.settings)
        return graph_module

    def attempt(self) -> GraphModule | None:
        """Returns the graph with its engines, or None where it has other blocks now."""
        found = extract_distinct_blocks(
            self.program, self.partition, self.profiles, self.settings, self.services.watcher
        )
        graph_module, blocks, levels = found.graph_module, found.modules, found.levels
        name_tensors(graph_module, blocks, self.settings)
        nodes = {name: [self.partition.blocks[each] for each in levels[name]] for name in blocks}
        for name in blocks:
            self.rename(nodes[name], name)
        for waits, name in itertools.product((False, True), blocks):
            try:
                self.build(nodes[name], name, blocks[name], waits)
            except BuildError as error:
                self.reduce(levels[name], error)
                return None
            except ConversionError as error:
                self.leave_failed([each for block in nodes[name] for each in block], error)
                return None
        engines = {name: self.built[nodes[name][0]] for name in blocks}
        modules = {name: engine for name, (engine, _) in engines.items()}
        if wrong := self.checks.objection(graph_module, blocks, modules):
            self.reduce(levels[wrong[0]], wrong[1])
            return None
        for name, engine in modules.items():
            engine.calls = len(levels[name])
            setattr(graph_module, name, engine)
        self.report.blocks = [
            dataclasses.replace(row, calls=len(levels[name])) for name, (_, row) in engines.items()
        ]
        self.blocks = dict(blocks)
        return graph_module

    def rename(self, blocks: Sequence[tuple[Node, ...]], name: str) -> None:
        """Gives the engine of equal blocks, if it is there, the name that it has after another block was divided."""
        known = next((self.built[nodes] for nodes in blocks if nodes in self.built), None)
        if known is None:
            return
        engine, row = known
        if engine.name != name:
            self.record.decision("renamed", f"{engine.name}, which is {name} from here on")
            engine.name = name
        self.built.update(dict.fromkeys(blocks, (engine, dataclasses.replace(row, name=name))))

    def build(
        self, blocks: Sequence[tuple[Node, ...]], name: str, block: GraphModule, waits: bool
    ) -> None:
        """Builds the engine of equal blocks, or takes it from the cache, unless it is there.

        Processes that share a cache divide the work: none waits for a block while another one needs to be built.
        """
        if blocks[0] in self.built:
            return
        start = time.perf_counter()
        with contextlib.suppress(BeingBuiltError):
            made = build_engine(name, block, self.profiles, self.settings, self.services, waits)
            self.record.engine(made[1], time.perf_counter() - start)
            self.built.update(dict.fromkeys(blocks, made))

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
