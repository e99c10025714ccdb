"""From an exported program to a compiled model: lowering, choosing sizes, partitioning, building, assembling."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Mapping

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from torchtrt.errors import PackError
from torchtrt.graphs.memory import storage_of
from torchtrt.graphs.symbols import shape_env_of
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt.selection import describe
from torchtrt_compiler.building.blocks import EngineBuilder
from torchtrt_compiler.building.engine import Services, builder_flags
from torchtrt_compiler.building.engine_checks import engine_checks_for
from torchtrt_compiler.building.equal_blocks import extract_distinct_blocks
from torchtrt_compiler.cache.choice import cache_for, timings_for
from torchtrt_compiler.exporting.export import tracing
from torchtrt_compiler.exporting.parallel_models import wait_before_engines
from torchtrt_compiler.gpu_targets import compute_capabilities
from torchtrt_compiler.inputs import CallInputs
from torchtrt_compiler.lowering import (
    Program,
    clone_aliased_outputs,
    decompose_added_ops,
    input_memory,
    lower,
)
from torchtrt_compiler.offloading import offloaded
from torchtrt_compiler.partitioning import Partition, partition_nodes
from torchtrt_compiler.progress import Stages
from torchtrt_compiler.python_reads import python_reads
from torchtrt_compiler.record import current_record
from torchtrt_compiler.refit import watcher_of
from torchtrt_compiler.reporting.before_building import report_before_building
from torchtrt_compiler.sizes.program_sizes import CompiledSizes
from torchtrt_compiler.sizes.settling import settle_sizes
from torchtrt_compiler.torch_internals import sizes_of_two_unknown
from torchtrt_compiler.verification import closest_reference, verify
from torchtrt_runtime.checks.inputs import InputChecks
from torchtrt_runtime.checks.signature import CallSignature
from torchtrt_runtime.checks.usage import UsageChecks
from torchtrt_runtime.executors.choice import executor_for
from torchtrt_runtime.modules.compiled import CallInterface, CompiledModule
from torchtrt_runtime.processes.groups import Processes
from torchtrt_runtime.reports.report import CompilationReport
from torchtrt_runtime.runtime_settings import RuntimeSettings
from torchtrt_runtime.size_ranges import union_of_profiles


class Compilation:
    """One compilation of a model, after its export.

    Args:
        model: The model, or the program that the user exported.
        inputs: The inputs that it is compiled for.
        settings: The settings.

    Attributes:
        report: What the stages find out.
        stages: Times them.

    Raises:
        SettingsError: The TensorRT in use does not have a setting.
        PackError: No converter pack is in use.
    """

    def __init__(
        self,
        model: torch.nn.Module | ExportedProgram,
        inputs: CallInputs,
        settings: CompilationSettings,
    ) -> None:
        self.model = model
        self.inputs = inputs
        self.settings = settings
        self.report = _new_report(settings)
        self.stages = Stages(self.report.seconds, settings.progress)

    def run(self, exported: ExportedProgram) -> CompiledModule:
        """Returns the compiled model of an exported program.

        No size may be taken for 2 that may be 1 meanwhile.

        Raises:
            VerificationError: With ``verify="reference"``, the network computes something else than the model.
        """
        with sizes_of_two_unknown(shape_env_of(exported.graph)):
            program = self._lower(exported)
            sizes = self._choose_sizes(program)
            partition = self._partition(program, sizes)
            graph_module, blocks = self._build(program, sizes, partition)
            compiled = self._assemble(program, sizes, graph_module)
            if self.settings.verify == "reference" and not self.settings.dryrun:
                with self.stages.stage("verifying"):
                    self.report.verified = verify(compiled, self.model, blocks, self.inputs)
            return compiled

    def _lower(self, exported: ExportedProgram) -> Program:
        """Returns the program as a graph whose nodes all have their resolution."""
        with tracing(), self.stages.stage("lowering"):
            watcher = watcher_of(exported, self.settings)
            return lower(exported, self.settings, watcher, self.inputs.may_be_empty)

    def _choose_sizes(self, program: Program) -> CompiledSizes:
        """Returns the declared sizes for which the program computes what the model does.

        Raises:
            InputError: There are none, one has no bound, or the sizes of inputs do not decide a condition on them.
        """
        with tracing(), self.stages.stage("sizes"):
            sizes = program.sizes.compiled_for(
                program.placeholders, self.inputs, program.graph_module, program.checks
            )
            settle_sizes(program.graph_module.graph, {}, union_of_profiles(sizes.profiles))
            return sizes

    def _partition(self, program: Program, sizes: CompiledSizes) -> Partition:
        """Returns the blocks of a program, and reports all that is decided now.

        Raises:
            InputError: With ``require_full_compilation``, sizes that were asked for are left out.
            FullCompilationError: With ``require_full_compilation``, something would stay in PyTorch.
        """
        with self.stages.stage("partitioning"):
            partition = partition_nodes(program.graph_module.graph, self.settings)
            report_before_building(self.report, self.settings, program, sizes, partition)
            return partition

    def _build(
        self, program: Program, sizes: CompiledSizes, partition: Partition
    ) -> tuple[GraphModule, Mapping[str, GraphModule]]:
        """Returns the graph with an engine for each block, and the blocks by name.

        In a dry run, the graph has the blocks themselves.
        """
        profiles = sizes.profiles
        if self.settings.dryrun:
            distinct = extract_distinct_blocks(program, partition, profiles, self.settings)
            self.report.blocks = distinct.rows(partition)
            return distinct.graph_module, distinct.modules
        services = Services(
            self.stages,
            cache_for(self.settings.engine_cache),
            timings_for(self.settings),
            program.watcher,
        )
        checks = engine_checks_for(program, sizes, self.inputs, self.settings)
        builder = EngineBuilder(
            program, partition, profiles, self.settings, self.report, services, checks
        )
        with offloaded(self.settings, self.model, program):
            return builder.run(), builder.blocks

    def _assemble(
        self, program: Program, sizes: CompiledSizes, graph_module: GraphModule
    ) -> CompiledModule:
        """Returns the module around a graph of engines: what it takes, checks and returns."""
        decompose_added_ops(graph_module, program.exported)
        wait_before_engines(graph_module)
        current_record().graph("compiled", graph_module)
        placeholders = program.placeholders
        memory = input_memory(program.exported, placeholders)
        checks = InputChecks.of(
            placeholders, sizes.profiles, sizes.conditions, memory, sizes.narrowed
        )
        weights, written = program.constants, program.written
        watched = weights if self.report.blocks else _held_elsewhere(weights, graph_module)
        watched |= {
            _name_of(tensor, self.model) or line: tensor
            for line, tensor in python_reads(program.exported).values
        }
        interface = CallInterface(
            program.input_tree,
            program.output_tree,
            checks,
            clone_aliased_outputs(graph_module, program.origins),
            UsageChecks({**written, **watched}, model=self.model, written=written),
            _signature(self.model, program),
            Processes.of(graph_module),
        )
        recorded = program.watcher.weights(program.graph_module)
        # The batches may take more memory than the model.
        settings = dataclasses.replace(self.settings, autocast_calibration_dataloader=None)
        return CompiledModule(
            graph_module, interface, self.report, settings, executor_for, recorded
        )


def _new_report(settings: CompilationSettings) -> CompilationReport:
    """Returns an empty report. Errors of the settings are raised here, before the export."""
    builder_flags(settings)
    RuntimeSettings.of(settings).check()
    targets = list(compute_capabilities(settings))
    if settings.verify == "reference":
        closest_reference()
    if not DYNAMO_CONVERTERS.unique_targets():
        raise PackError(
            "No converter pack is loaded. Install torchtrt-all, which brings the first-party packs, or run "
            "`torchtrt packs` to list what is installed and why it is not loaded."
        )
    return CompilationReport(describe(), inductor=settings.inductor, compute_capabilities=targets)


def _held_elsewhere(
    weights: Mapping[str, torch.Tensor], graph_module: GraphModule
) -> dict[str, torch.Tensor]:
    """Returns the weights that a graph does not read: those that its constants were computed from."""
    own = set(map(storage_of, graph_module.state_dict().values()))
    return {name: weight for name, weight in weights.items() if storage_of(weight) not in own}


def _name_of(tensor: torch.Tensor, model: torch.nn.Module | ExportedProgram) -> str:
    """Returns the name of a tensor that is an attribute of a model's module; ``""`` for another."""
    modules = model.named_modules() if isinstance(model, torch.nn.Module) else ()
    own = (
        f"{path}.{name}".lstrip(".")
        for path, module in modules
        for name, value in vars(module).items()
        if value is tensor
    )
    return next(own, "")


def _signature(model: torch.nn.Module | ExportedProgram, program: Program) -> CallSignature | None:
    """Returns what the model's ``forward`` takes; None where only the exported program has it."""
    with contextlib.suppress(AttributeError, TypeError, ValueError):  # none, or not of Python
        signature = inspect.signature(model.forward)  # type: ignore[union-attr]
        return CallSignature(signature, program.input_tree)
    return None
