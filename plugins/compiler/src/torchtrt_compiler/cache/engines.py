"""A request for an engine, and the answer of the builder or a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule

from torchtrt.conversion.inputs import InputProfile
from torchtrt.expressions.bounds import Bounds
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
        bounds: The least and the greatest values of the model's symbols.
        settings: The settings of the compilation.
        followed: The block's weights that follow from the model's, by name, if they are watched.
    """

    name: str
    block: GraphModule
    inputs: Sequence[InputProfile]
    bounds: Mapping[Any, Bounds]
    settings: CompilationSettings
    followed: Mapping[str, torch.Tensor]

    @property
    def replaceable(self) -> Mapping[str, torch.Tensor]:
        """The block's weights that can be replaced in the engine, by name."""
        return {} if self.settings.immutable_weights else self.followed
