"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    namespace: dict[str, Any], modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns a package's ``__getattr__`` and ``__dir__``.

    Args:
        namespace: The package's ``globals()``.
        modules: For each module the names that it has.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        return namespace.setdefault(name, getattr(importlib.import_module(places[name]), name))

    def names() -> list[str]:
        return sorted({*namespace, *places})

    return get, names
