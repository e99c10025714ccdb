"""The entry point: which models this front end takes, and how it exports them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def accepts(model: object) -> bool:
    """Returns whether a model is a scripted or traced module or function."""
    return isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction))


def export(
    model: Any, inputs: Sequence[Any], kwarg_inputs: Mapping[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """Returns the model's ``forward`` as an exported program."""
    from torchtrt_torchscript import compilation

    return compilation.export(
        model, inputs, kwarg_inputs=kwarg_inputs, dynamic_shapes=dynamic_shapes
    )
