"""Models that are after their export what they were before."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch

_CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)
"""Exact classes: a library's own subclass may not be cleared."""


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Restores what the modules of a model hold, after a ``with`` block in which the model is exported.

    A module may replace its weights while it runs, as an attention with adapters of PEFT does, or keep a tensor for the
    next call. It would keep tensors without values. Attributes are restored, and what lists, dictionaries and sets
    in them contain; objects of other classes are not entered.
    """
    classes = [(module, module.__class__) for module in model.modules()]
    held: dict[int, tuple[Any, Any]] = {}
    for module, _ in classes:
        _hold(vars(module), held)
    try:
        yield
    finally:
        for module, kind in classes:
            if module.__class__ is not kind:
                module.__class__ = kind
        for container, contents in held.values():
            _restore(container, contents)


def _hold(container: Any, held: dict[int, tuple[Any, Any]]) -> None:
    """Adds a container and those in it to a table, with copies of what they hold now."""
    if type(container) not in _CONTAINERS or id(container) in held:
        return
    held[id(container)] = container, container.copy()
    for value in list(container.values() if isinstance(container, dict) else container):
        _hold(value, held)


def _restore(container: Any, held: Any) -> None:
    """Gives a container the contents that it had, in their order."""
    if _contents(container) == _contents(held):
        return
    container.clear()
    (container.extend if isinstance(container, list | deque) else container.update)(held)


def _contents(container: Any) -> list[Any]:
    """Returns the keys of a container and the identities of its values."""
    if isinstance(container, dict):
        return [(key, id(value)) for key, value in container.items()]
    return [id(value) for value in container]
