"""Whether a model takes sizes that its program does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from torchtrt.errors import ExportError
from torchtrt.graphs.symbols import quiet_tracing, size_at

Retrace = Callable[[tuple[Any, ...], dict[str, Any]], ExportedProgram]
"""Exports the model with other inputs: tensors, whose sizes are fixed."""
MOST_EXPORTS = 2
"""How often a model is exported again in one compilation, whatever the number of its sizes and conditions."""


class Trials:
    """Exports a model again with some sizes, to learn whether it takes them.

    Args:
        placeholders: The inputs of the program.
        spec: How the inputs nest.
        retrace: Exports the model; ``None`` where the exported program is the model.
    """

    def __init__(
        self, placeholders: Sequence[Node], spec: pytree.TreeSpec, retrace: Retrace | None
    ) -> None:
        self._placeholders, self._spec, self._retrace = placeholders, spec, retrace
        self._left = MOST_EXPORTS if retrace else 0

    @property
    def are_left(self) -> bool:
        """Whether the model may be exported once more."""
        return self._left > 0

    def takes(
        self, values: Mapping[Any, int], sizes: Mapping[tuple[int, int], int] | None = None
    ) -> bool:
        """Returns whether the model takes inputs of these sizes.

        Args:
            values: The values of the program's symbols.
            sizes: The sizes of some dimensions, by the number of the input and the dimension.
        """
        assert self._retrace is not None
        self._left -= 1
        leaves = [
            self._example(number, node.meta.get("val"), values, sizes or {})
            for number, node in enumerate(self._placeholders)
        ]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        try:
            with warnings.catch_warnings(), quiet_tracing():
                warnings.simplefilter("ignore")  # the first export gave them
                self._retrace(args, kwargs)
        except ExportError:
            return False
        return True

    def _example(
        self,
        number: int,
        value: Any,
        values: Mapping[Any, int],
        sizes: Mapping[tuple[int, int], int],
    ) -> Any:
        """Returns an input of these sizes."""
        if not isinstance(value, torch.Tensor):
            return value
        shape = [
            sizes.get((number, dim), size_at(size, values)) for dim, size in enumerate(value.shape)
        ]
        return torch.ones(shape, dtype=value.dtype, device=value.device)
