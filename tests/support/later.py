"""Libraries that few tests need, imported when the first of these runs."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

import pytest


class _Later:
    """Stands for a module, and imports it when a name of it is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(("_", "pytest")):  # pytest reads such names of all that a file has
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def later(name: str) -> Any:
    """Returns a module that is imported when a test first reads something of it.

    Each process of a run collects all files, so that what a file imports takes time in each. Besides, PyTorch sets
    attributes of ``nn.Module`` for each graph that it traces, which takes longer the more subclasses there are:
    diffusers alone has a thousand.
    """
    return _Later(name)


def needs(library: str) -> pytest.MarkDecorator:
    """Returns the mark of tests that are skipped where a library is not installed."""
    return pytest.mark.skipif(find_spec(library) is None, reason=f"{library} is not installed")
