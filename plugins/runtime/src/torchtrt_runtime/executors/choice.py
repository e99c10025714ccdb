"""Chooses the executor for the settings of a compilation."""

from __future__ import annotations

from collections.abc import Mapping

from torchtrt.settings import CompilationSettings
from torchtrt_runtime.executors.cuda_graphs import CudaGraphs
from torchtrt_runtime.executors.inductor import InductorFallback
from torchtrt_runtime.modules.execution import Executor

_MODES: Mapping[bool | str, str | None] = {True: None, "max-autotune": "max-autotune-no-cudagraphs"}
"""The mode of ``torch.compile`` for a setting. CUDA graphs are a setting of their own."""


def executor_for(
    settings: CompilationSettings, cuda_graphs: bool | str, inner: Executor | None = None
) -> Executor:
    """Returns the executor of a compiled model.

    Args:
        settings: The settings of its compilation; ``inductor`` is read.
        cuda_graphs: The value of ``RuntimeSettings.cuda_graphs``.
        inner: The executor that runs the graph where it is not captured, if the model has one.
    """
    if inner is None:
        inner = InductorFallback(_MODES[settings.inductor]) if settings.inductor else Executor()
    if cuda_graphs in (False, "runtime"):
        return inner
    return CudaGraphs(overwrites=cuda_graphs == "overwrite", inner=inner)
