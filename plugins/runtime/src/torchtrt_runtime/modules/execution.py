"""The base of executors, which runs a graph as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from torchtrt.settings import CompilationSettings


class Executor:
    """Runs the graph of a compiled model as it is. The classes that derive from it run it in other ways.

    A compiled model with an executor of this very class calls its only engine directly.

    Attributes:
        captures: Whether ``replay`` may return something.
        inner: The executor that runs the graph where it is not captured; None if this one does.
    """

    captures = False
    inner: Executor | None = None

    @property
    def failures(self) -> Sequence[str]:
        """Why Inductor could not compile fallback segments, each reason once."""
        return ()

    def drop_calls(self) -> None:
        """Drops what the executor holds of calls so far. Calls with other inputs follow."""

    def __call__(self, graph_module: GraphModule, inputs: Sequence[Any], /) -> Sequence[Any]:
        """Returns the outputs of a graph for inputs that were checked.

        It runs without the hooks of the whole: the compiled model runs those.
        """
        return graph_module.forward(*inputs)  # type: ignore[no-any-return]

    def replay(self, graph_module: GraphModule, inputs: Sequence[Any], /) -> Sequence[Any] | None:
        """Returns the outputs of a captured call for unchecked inputs, or ``None`` if they differ from its inputs."""


ExecutorChoice = Callable[[CompilationSettings, bool | str, Executor | None], Executor]
"""Returns the executor for the settings of a compilation, ``RuntimeSettings.cuda_graphs``, and the executor inside."""
