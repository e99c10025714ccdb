"""Builds a network into a plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchtrt.conversion.interpreter import TRTInterpreter
from torchtrt.conversion.size_ranges import engine_profiles
from torchtrt.errors import BuildError, SettingsError
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import collecting
from torchtrt.tensorrt.selection import describe
from torchtrt.tensorrt.shims import allow_precisions, share_profiles

_FLAGS = {
    "sparse_weights": ("SPARSE_WEIGHTS", "8.0"),
    "version_compatible": ("VERSION_COMPATIBLE", "8.6"),
    "enable_weight_streaming": ("WEIGHT_STREAMING", "10.0"),
}
"""For a setting the flag that it sets, and the version of TensorRT that brought it."""


def builder_flags(settings: CompilationSettings) -> list[Any]:
    """Returns the flags that settings set; a :class:`SettingsError` names one that the TensorRT in use lacks."""
    wanted = {name: each for name, each in _FLAGS.items() if getattr(settings, name)}
    for name, (flag, since) in wanted.items():
        if not hasattr(trt.BuilderFlag, flag):
            message = f"{describe()} has no {flag}, which the setting {name} asks for: TensorRT has it from {since} on."
            raise SettingsError(message)
    return [getattr(trt.BuilderFlag, flag) for flag, _ in wanted.values()]


def build_plan(
    builder: Any, interpreted: TRTInterpreter, settings: CompilationSettings, cache: Any = None
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Returns the serialized engine of a network: its bytes, in the memory that TensorRT wrote them to.

    A cache of engines gives TensorRT the timings of earlier builds, and keeps those of this one.

    Raises:
        BuildError: TensorRT refused the network; the message holds what it logged.
    """
    config = builder.create_builder_config()
    # Always a profile, even an empty one: without, 8.6 makes no execution context for outputs that depend on data.
    for shapes in engine_profiles(interpreted.inputs):
        profile = builder.create_optimization_profile()
        for spec, sizes in zip(interpreted.inputs, shapes, strict=True):
            if -1 in spec.shape:
                profile.set_shape(spec.name, *zip(*sizes, strict=True))
        with collecting() as log:
            index = config.add_optimization_profile(profile)
        if index < 0:
            message = f"{describe()} refused the sizes {list(interpreted.inputs)}: {log.text()}"
            raise BuildError(message)
    share_profiles(config)
    if settings.workspace_size:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.workspace_size)
    if settings.optimization_level is not None:
        config.builder_optimization_level = settings.optimization_level
    config.avg_timing_iterations = settings.num_avg_timing_iters
    if settings.disable_tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    if not settings.immutable_weights:
        config.set_flag(trt.BuilderFlag.REFIT)
    for flag in builder_flags(settings):
        config.set_flag(flag)
    if settings.hardware_compatible:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    if settings.max_aux_streams is not None:
        config.max_aux_streams = settings.max_aux_streams
    if settings.tactic_sources is not None:
        config.set_tactic_sources(settings.tactic_sources)
    held = allow_precisions(interpreted.network.raw, config)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if cache is not None:
        cache.use_timings(config)
    with collecting() as log:
        plan = builder.build_serialized_network(interpreted.network.raw, config)
        if plan is None and held:
            # Myelin of 8.6 builds some in float32 alone: where keys are appended to a cache.
            for layer in held:
                layer.reset_precision()
            plan = builder.build_serialized_network(interpreted.network.raw, config)
    if plan is None:
        raise BuildError(f"{describe()} could not build the engine:\n  {log.text(chr(10) + '  ')}")
    if cache is not None:
        cache.keep_timings(config)
    return np.frombuffer(plan, dtype=np.uint8)
