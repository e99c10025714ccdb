"""The table: every module of this package holds one family of cases in ``CASES``."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from tests.agreement.case import Case


@functools.lru_cache(maxsize=1)
def table() -> dict[str, tuple[Case, ...]]:
    """Returns the cases of each family, by the family's name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: tuple(importlib.import_module(f"{__name__}.{name}").CASES) for name in names}
