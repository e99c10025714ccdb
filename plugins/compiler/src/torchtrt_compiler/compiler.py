"""``torchtrt.compile``: from a model to a module that runs TensorRT engines and, for the rest, PyTorch.

The stages, in order: exporting, lowering, partitioning, conversion, building. ``_compile_program`` runs all but the
first.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from torchtrt.conversion.size_ranges import union_of_profiles
from torchtrt.errors import PackError
from torchtrt.graphs.memory import storage_of
from torchtrt.graphs.symbols import shape_env_of
from torchtrt.packs.preferences import settings_from
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.settings import CompilationSettings, check_setting_names
from torchtrt.tensorrt.probes import disabling
from torchtrt.tensorrt.selection import describe
from torchtrt_compiler.building import Services, builder_flags
from torchtrt_compiler.cache.choice import cache_for
from torchtrt_compiler.engine_checks import engine_checks_for
from torchtrt_compiler.engines import EngineBuilder
from torchtrt_compiler.equal_blocks import extract_distinct_blocks
from torchtrt_compiler.exporting import export, tracing
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
from torchtrt_compiler.parallel_models import wait_before_engines
from torchtrt_compiler.partitioning import Partition, partition_nodes
from torchtrt_compiler.progress import Stages
from torchtrt_compiler.record import current_record, recording
from torchtrt_compiler.refit import watcher_of
from torchtrt_compiler.reporting import check_complete, describe_partition, warn_without_engines
from torchtrt_compiler.sizes.compiled import CompiledSizes, compiled_sizes
from torchtrt_compiler.sizes.declared import declared_limits, size_profiles
from torchtrt_compiler.sizes.known import settle_sizes
from torchtrt_compiler.sizes.narrowing import warn_of_narrowed
from torchtrt_compiler.torch_internals import sizes_of_two_unknown
from torchtrt_compiler.tuning import tuned
from torchtrt_compiler.unused_settings import warn_of_large_weights, warn_of_unused_settings
from torchtrt_compiler.verification import VerifiedProgram, closest_reference, verify
from torchtrt_runtime.call_signature import CallSignature
from torchtrt_runtime.compiled_module import CallInterface, CompiledModule
from torchtrt_runtime.executors.choice import executor_for
from torchtrt_runtime.input_checks import InputChecks, check_decidable
from torchtrt_runtime.process_groups import Processes
from torchtrt_runtime.report import CompilationReport
from torchtrt_runtime.runtime_settings import RuntimeSettings
from torchtrt_runtime.usage_checks import UsageChecks


def compile(
    model: torch.nn.Module | ExportedProgram,
    inputs: Sequence[Any] = (),
    *,
    kwarg_inputs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    **settings: Any,
) -> CompiledModule:
    """Compiles a model: what the installed packs support runs in TensorRT engines, the rest in PyTorch.

    Args:
        model: A module in eval mode, or a program that you exported.
        inputs: The positional inputs: example tensors, or ``torchtrt.Input`` where sizes vary.
            May be empty for an exported program.
        kwarg_inputs: The keyword inputs, likewise.
        dynamic_shapes: As ``torch.export.export`` takes it, for example tensors with dynamic sizes.
        **settings: Fields of ``torchtrt.CompilationSettings``.

    Returns:
        A module that is called like the original and carries a ``report``.

    Raises:
        SettingsError: A setting is unknown or unusable, or the TensorRT in use does not have it.
        PackError: No converter pack is in use, or a pack's lowering pass failed.
        InputError: The inputs do not fit the model, a dynamic size has no bound, or, with
            ``require_full_compilation``, the model's code cannot take all the sizes asked for.
        ExportError: The model cannot be exported.
        FullCompilationError: With ``require_full_compilation``, something would stay in PyTorch.
        ConversionError: A converter failed, and ``torch_executed_on_failure`` is off.
        VerificationError: With ``verify="reference"``, the network computes something else than the model.
        BuildError: TensorRT refused a network, and its parts down to a single op, which must not stay in PyTorch.
    """
    check_setting_names(settings, compile)
    compilation_settings = settings_from(settings)
    given = CallInputs(inputs, {} if kwarg_inputs is None else kwarg_inputs)
    with disabling(compilation_settings.disabled_capabilities):
        if compilation_settings.tune:
            compile_with = functools.partial(
                compile, model, inputs, kwarg_inputs=given.kwargs, dynamic_shapes=dynamic_shapes
            )
            export_again = functools.partial(export_traced, model, *given, dynamic_shapes)
            return tuned(compile_with, export_again, *given, settings)
        report = _new_report(compilation_settings)
        stages = Stages(report.seconds, compilation_settings.progress)
        with stages, torch.no_grad(), recording():
            with stages.stage("exporting"):
                exported = export_traced(model, *given, dynamic_shapes)
            with sizes_of_two_unknown(shape_env_of(exported.graph)):
                return _compile_program(
                    model, exported, given, compilation_settings, report, stages
                )


def compile_exported(
    model: torch.nn.Module,
    exported: ExportedProgram,
    inputs: Sequence[Any],
    kwarg_inputs: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> CompiledModule:
    """Compiles a model that ``export_traced`` has exported; otherwise as ``compile``, without ``tune``."""
    compilation_settings = settings_from(settings)
    given = CallInputs(inputs, kwarg_inputs)
    with disabling(compilation_settings.disabled_capabilities):
        report = _new_report(compilation_settings)
        stages = Stages(report.seconds, compilation_settings.progress)
        with stages, torch.no_grad(), sizes_of_two_unknown(shape_env_of(exported.graph)):
            return _compile_program(model, exported, given, compilation_settings, report, stages)


def _new_report(settings: CompilationSettings) -> CompilationReport:
    """Returns an empty report for settings that can be used here: errors are raised now, and not after exporting."""
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


def export_traced(
    model: torch.nn.Module | ExportedProgram,
    inputs: Sequence[Any],
    kwarg_inputs: Mapping[str, Any],
    dynamic_shapes: Any,
) -> ExportedProgram:
    """Returns a model exported while nothing else in the process is being traced."""
    with tracing(), torch.no_grad():
        return export(model, inputs, kwarg_inputs, dynamic_shapes)


def _compile_program(
    model: torch.nn.Module | ExportedProgram,
    exported: ExportedProgram,
    given: CallInputs,
    settings: CompilationSettings,
    report: CompilationReport,
    stages: Stages,
) -> CompiledModule:
    """Returns the compiled model of an exported program, and fills in its report.

    No size may be taken for 2 that may be 1: see ``sizes_of_two_unknown``.
    """
    with tracing(), stages.stage("lowering"):
        watcher = watcher_of(exported, settings)
        program = lower(exported, settings, watcher)
        report.passes, report.divided = program.passes, program.divided
        warn_of_unused_settings(settings, exported, program)
        weights = _constants(exported, program)
    with tracing(), stages.stage("sizes"):
        sizes = _sizes(model, exported, program, given)
        profiles = sizes.profiles
        settle_sizes(program.graph_module.graph, {}, union_of_profiles(profiles))
        report.narrowed = list(sizes.narrowed)
        warn_of_narrowed(report, settings)
    with stages.stage("partitioning"):
        partition = _partitioned(program, settings, report)
    blocks: dict[str, GraphModule] = {}
    if settings.dryrun:
        distinct = extract_distinct_blocks(program, partition, profiles, settings, watcher)
        graph_module, report.blocks = distinct.graph_module, distinct.rows(partition)
    else:
        services = Services(stages, cache_for(settings.engine_cache), watcher)
        checks = engine_checks_for(program, profiles, given, settings)
        builder = EngineBuilder(program, partition, profiles, settings, report, services, checks)
        with offloaded(settings, (model, exported, program.graph_module), watcher):
            graph_module, blocks = builder.run(), builder.blocks
    decompose_added_ops(graph_module, exported)
    wait_before_engines(graph_module)
    current_record().graph("compiled", graph_module)
    memory = input_memory(exported, program.placeholders)
    requirements = InputChecks.of(
        program.placeholders, profiles, sizes.conditions, memory, sizes.narrowed
    )
    watched = _watched(weights, graph_module, report)
    interface = _interface(model, program, requirements, graph_module, watched)
    recipes = watcher.attributes(program.graph_module)
    executor = executor_for(settings)
    compiled = CompiledModule(graph_module, interface, report, settings, recipes, executor)
    if settings.verify == "reference" and not settings.dryrun:
        with stages.stage("verifying"):
            verified = VerifiedProgram(model, blocks, profiles, given, settings)
            report.verified = verify(compiled, verified)
    return compiled


def _partitioned(
    program: Program, settings: CompilationSettings, report: CompilationReport
) -> Partition:
    """Returns the blocks of a program, and reports what stays in PyTorch.

    Raises:
        FullCompilationError: With ``require_full_compilation``, something would stay in PyTorch.
    """
    partition = partition_nodes(program.graph_module.graph, settings)
    warn_of_large_weights(partition, settings.max_engine_bytes)
    describe_partition(report, partition)
    if settings.require_full_compilation:
        check_complete(report)
    if not (report.blocks or settings.dryrun):
        warn_without_engines(report, settings.min_block_size)
    return partition


def _interface(
    model: torch.nn.Module | ExportedProgram,
    program: Program,
    requirements: InputChecks,
    graph_module: GraphModule,
    watched: Mapping[str, torch.Tensor],
) -> CallInterface:
    """Returns how the compiled graph of a model is called, and which of its results it copies."""
    return CallInterface(
        program.input_tree,
        program.output_tree,
        requirements,
        clone_aliased_outputs(graph_module, program.origins),
        UsageChecks(watched, model=model),
        _signature(model, program),
        Processes.of(graph_module),
    )


def _sizes(
    model: torch.nn.Module | ExportedProgram,
    exported: ExportedProgram,
    program: Program,
    inputs: CallInputs,
) -> CompiledSizes:
    """Returns the sizes to compile a model for: the declared ones for which the program computes what the model does.

    Raises:
        InputError: There are none, one has no bound, or the sizes of inputs do not decide a condition on them.
    """
    placeholders = program.placeholders
    declared = size_profiles(placeholders, program.ranges, inputs, declared_limits(exported))
    check_decidable(tuple(program.guards), declared)
    is_exported_here = not isinstance(model, ExportedProgram)
    return compiled_sizes(
        exported, placeholders, program.guards, declared, inputs, is_exported_here
    )


def _watched(
    weights: Mapping[str, torch.Tensor], graph_module: GraphModule, report: CompilationReport
) -> dict[str, torch.Tensor]:
    """Returns the weights that must not change: all, or those that constants were computed from.

    Where no engine holds weights, calls read the model's own.
    """
    if report.blocks:
        return dict(weights)
    own = set(map(storage_of, graph_module.state_dict().values()))
    return {name: weight for name, weight in weights.items() if storage_of(weight) not in own}


def _constants(exported: ExportedProgram, program: Program) -> dict[str, torch.Tensor]:
    """Returns the weights that no call changes, under any of their names or through any of their views."""
    named = {**exported.state_dict, **exported.constants}.items()
    tensors = {name: value for name, value in named if isinstance(value, torch.Tensor)}
    written = {storage_of(tensors[name]) for name in program.mutated if name in tensors}
    return {name: value for name, value in tensors.items() if storage_of(value) not in written}


def _signature(model: torch.nn.Module | ExportedProgram, program: Program) -> CallSignature | None:
    """Returns what the model's ``forward`` takes; None where only the exported program has it."""
    with contextlib.suppress(AttributeError, TypeError, ValueError):  # none, or not of Python
        return CallSignature(model.forward, program.input_tree)  # type: ignore[union-attr]
    return None


def explain(
    model: torch.nn.Module | ExportedProgram, inputs: Sequence[Any] = (), **settings: Any
) -> CompilationReport:
    """Returns what ``compile`` would do with a model, without building anything."""
    return compile(model, inputs, **{**settings, "dryrun": True}).report
