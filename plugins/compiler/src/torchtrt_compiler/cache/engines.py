"""The protocols of caches of engines and of timings, and the caches that keep nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch.fx import GraphModule

from torchtrt.conversion.inputs import InputProfile
from torchtrt.settings import CompilationSettings
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.reports.report import BlockReport

FOLDER_VARIABLE = "TORCHTRT_CACHE"


class BuiltEngine(NamedTuple):
    """An engine that was built, or taken from a cache.

    Attributes:
        module: The engine as a module.
        row: Its row in the report.
    """

    module: EngineModule
    row: BlockReport


class BeingBuiltError(Exception):
    """Another process builds the engine."""


@dataclass(frozen=True)
class EngineRequest:
    """Everything that an engine follows from, but for TensorRT and the packs.

    Attributes:
        name: The block's name.
        block: The block. Its calls carry their resolutions.
        inputs: The sizes and dtypes of its inputs, for each profile.
        settings: The settings of the compilation.
        followed: The block's weights that follow from the model's, by name, if they are watched.
    """

    name: str
    block: GraphModule
    inputs: Sequence[InputProfile]
    settings: CompilationSettings
    followed: Mapping[str, torch.Tensor]

    @property
    def replaceable(self) -> Mapping[str, torch.Tensor]:
        """The block's weights that can be replaced in the engine, by name."""
        return {} if self.settings.immutable_weights else self.followed


class EngineStore(Protocol):
    """Keeps engines."""

    def get_or_build(
        self, request: EngineRequest, build: Callable[[], BuiltEngine], waits: bool
    ) -> BuiltEngine:
        """Returns the engine of a block: one that was kept, or the one that ``build`` returns.

        Args:
            request: The block.
            build: Builds the engine.
            waits: Whether to wait for another process that builds it.

        Raises:
            BeingBuiltError: Another process builds it, and this one does not wait.
        """
        ...


class NoCache:
    """Keeps nothing: each engine is built."""

    def get_or_build(
        self, request: EngineRequest, build: Callable[[], BuiltEngine], waits: bool
    ) -> BuiltEngine:
        """Returns the engine that ``build`` returns."""
        del request, waits
        return build()


class TimingStore(Protocol):
    """Keeps the timings from which TensorRT chose kernels."""

    def use(self, config: Any) -> None:
        """Gives the builder's configuration the timings of earlier builds."""
        ...

    def keep(self, config: Any) -> None:
        """Keeps the timings of a build."""
        ...


class NoTimings:
    """Keeps no timings."""

    def use(self, config: Any) -> None:
        """Does nothing."""

    def keep(self, config: Any) -> None:
        """Does nothing."""
