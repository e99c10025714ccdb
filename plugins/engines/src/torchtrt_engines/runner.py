"""How the graph of a compiled model runs, where the settings ask for more than one op after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtrt.settings import CompilationSettings
from torchtrt_engines.cuda_graphs import CudaGraphs
from torchtrt_engines.torch_parts import TorchParts

Runner = Callable[..., Sequence[Any]]
"""Takes a graph and its checked inputs in a sequence, and returns its outputs.

One that remembers calls also has ``replay``, of unchecked inputs, which returns None where they are not like those.
"""

_MODES: Mapping[bool | str, str | None] = {True: None, "max-autotune": "max-autotune-no-cudagraphs"}
"""The mode of ``torch.compile`` for a setting: to record calls is another one."""


def runner_of(settings: CompilationSettings) -> Runner | None:
    """Returns what runs graphs as the settings ask, or None where a graph is just called."""
    run = TorchParts(_MODES[settings.inductor]) if settings.inductor else None
    if not settings.cuda_graphs:
        return run
    return CudaGraphs(overwrites=settings.cuda_graphs == "overwrite", run=run)


def inductor_failures(runner: Runner | None) -> list[str]:
    """Returns why Inductor could not compile what it could not, each reason once."""
    run = runner.plain if isinstance(runner, CudaGraphs) else runner
    return run.failures if isinstance(run, TorchParts) else []
