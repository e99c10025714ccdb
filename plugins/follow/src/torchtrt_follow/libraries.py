"""Facts about the models of libraries, which packs give: ``pack.followed_library``.

A followed model is watched by what PyTorch counts, and by its Python state. A library may write to weights in ways that
PyTorch does not count, keep labels in its models, or collect results by hooks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
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

    def only_collects(self, hook: object) -> bool:
        """Returns whether a hook of a module does nothing but collect what modules return."""

    def is_collecting(self) -> bool:
        """Returns whether hooks collect what modules inside of the model that is being called return."""


_OF_RECURRENT_LAYERS = ("_flat_weights", "_flat_weight_refs")


def _answers(name: str, *arguments: Any) -> Iterator[Any]:
    """Yields an attribute of each library that has it, or the result of this method for arguments."""
    for loaded in current_packs().loaded:
        for library in loaded.pack.followed_libraries:
            if (attribute := getattr(library, name, None)) is not None:
                yield attribute(*arguments) if callable(attribute) else attribute


def weight_loaders() -> set[str]:
    """Returns the ``weight_loaders`` of all libraries."""
    return set().union(*_answers("weight_loaders"))


def labels_of(value: object) -> set[str]:
    """Returns the ``labels`` of all libraries, and the lists of its weights that a recurrent layer of PyTorch keeps."""
    own = _OF_RECURRENT_LAYERS if isinstance(value, torch.nn.RNNBase) else ()
    return set().union(own, *_answers("labels", value))


def scales_of(module: torch.nn.Module) -> dict[str, Any]:
    """Returns the ``scales`` of the first library that has some; a new dictionary if none has."""
    return next((scales for scales in _answers("scales", module) if scales is not None), {})


def only_collects(hook: object) -> bool:
    """Returns whether a hook ``only_collects``, as a library says."""
    return any(_answers("only_collects", hook))


def is_collecting() -> bool:
    """Returns whether the hooks of a library collect."""
    return any(_answers("is_collecting"))
