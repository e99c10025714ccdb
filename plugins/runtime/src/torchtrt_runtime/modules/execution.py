"""The protocol of executors, and the one that runs a graph as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch.fx import GraphModule

from torchtrt.settings import CompilationSettings


class Executor(Protocol):
    """Runs the graph of a compiled model.

    Attributes:
        captures: Whether ``replay`` may return something.
    """

    captures: bool

    @property
    def inner(self) -> Executor:
        """The executor that runs the graph where it is not captured: another one, or this one."""
        ...

    @property
    def failures(self) -> list[str]:
        """Why Inductor could not compile fallback segments, each reason once."""
        ...

    def drop_calls(self) -> None:
        """Drops what the executor holds of calls so far. Calls with other inputs follow."""
        ...

    def __call__(self, graph_module: GraphModule, inputs: Sequence[Any], /) -> Sequence[Any]:
        """Returns the outputs of a graph for inputs that were checked."""
        ...

    def replay(self, graph_module: GraphModule, inputs: Sequence[Any], /) -> Sequence[Any] | None:
        """Returns the outputs of a captured call for unchecked inputs, or ``None`` if they differ from its inputs."""
        ...


class PlainExecutor:
    """Runs a graph as it is. A compiled model with this executor calls its only engine directly."""

    captures = False

    @property
    def inner(self) -> Executor:
        """This executor."""
        return self

    @property
    def failures(self) -> list[str]:
        """Always empty: Inductor compiles nothing here."""
        return []

    def drop_calls(self) -> None:
        """Does nothing: no call depends on others."""

    def __call__(self, graph_module: GraphModule, inputs: Sequence[Any], /) -> Sequence[Any]:
        """Returns the outputs of the graph, without the hooks of the whole: the compiled model runs those."""
        return graph_module.forward(*inputs)  # type: ignore[no-any-return]

    def replay(self, graph_module: GraphModule, inputs: Sequence[Any], /) -> None:
        """Returns ``None``: no call is captured."""


ExecutorChoice = Callable[[CompilationSettings, bool | str, Executor | None], Executor]
"""Returns the executor for the settings of a compilation, ``RuntimeSettings.cuda_graphs``, and the executor inside."""
