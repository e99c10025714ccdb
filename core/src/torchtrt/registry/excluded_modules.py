"""The setting ``torch_executed_modules``: which modules of a model its patterns match."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch.fx import Node

from torchtrt.settings import CompilationSettings


def excluding_module(node: Node, settings: CompilationSettings) -> str:
    """Returns the pattern of ``torch_executed_modules`` that matches a module of a node; empty if none does."""
    names = list(module_names(node))
    patterns = sorted(settings.torch_executed_modules)
    return next(
        (pattern for pattern in patterns if any(re.fullmatch(pattern, name) for name in names)), ""
    )


def module_names(node: Node) -> Iterator[str]:
    """Yields the path, and the name of the class, of each module whose ``forward`` is running where a node is called.

    The model itself has no path.
    """
    for path, kind in node.meta.get("nn_module_stack", {}).values():
        yield from filter(None, (path,))
        yield kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
