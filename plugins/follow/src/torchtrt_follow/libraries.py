"""Facts about the models of libraries, which packs give: ``pack.followed_library``.

A followed model is watched by what PyTorch counts, and by its Python state. A library may write to weights in ways that
PyTorch does not count, keep labels in its models, or collect results by hooks.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from typing import Any, Protocol

import torch

from torchtrt.packs import current_packs


class Library(Protocol):
    """The facts about a library. An implementation may lack any of these attributes."""

    weight_loaders: Collection[str]
    """The methods of its models that write to weights through ``.data``."""

    def labels(self, value: object) -> Collection[str]:
        """Returns the attributes, or keys, of a model or a configuration that no ``forward`` reads."""

    def scales(self, module: torch.nn.Module) -> dict[str, Any] | None:
        """Returns the numbers of a module that can change like weights, by name; None if it has none.

        ``module.scaling`` is the dictionary.
        """

    def merged(self, model: torch.nn.Module) -> Hashable:
        """Returns a value that is another one after the library has written to weights through ``.data``."""

    def only_collects(self, hook: object) -> bool:
        """Returns whether a hook of a module does nothing but collect what modules return."""

    def is_collecting(self) -> bool:
        """Returns whether hooks collect what modules inside of the model that is being called return."""

    def is_idle(self, value: object) -> bool:
        """Returns whether an attribute's value is a registry of hooks that has none."""


def _attributes(name: str) -> Iterator[Any]:
    """Yields an attribute of each library that has it."""
    for loaded in current_packs().loaded:
        for library in loaded.pack.followed_libraries:
            if (attribute := getattr(library, name, None)) is not None:
                yield attribute


def _ask(question: str, *arguments: Any) -> list[Any]:
    """Returns the answers of the libraries that have one."""
    return [answer(*arguments) for answer in _attributes(question)]


def weight_loaders() -> set[str]:
    """Returns the methods of models that write to weights through ``.data``."""
    return set().union(*_attributes("weight_loaders"))


def labels_of(value: object) -> frozenset[str]:
    """Returns the names of what no ``forward`` reads of a configuration or a model; none for any other object."""
    return frozenset().union(*_ask("labels", value))


def scales_of(module: torch.nn.Module) -> dict[str, Any] | None:
    """Returns the numbers of a module that can change like weights, by name; None if it has none."""
    return next((scales for scales in _ask("scales", module) if scales is not None), None)


def merged_weights(model: torch.nn.Module) -> list[Hashable]:
    """Returns values that are others after libraries have written to weights through ``.data``."""
    return _ask("merged", model)


def only_collects(hook: object) -> bool:
    """Returns whether a hook does nothing but collect what modules return."""
    return any(_ask("only_collects", hook))


def is_collecting() -> bool:
    """Returns whether hooks collect what modules inside of the model that is being called return."""
    return any(_ask("is_collecting"))


def is_idle(value: object) -> bool:
    """Returns whether a value is a registry of hooks that has none."""
    return any(_ask("is_idle", value))
