"""What the packs of the example register."""

from __future__ import annotations

from typing import Any


def convert(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> None:
    """Stands for a converter."""


def decompose(self: Any) -> None:
    """Stands for a decomposition."""


def fold(graph_module: Any, settings: Any) -> None:
    """Stands for a pass over the graph."""


def accepts(node: Any) -> bool:
    """Stands for a validator."""
    return True
