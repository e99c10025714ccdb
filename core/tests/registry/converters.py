"""What the tests of lookup register."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchtrt.packs import ConverterPack
from torchtrt.registry import ConverterRegistry

relu = torch.ops.aten.relu.default

RegistryOf = Callable[..., ConverterRegistry]
Call = Any


def convert(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> None:
    """Stands for a converter."""


def pack(
    name: str = "vision", /, target: Any = relu, implementation: Any = convert, **options: Any
) -> ConverterPack:
    """Returns a pack with one converter."""
    made = ConverterPack(name)
    made.add(target, implementation, **options)
    return made
