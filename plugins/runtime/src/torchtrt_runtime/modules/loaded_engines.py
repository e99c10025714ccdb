"""From a plan to an engine in memory."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch

from torchtrt.tensorrt import Capability, supports, trt
from torchtrt.tensorrt.logging import logger
from torchtrt_kernels.operators import PluginKey
from torchtrt_kernels.tensorrt_plugins import provide
from torchtrt_runtime.runtime_settings import RuntimeSettings
from torchtrt_runtime.weights.recipe import Recipe
from torchtrt_runtime.weights.refitter import restore
from torchtrt_runtime.weights.stripped import StrippedWeights


class StoredEngine(Protocol):
    """The attributes of an ``EngineModule`` from which its plan is loaded."""

    name: str
    plan: Any
    plugins: tuple[PluginKey, ...]
    compatible: tuple[str, ...]
    recipe: Recipe | None
    stripped: StrippedWeights | None
    weight_budget: int | None
    runtime_settings: RuntimeSettings


class LoadedEngine(NamedTuple):
    """An engine in memory.

    Attributes:
        runtime: What loaded it. The engine makes contexts only as long as its runtime lives.
        engine: The engine; None where TensorRT refused the plan.
    """

    runtime: Any
    engine: Any


def load_plan(module: StoredEngine, device: torch.device) -> LoadedEngine:
    """Returns the engine of a plan, ready to run, loaded by a runtime of its own.

    Raises:
        EngineMismatchError: A plugin that it needs is in a pack that is not here.
        EngineError: Its plan was stripped, and its weights are missing.
        RefitError: These weights do not fit.
    """
    loaded = read_plan(module, device)
    engine = loaded.engine
    if engine is not None and module.stripped is not None:
        restore(engine, module.name, module.recipe or Recipe(), module.stripped)
    streams = engine is not None and supports(Capability.WEIGHT_STREAMING)
    if streams and engine.streamable_weights_size:
        budget = module.weight_budget
        if budget is None:
            budget = engine.get_weight_streaming_automatic_budget()
        engine.weight_streaming_budget_v2 = budget
    return loaded


def read_plan(module: StoredEngine, device: torch.device) -> LoadedEngine:
    """Returns the engine of a plan with the weights that the plan has.

    Raises:
        EngineMismatchError: A plugin that it needs is in a pack that is not here.
    """
    provide(module.plugins, f"The engine of {module.name}")
    runtime = trt.Runtime(logger())
    if supports(Capability.TORCH_DEVICES):  # it computes where the tensors are
        runtime.torch_device = device
    if (core := module.runtime_settings.dla_core) is not None:
        runtime.DLA_core = core
    if "version" in module.compatible:  # the plan brings the code that runs it
        runtime.engine_host_code_allowed = True
    return LoadedEngine(runtime, runtime.deserialize_cuda_engine(module.plan))
