"""Changes arguments of torchtrt into the form of Torch-TensorRT's converters, and their results back.

A number that is known at run time, such as a size, is a 0-d tensor to torchtrt's converters and a vector of one element
to Torch-TensorRT's. The model's weights are those themselves here, and detached tensors on the CPU there.
"""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.conversion import add_layer, is_network_tensor
from torchtrt_converters_torch_tensorrt.torch_internals import pytree

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""The values that PyTorch returns for a node that makes a number."""


def arguments_for_theirs(ctx: Any, arguments: Any) -> Any:
    """Returns arguments in the form that converters for Torch-TensorRT take."""

    def changed(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().cpu().contiguous()
        is_number = is_network_tensor(leaf) and isinstance(ctx.known_value(leaf), _NUMBERS)
        return reshaped(ctx, leaf, (1,)) if is_number and not len(leaf.shape) else leaf

    return pytree.tree_map(changed, arguments)


def result_of_theirs(ctx: Any, result: Any, expected: Any) -> Any:
    """Returns a network tensor of the shape ``(1,)`` as a 0-d one, where PyTorch returns that or a number."""
    is_scalar = isinstance(expected, _NUMBERS) or (
        isinstance(expected, torch.Tensor) and not expected.dim()
    )
    return reshaped(ctx, result, ()) if is_scalar and tuple(result.shape) == (1,) else result


def reshaped(ctx: Any, tensor: Any, shape: tuple[int, ...]) -> Any:
    """Returns a network tensor of one element in another shape."""
    layer = add_layer(ctx, "shuffle", tensor)
    layer.reshape_dims = shape
    return layer.get_output(0)
