"""Changes the arguments and results of converters between the forms of torchtrt and Torch-TensorRT.

A number that is known at run time, such as a size, is a 0-d tensor to torchtrt's converters and a vector of one element
to Torch-TensorRT's. The model's weights are those themselves here, and detached tensors on the CPU there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

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


def arguments_for_ours(ctx: Any, node: Node | None, args: Any, kwargs: Any) -> Any:
    """Returns Torch-TensorRT's arguments in torchtrt's form, and records PyTorch's values in the context."""
    scalars: dict[int, Any] = {}
    if node is not None:
        for source, value in _pairs((node.args, node.kwargs), (args, kwargs)):
            pytorch_value = source.meta.get("val")
            _remember(ctx, value, pytorch_value)
            if (
                is_network_tensor(value)
                and isinstance(pytorch_value, _NUMBERS)
                and len(value.shape)
            ):
                scalars[id(value)] = reshaped(ctx, value, ())
                ctx.set_known_value(scalars[id(value)], pytorch_value)
    return pytree.tree_map(lambda leaf: scalars.get(id(leaf), leaf), (args, kwargs))


def _pairs(arguments: Any, values: Any) -> Iterator[tuple[Node, Any]]:
    """Yields each node among a node's arguments with its value."""
    if isinstance(arguments, Node):
        yield arguments, values
    elif isinstance(arguments, dict):
        yield from _pairs(list(arguments.values()), [values[key] for key in arguments])
    elif isinstance(arguments, (list, tuple)):
        for argument, value in zip(arguments, values, strict=True):
            yield from _pairs(argument, value)


def _remember(ctx: Any, value: Any, pytorch_value: Any) -> None:
    if is_network_tensor(value):
        ctx.set_known_value(value, pytorch_value)
    elif isinstance(value, (list, tuple)) and isinstance(pytorch_value, (list, tuple)):
        for one, its in zip(value, pytorch_value, strict=False):
            _remember(ctx, one, its)


def result_of_ours(ctx: Any, node: Node | None, result: Any) -> Any:
    """Returns a number as a network tensor of the shape ``(1,)``."""
    is_number = node is not None and isinstance(node.meta.get("val"), _NUMBERS)
    is_scalar = is_number and is_network_tensor(result) and not len(result.shape)
    return reshaped(ctx, result, (1,)) if is_scalar else result


def reshaped(ctx: Any, tensor: Any, shape: tuple[int, ...]) -> Any:
    """Returns a network tensor of one element in another shape."""
    layer = add_layer(ctx, "shuffle", tensor)
    layer.reshape_dims = shape
    return layer.get_output(0)
