"""Builds a block into an engine: its network, the builder's configuration, the plan."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.fx import GraphModule

from torchtrt.conversion.inputs import engine_profiles
from torchtrt.conversion.interpreter import TRTInterpreter
from torchtrt.errors import BuildError, SettingsError
from torchtrt.expressions.bounds import bounding
from torchtrt.graphs.nodes import engine_names
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, lacking, supports, trt
from torchtrt.tensorrt.logging import ErrorLog, logger
from torchtrt.tensorrt.selection import describe
from torchtrt.tensorrt.shims import create_network
from torchtrt_compiler.building.precisions import allow_precisions
from torchtrt_compiler.cache.engines import BuiltEngine, EngineRequest
from torchtrt_compiler.gpu_targets import allocates_nothing, compute_capabilities, set_targets
from torchtrt_compiler.lowering.watchers import BlockWatcher, ProgramWatcher
from torchtrt_compiler.partitioning.data_sizes import profile_of_input
from torchtrt_compiler.progress import Stages
from torchtrt_compiler.refit.stripping import check_replaceable, strip
from torchtrt_kernels.tensorrt_plugins import with_distributions
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.processes.groups import collectives_in
from torchtrt_runtime.reports.report import BlockReport
from torchtrt_runtime.size_ranges import Profile, union_of_profiles

if TYPE_CHECKING:
    from torchtrt_compiler.cache.store import EngineCache
    from torchtrt_compiler.cache.timings import TimingCache

_FLAGS = {
    "sparse_weights": (True, Capability.SPARSE_WEIGHTS, "SPARSE_WEIGHTS"),
    "version_compatible": (True, Capability.VERSION_COMPATIBILITY, "VERSION_COMPATIBLE"),
    "enable_weight_streaming": (True, Capability.WEIGHT_STREAMING, "WEIGHT_STREAMING"),
    "immutable_weights": (False, Capability.REFIT, "REFIT"),
    "strip_engine_weights": (True, Capability.STRIPPED_PLANS, "STRIP_PLAN"),
}
"""For a setting: the value that sets a flag, the capability that it needs, and the flag."""
_NEEDED = {
    "nccl_in_engines": Capability.DISTRIBUTED_COLLECTIVES,
    "tiling_optimization_level": Capability.TILING,
    "l2_limit_for_tiling": Capability.TILING,
    "enable_cross_compile_for_windows": Capability.CROSS_COMPILATION,
}
"""For a setting without a flag: the capability that it needs."""


_BUILDING = threading.RLock()
"""Held by the one build of the process. TensorRT 8.6 lets others wait, and 10.16 may crash
(https://github.com/lightvector/KataGo/pull/1225)."""


def builder_flags(settings: CompilationSettings) -> list[Any]:
    """Returns the flags that settings set.

    Raises:
        SettingsError: The TensorRT in use lacks what a setting needs.
    """
    flags = []
    if settings.dla_core is not None and settings.allow_gpu_fallback:
        flags.append(trt.BuilderFlag.GPU_FALLBACK)
    for name, (value, capability, flag) in _FLAGS.items():
        if getattr(settings, name) is not value:
            continue
        if problem := lacking(f"The setting {name}={value}", capability):
            raise SettingsError(f"{problem}.")
        flags.append(getattr(trt.BuilderFlag, flag))
    for name, capability in _NEEDED.items():
        value = getattr(settings, name)
        asks = value not in (None, False)
        if asks and (problem := lacking(f"The setting {name}={value!r}", capability)):
            raise SettingsError(f"{problem}.")
    if settings.strip_engine_weights and settings.immutable_weights:
        flags.append(trt.BuilderFlag.REFIT_IDENTICAL)
    if allocates_nothing(settings):
        if problem := lacking("The setting user_allocation=True", Capability.USER_ALLOCATION):
            raise SettingsError(f"{problem}.")
        flags.append(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)
    return flags


def build_plan(
    builder: Any,
    interpreted: TRTInterpreter,
    settings: CompilationSettings,
    timings: TimingCache | None,
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Returns the serialized engine of a network: its bytes, in the memory that TensorRT wrote them to.

    A cache of timings gives TensorRT those of earlier builds, and keeps those of this one.

    Raises:
        BuildError: TensorRT refused the network; the message holds what it logged. Or a layer reads a cache into which
            another one writes.
    """
    if objection := _cache_objection(interpreted):
        raise BuildError(f"This network is not built: {objection}.")
    config = builder.create_builder_config()
    _add_profiles(builder, config, interpreted)
    _share_profiles(config)
    _preview_collectives(interpreted.network.raw, config)
    _apply_settings(config, settings)
    halves = interpreted.context.names_of(torch.float16)
    held = allow_precisions(interpreted.network.raw, config, halves)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if timings is not None:
        timings.use(config)
    with _BUILDING, ErrorLog() as log:
        plan = builder.build_serialized_network(interpreted.network.raw, config)
        if plan is None and held:
            # Myelin of 8.6 builds some in float32 alone: where keys are appended to a cache.
            for layer in held:
                layer.reset_precision()
            plan = builder.build_serialized_network(interpreted.network.raw, config)
    if plan is None:
        raise BuildError(f"{describe()} could not build the engine:\n  {log.text(_NEW_LINE)}")
    if timings is not None:
        timings.keep(config)
    return np.frombuffer(plan, dtype=np.uint8)


_NEW_LINE = "\n  "


def _cache_objection(interpreted: TRTInterpreter) -> str:
    """Returns why a network with an updated cache is not built; ``""`` if it can be."""
    network = interpreted.network
    if network.updates_caches and interpreted.context.requires_output_allocator:
        return "it updates a cache, and has outputs whose sizes depend on data"
    return network.cache_objection()


def _add_profiles(builder: Any, config: Any, interpreted: TRTInterpreter) -> None:
    """Adds an optimization profile for each range of sizes.

    There is always one, even an empty one: without it 8.6 makes no execution context for outputs whose sizes depend
    on data.
    """
    for shapes in engine_profiles(interpreted.inputs):
        profile = builder.create_optimization_profile()
        for spec, sizes in zip(interpreted.inputs, shapes, strict=True):
            if -1 in spec.shape:
                minimum, optimum, maximum = zip(*sizes, strict=True)
                profile.set_shape(spec.name, minimum, optimum, maximum)
        with _BUILDING, ErrorLog() as log:
            index = config.add_optimization_profile(profile)
        if index < 0:
            message = f"{describe()} refused the sizes {list(interpreted.inputs)}: {log.text()}"
            raise BuildError(message)


_POOLS = {
    "workspace_size": "WORKSPACE",
    "dla_sram_size": "DLA_MANAGED_SRAM",
    "dla_local_dram_size": "DLA_LOCAL_DRAM",
    "dla_global_dram_size": "DLA_GLOBAL_DRAM",
}
"""For each setting that limits a memory pool, the pool."""


def _apply_settings(config: Any, settings: CompilationSettings) -> None:
    """Configures the build by the settings."""
    for name, pool in _POOLS.items():
        if limit := getattr(settings, name):
            config.set_memory_pool_limit(trt.MemoryPoolType.__members__[pool], limit)
    if settings.optimization_level is not None:
        config.builder_optimization_level = settings.optimization_level
    if settings.tiling_optimization_level is not None:
        level = settings.tiling_optimization_level.upper()
        config.tiling_optimization_level = trt.TilingOptimizationLevel.__members__[level]
    if settings.l2_limit_for_tiling is not None:
        config.l2_limit_for_tiling = settings.l2_limit_for_tiling
    config.avg_timing_iterations = settings.num_avg_timing_iters
    if settings.disable_tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    set_targets(config, settings)
    _choose_target(config, settings)
    for flag in builder_flags(settings):
        config.set_flag(flag)
    if settings.max_aux_streams is not None:
        config.max_aux_streams = settings.max_aux_streams
    if settings.tactic_sources is not None:
        config.set_tactic_sources(settings.tactic_sources)


def _choose_target(config: Any, settings: CompilationSettings) -> None:
    """Chooses the processors, the runtime and the operating system that the engine is for."""
    if settings.hardware_compatible:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    if settings.dla_core is not None:
        config.default_device_type = trt.DeviceType.DLA
        config.DLA_core = settings.dla_core
    if settings.engine_capability is not None:
        capability = settings.engine_capability.upper()
        config.engine_capability = trt.EngineCapability.__members__[capability]
    if settings.enable_cross_compile_for_windows:
        config.runtime_platform = trt.RuntimePlatform.WINDOWS_AMD64


@dataclass(frozen=True)
class Services:
    """The parts of a compilation that accompany its builds.

    Attributes:
        stages: Times the stages and shows their progress.
        cache: Keeps engines; may be None.
        timings: Keeps the timings of kernels; may be None.
        watcher: Watches how weights are used, so that they can be replaced.
    """

    stages: Stages
    cache: EngineCache | None
    timings: TimingCache | None
    watcher: ProgramWatcher


def build_engine(
    name: str,
    block: GraphModule,
    profiles: Sequence[Profile],
    settings: CompilationSettings,
    services: Services,
    waits: bool = True,
) -> BuiltEngine:
    """Returns one block's engine as a module, and its row in the report.

    Args:
        name: The block's name.
        block: The block. Its calls carry their resolutions.
        profiles: The sizes to build for.
        settings: The settings of the compilation.
        services: What accompanies it.
        waits: Whether to wait for another process that builds the same engine.

    Raises:
        ConversionError: A converter failed.
        BuildError: TensorRT refused the network.
        BeingBuiltError: Another process builds the engine, and this one does not wait.
    """
    request, watcher = request_of(name, block, profiles, settings, services.watcher)
    if services.cache is None:
        return _build(request, watcher, services)
    return services.cache.get_or_build(request, lambda: _build(request, watcher, services), waits)


def request_of(
    name: str,
    block: GraphModule,
    profiles: Sequence[Profile],
    settings: CompilationSettings,
    watcher: ProgramWatcher,
) -> tuple[EngineRequest, BlockWatcher]:
    """Returns all that the engine of a block follows from, and what watches its conversion."""
    placeholders = block.graph.find_nodes(op="placeholder")
    names = ["".join(engine_names(node)) or node.name for node in placeholders]
    values = [node.meta["val"] for node in placeholders]
    inputs = [
        profile_of_input(input_name, value, profiles)
        for input_name, value in zip(names, values, strict=True)
    ]
    watching = watcher.block(block)
    sizes = union_of_profiles(profiles)
    bounds = {symbol: (size.min, size.max) for symbol, size in sizes.items()}
    return EngineRequest(name, block, inputs, bounds, settings, watching.followed()), watching


def _build(request: EngineRequest, watcher: BlockWatcher, services: Services) -> BuiltEngine:
    """Converts one block and builds its engine."""
    block, inputs, settings = request.block, request.inputs, request.settings
    stages = services.stages
    count = sum(node.op == "call_function" for node in block.graph.nodes)
    with stages.stage("TensorRT start"):
        builder = trt.Builder(logger())  # the first one of a process loads TensorRT's kernels
    with stages.stage("conversion", count), bounding(request.bounds):
        network = create_network(builder)
        interpreted = TRTInterpreter(
            block, network, inputs, settings, stages.advance, watcher
        ).run()
    with stages.stage("building"):
        plan = build_plan(builder, interpreted, settings, services.timings)
        interpreted.context.clear_cpu_weights_reference_holder()
    compatibility = {
        "version": settings.version_compatible,
        "hardware": settings.hardware_compatible,
    }
    engine = EngineModule(
        plan,
        inputs,
        interpreted.output_dtypes,
        interpreted.context.requires_output_allocator,
        request.name,
        interpreted.converted_by,
        recipe=watcher.recipe(),
        compatible=[where for where, is_on in compatibility.items() if is_on],
        compute_capabilities=compute_capabilities(settings),
        collectives=collectives_in(block),
        plugins=with_distributions(interpreted.context.plugins),
    )
    if settings.strip_engine_weights:
        strip(engine, request.followed, takes_others=not settings.immutable_weights)
    elif not settings.immutable_weights:
        check_replaceable(engine)
    row = BlockReport(request.name, count, interpreted.network.num_layers, len(plan))
    return BuiltEngine(engine, row)


def _share_profiles(config: Any) -> None:
    """Lets several execution contexts use a profile at a time, which TensorRT 8.6 does only with a flag."""
    if not supports(Capability.SHARED_PROFILES):
        config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)


def _preview_collectives(network: Any, config: Any) -> None:
    """Lets layers of a network exchange tensors between processes, which TensorRT 10.16 has as a preview feature."""
    if supports(Capability.SETTLED_COLLECTIVES):
        return
    has_layer = supports(Capability.DISTRIBUTED_COLLECTIVES)
    if has_layer and any(layer.num_ranks > 1 for layer in network):
        config.set_preview_feature(trt.PreviewFeature.MULTIDEVICE_RUNTIME_10_16, True)
