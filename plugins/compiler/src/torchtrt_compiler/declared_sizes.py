"""The limits of sizes that ``dynamic_shapes`` declares. PyTorch keeps only what an exported program makes of them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from torchtrt_compiler.inputs import CallInputs

_KEY = "torchtrt_declared_sizes"
Limits = Mapping[tuple[int, int], tuple[int | None, int | None]]
"""For the place of an input and its dimension the smallest and the largest size, as far as they are declared."""


def keep_declared(
    program: ExportedProgram,
    model: torch.nn.Module,
    given: CallInputs,
    dynamic_shapes: Any,
) -> None:
    """Keeps the declared limits in a program's metadata, where ``declared_limits`` finds them.

    Args:
        program: The program.
        model: The model.
        given: The inputs, positional and by keyword.
        dynamic_shapes: As ``torch.export.export`` takes it. Shapes that nest in another way than the inputs are
            ignored.
    """
    specs: dict[int, Any] = {}
    if isinstance(dynamic_shapes, (Mapping, tuple, list)):
        with contextlib.suppress(TypeError, ValueError, AttributeError):
            arguments = inspect.signature(model.forward).bind(*given.args, **given.kwargs).arguments
            by_name = (
                dynamic_shapes
                if isinstance(dynamic_shapes, Mapping)
                else dict(zip(arguments, dynamic_shapes, strict=True))
            )
            for name, value in arguments.items():
                values, tree = pytree.tree_flatten(value)
                shapes = tree.flatten_up_to(by_name.get(name))
                specs.update(zip(map(id, values), shapes, strict=True))
    program.graph_module.meta[_KEY] = {
        (place, dim): limits
        for place, leaf in enumerate(given.leaves)
        if isinstance(leaf, torch.Tensor)
        for dim, each in _dimensions(specs.get(id(leaf)))
        if (limits := _limits(each)) != (None, None)
    }


def declared_limits(exported: ExportedProgram) -> Limits:
    """Returns the limits that were declared where a program was exported."""
    return exported.graph_module.meta.get(_KEY, {})  # type: ignore[no-any-return]


def _dimensions(shape: Any) -> Sequence[tuple[int, Any]]:
    """Returns the dimensions of a shape in ``dynamic_shapes``, by their places."""
    return [*(shape.items() if isinstance(shape, Mapping) else enumerate(shape or ()))]


def _limits(dimension: Any) -> tuple[int | None, int | None]:
    """Returns the limits of a ``torch.export.Dim``. A minimum of 0 is also that of one without a minimum."""
    least, most = (getattr(dimension, name, None) for name in ("min", "max"))
    return (
        least if isinstance(least, int) and least > 0 else None,
        most if isinstance(most, int) else None,
    )
