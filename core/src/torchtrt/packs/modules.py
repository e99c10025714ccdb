"""Imports a pack's modules, whose decorators fill the pack."""

from __future__ import annotations

import importlib
import pkgutil


def import_modules(package: str) -> None:
    """Imports a module by its full name. Of a package, it also imports the modules, in the order of their names."""
    folder = getattr(importlib.import_module(package), "__path__", ())
    for name in sorted(module.name for module in pkgutil.iter_modules(folder)):
        importlib.import_module(f"{package}.{name}")
