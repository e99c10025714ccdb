"""Chooses the executor for the settings of a compilation."""

from __future__ import annotations

from collections.abc import Mapping

from torchtrt.settings import CompilationSettings
from torchtrt_runtime.executors.cuda_graphs import CudaGraphs
from torchtrt_runtime.executors.inductor import InductorFallback
from torchtrt_runtime.modules.execution import Executor, PlainExecutor

_MODES: Mapping[bool | str, str | None] = {True: None, "max-autotune": "max-autotune-no-cudagraphs"}
"""The mode of ``torch.compile`` for a setting. CUDA graphs are a setting of their own."""


def executor_for(settings: CompilationSettings) -> Executor:
    """Returns the executor for the settings ``inductor`` and ``cuda_graphs``."""
    inner: Executor = PlainExecutor()
    if settings.inductor:
        inner = InductorFallback(_MODES[settings.inductor])
    if settings.cuda_graphs in (False, "runtime"):
        return inner
    return CudaGraphs(overwrites=settings.cuda_graphs == "overwrite", inner=inner)
