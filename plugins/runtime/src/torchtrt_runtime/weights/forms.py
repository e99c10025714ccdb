"""The forms in which someone passes weights."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from torchtrt.errors import RefitError, kind_of
from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt_runtime.processes.groups import is_distributed
from torchtrt_runtime.torch_internals import is_fake, is_traceable_wrapper_subclass


def inner_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns tensors by name, and of a subclass that wraps tensors those inside: ``"weight.scale"``.

    A ``DTensor`` stands for its local part, which has the name of the whole in a program.
    """
    tensors_inside: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        wrapper: Any = tensor
        if is_distributed(wrapper):
            wrapper = wrapper.to_local()
        is_wrapper: bool = is_traceable_wrapper_subclass(wrapper)
        if is_wrapper and not wrapper.is_nested:
            names = wrapper.__tensor_flatten__()[0]
            parts = {f"{name}.{part}": getattr(wrapper, part) for part in names}
            tensors_inside |= inner_tensors(parts)
        else:
            tensors_inside[name] = wrapper
    return tensors_inside


def named_weights(new_weights: Any, names: Collection[str]) -> dict[str, torch.Tensor]:
    """Returns weights by the model's names for them.

    Args:
        new_weights: What they come as.
        names: The names of the weights that a model was compiled with: other plain attributes are no weights.
    """
    if isinstance(new_weights, torch.nn.Module):
        attributes = {
            f"{path}.{name}" if path else name: value
            for path, module in new_weights.named_modules(remove_duplicate=False)
            for name, value in vars(module).items()
            if isinstance(value, torch.Tensor)
        }
        return {
            **{name: attributes[name] for name in attributes if name in names},
            **dict(new_weights.named_parameters(remove_duplicate=False)),
            **dict(new_weights.named_buffers(remove_duplicate=False)),
        }
    if isinstance(new_weights, ExportedProgram):
        constants = new_weights.constants
        return {
            **{name: constants[name] for name in constants if name in names},
            **new_weights.state_dict,
        }
    if isinstance(new_weights, Mapping):
        return dict(new_weights)
    raise RefitError(
        "New weights come as a model, an exported program or a state dict of tensors, not as a "
        f"{type(new_weights).__name__}."
    )


def form_of(value: Any) -> str:
    """Returns the dtype and the shape of a tensor of values, or what else something is."""
    if not isinstance(value, torch.Tensor):
        return f"{kind_of(value)}, no tensor"
    if is_lazy(value) or is_fake(value) or value.device.type == "meta":
        return "a tensor without values"
    if value.is_nested or value.layout is not torch.strided:
        return "a nested tensor" if value.is_nested else f"a tensor of layout {value.layout}"
    return f"{dtype_name(value.dtype)} {list(value.shape)}"


def is_same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Returns whether two tensors have the same values; NaN is the same as NaN."""
    if first.data_ptr() == second.data_ptr() and first.stride() == second.stride():
        return True
    if first.is_floating_point() and first.dtype.itemsize == 1:  # PyTorch compares no float8
        first, second = (tensor.contiguous().view(torch.uint8) for tensor in (first, second))
    infinite = {"posinf": math.inf, "neginf": -math.inf}
    return torch.equal(first.nan_to_num(**infinite), second.nan_to_num(**infinite)) and torch.equal(
        first.isnan(), second.isnan()
    )
