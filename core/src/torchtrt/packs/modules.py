"""Imports a folder of a pack's modules, whose decorators fill the pack."""

from __future__ import annotations

import importlib
import pkgutil


def import_modules(package: str) -> None:
    """Imports every module of a package, by its full name, in the order of their names; none in folders of it."""
    folder = importlib.import_module(package)
    for name in sorted(module.name for module in pkgutil.iter_modules(folder.__path__)):
        importlib.import_module(f"{package}.{name}")
