"""``torchtrt.compile``: the whole way from a model to engines, in order."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch.export import ExportedProgram
from torch.fx import GraphModule

from torchtrt.conversion.build import build_plan, builder_flags
from torchtrt.conversion.interpreter import TRTInterpreter
from torchtrt.conversion.size_ranges import Profile, profile_input
from torchtrt.engines import engine_cache, engines
from torchtrt.errors import BuildError, InputError, PackError
from torchtrt.exporting import export, narrowed_sizes, size_profiles
from torchtrt.lowering import (
    Program,
    fold_constants,
    keep_results_apart,
    open_program,
    remove_no_ops,
    resolve_nodes,
)
from torchtrt.lowering.memory import storage_of
from torchtrt.packs.state import with_known_packs
from torchtrt.partitioning import Partition, extract_blocks, partition_nodes
from torchtrt.partitioning.blocks import leave_block, split_block
from torchtrt.progress import Stages
from torchtrt.registry import DYNAMO_CONVERTERS, lowering_passes
from torchtrt.report import BlockReport, CompilationReport, check_complete, warn_without_engines
from torchtrt.runtime import CompiledModule, EngineModule
from torchtrt.runtime.call_signature import CallSignature
from torchtrt.runtime.input_checks import InputChecks, check_decidable
from torchtrt.runtime.usage_checks import UsageChecks
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import logger
from torchtrt.tensorrt.selection import describe
from torchtrt.tensorrt.shims import create_network

_UNBUILT = 8
"""How many ops TensorRT may fail to build before it is the matter, and not the ops."""
_COMPATIBLE = ("version", "hardware")
TRACING = compile_lock
"""PyTorch traces one program at a time, and keeps it in global state: ``torch.compile`` holds this lock as well."""


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
        inputs: The positional inputs: example tensors, or :class:`torchtrt.Input` where sizes vary.
            May be empty for an exported program.
        kwarg_inputs: The keyword inputs, likewise.
        dynamic_shapes: As ``torch.export.export`` takes it, for example tensors whose sizes vary.
        **settings: Fields of :class:`torchtrt.CompilationSettings`.

    Returns:
        A module that is called like the original and carries a ``report``.

    Raises:
        SettingsError: A setting is unknown or unusable, or the TensorRT in use does not have it.
        PackError: No converter pack is in use, or a pack's lowering pass failed.
        InputError: The inputs do not fit the model, a size that varies has no bound, or, with
            ``require_full_compilation``, the model's code cannot take all the sizes asked for.
        ExportError: The model cannot be exported.
        FullCompilationError: With ``require_full_compilation``, something would stay in PyTorch.
        ConversionError: A converter failed.
        BuildError: TensorRT refused a network, and its parts down to a single op, which must not stay in PyTorch.
    """
    kwarg_inputs = {} if kwarg_inputs is None else kwarg_inputs
    options = with_known_packs(CompilationSettings.from_keywords(**settings))
    if options.tune:
        return engines().tuned(model, inputs, kwarg_inputs, dynamic_shapes, settings)  # type: ignore[no-any-return]
    builder_flags(options)  # an error here, and not after exporting
    report = CompilationReport(describe(), inductor=options.inductor)
    if not DYNAMO_CONVERTERS.unique_targets():
        raise PackError(
            "No converter pack is in use: `pip install torchtrt` brings the first, `torchtrt packs` says what there is."
        )
    with Stages(report.seconds, options.progress) as stages, torch.no_grad():
        with TRACING, stages.stage("exporting"):
            exported = export(model, inputs, kwarg_inputs, dynamic_shapes)
        with TRACING, stages.stage("lowering"):
            recorder = None if options.immutable_weights else engines().ProgramRecorder(exported)
            program = lower(exported, options, recorder)
            report.passes = program.passes
            weights = _constants(exported, program)
            profiles = size_profiles(program, inputs, kwarg_inputs)
            check_decidable(program.guards, profiles)
            report.narrowed = list(narrowed_sizes(program, profiles, inputs, kwarg_inputs))
            if report.narrowed and options.require_full_compilation:
                raise InputError("\n".join(map(str, report.narrowed)))
            if report.narrowed:
                warnings.warn("\n".join(map(str, report.narrowed)), stacklevel=2)
        with stages.stage("partitioning"):
            partition = partition_nodes(program.graph_module.graph, options)
            report.add_partition(partition)
            if options.require_full_compilation:
                check_complete(report)
            if not (report.blocks or options.dryrun):
                warn_without_engines(report, options.min_block_size)
        if options.dryrun:
            graph_module, _ = extract_blocks(program.graph_module, partition, program.mutated)
        else:
            graph_module = _build_engines(
                program, partition, profiles, options, report, stages, recorder
            )
    shared_inputs = keep_results_apart(graph_module, program.origins)
    # Where no engine holds weights, calls read the model's own: all but those of which a constant was computed.
    own = set() if report.blocks else set(map(storage_of, graph_module.state_dict().values()))
    watched = {name: weight for name, weight in weights.items() if storage_of(weight) not in own}
    return CompiledModule(
        graph_module,
        program.input_tree,
        program.output_tree,
        InputChecks.of(program.placeholders, profiles, program.guards),
        report,
        shared_inputs,
        UsageChecks(watched, model=model),
        _signature(model, program),
        options,
        recorder and recorder.attributes(program.graph_module),
        engines().runner_of(options),
    )


def _constants(exported: ExportedProgram, program: Program) -> dict[str, torch.Tensor]:
    """Returns the weights that no call changes, under any of their names or through any of their views."""
    named = {**exported.state_dict, **exported.constants}.items()
    tensors = {name: value for name, value in named if isinstance(value, torch.Tensor)}
    written = {storage_of(tensors[name]) for name in program.mutated if name in tensors}
    return {name: value for name, value in tensors.items() if storage_of(value) not in written}


def _signature(model: torch.nn.Module | ExportedProgram, program: Program) -> CallSignature | None:
    """Returns what the model's ``forward`` takes; None where only the exported program knows."""
    with contextlib.suppress(AttributeError, TypeError, ValueError):  # none, or not of Python
        return CallSignature(model.forward, program.input_tree)  # type: ignore[union-attr]
    return None


def _build_engines(
    program: Program,
    partition: Partition,
    profiles: Sequence[Profile],
    options: CompilationSettings,
    report: CompilationReport,
    stages: Stages,
    recorder: Any,
) -> GraphModule:
    """Returns the graph with an engine for each block.

    A block that TensorRT cannot build becomes two, and what is then a single op stays in PyTorch.
    """
    built: list[tuple[EngineModule, BlockReport]] = []
    unbuilt = 0
    while True:
        graph_module, blocks = extract_blocks(program.graph_module, partition, program.mutated)
        remaining = list(blocks.items())[len(built) :]
        try:
            for name, block in remaining:
                built.append(build_engine(name, block, profiles, options, stages, recorder))
        except BuildError as error:
            level = list(partition.blocks)[len(built)]
            if (smaller := split_block(partition, level)) is None:
                unbuilt += 1
                is_all = len(partition.blocks) == 1 or unbuilt > _UNBUILT
                if is_all or options.require_full_compilation:
                    raise
                partition = leave_block(partition, level, str(error))
                report.add_partition(partition)
                continue
            count = len(partition.blocks[level])
            report.splits.append(f"A block of {count} nodes became two engines: {error}")
            partition = smaller
            continue
        for name, (engine, _) in zip(blocks, built, strict=True):
            setattr(graph_module, name, engine)
        report.blocks = [block for _, block in built]
        return graph_module


def lower(
    exported: ExportedProgram, settings: CompilationSettings, recorder: Any = None
) -> Program:
    """Returns the exported program as a graph whose nodes all know their resolution.

    Nothing is rewritten for TensorRT where the settings leave every op to PyTorch, and ask for no autocast.
    """
    program = open_program(exported)
    remove_no_ops(program.graph_module)
    targets: set[Any] = {node.target for node in program.graph_module.graph.nodes}
    ops = {target for target in targets if isinstance(target, torch._ops.OperatorBase)}
    is_for_torch = settings.autocast is None and ops <= settings.torch_executed_ops
    with contextlib.nullcontext() if recorder is None else recorder.recording():
        fold_constants(program.graph_module, program.mutated)
        calls = _calls(program.graph_module)
        for lowering_pass in () if is_for_torch else lowering_passes():
            lowering_pass.run(program.graph_module, settings)
            before, calls = calls, _calls(program.graph_module)
            if calls != before:
                program.passes.append(str(lowering_pass))
        resolve_nodes(program.graph_module, settings)
        fold_constants(program.graph_module, program.mutated)  # what decompositions brought
    program.graph_module.graph.lint()
    program.graph_module.recompile()
    return program


def _calls(graph_module: GraphModule) -> list[tuple[Any, ...]]:
    """Returns what is equal for as long as no pass changes what a graph, or one inside it, computes."""
    graphs = [each.graph for each in graph_module.modules() if isinstance(each, GraphModule)]
    return [(node, node.target, node.args, node.kwargs) for graph in graphs for node in graph.nodes]


def build_engine(
    name: str,
    block: GraphModule,
    profiles: Sequence[Profile],
    settings: CompilationSettings,
    stages: Stages,
    recorder: Any = None,
) -> tuple[EngineModule, BlockReport]:
    """Returns one block's engine as a module, and its line in the report."""
    placeholders = block.graph.find_nodes(op="placeholder")
    calls = [node for node in block.graph.nodes if node.op == "call_function"]
    inputs = [profile_input(node.name, node.meta["val"], profiles) for node in placeholders]
    cache = engine_cache(settings.engine_cache)

    def build() -> tuple[EngineModule, BlockReport]:
        with stages.stage("TensorRT start"):
            builder = trt.Builder(logger())  # the first one of a process loads TensorRT's kernels
        with stages.stage("conversion", len(calls)):
            network = create_network(builder)
            recording = recorder and recorder.block(block)
            interpreted = TRTInterpreter(
                block, network, inputs, settings, stages.advance, recording
            ).run()
        with stages.stage("building"):
            plan = build_plan(builder, interpreted, settings, cache)
            interpreted.context.clear_cpu_weights_reference_holder()
        engine = EngineModule(
            plan,
            inputs,
            interpreted.output_dtypes,
            interpreted.context.requires_output_allocator,
            name,
            interpreted.converted_by,
            weights=recording and recording.recipe(),
            compatible=[each for each in _COMPATIBLE if getattr(settings, f"{each}_compatible")],
        )
        return engine, BlockReport(name, len(calls), interpreted.network.num_layers, len(plan))

    return cache.get_or_build(name, block, inputs, settings, build) if cache else build()


def explain(
    model: torch.nn.Module | ExportedProgram, inputs: Sequence[Any] = (), **settings: Any
) -> CompilationReport:
    """Returns what :func:`compile` would do with a model, without building anything."""
    return compile(model, inputs, **{**settings, "dryrun": True}).report
