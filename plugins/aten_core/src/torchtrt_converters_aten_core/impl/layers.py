"""Adds one layer to the network: names it, and turns a refusal into an error that says which layer it was."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.conversion import get_trt_tensor, get_weights, name_weights
from torchtrt.errors import ConversionError


def add_layer(ctx: Any, name: str, kind: str, *args: Any, **kwargs: Any) -> Any:
    """Returns the layer that ``ctx.net.add_<kind>`` makes, under the given name.

    Args:
        ctx: The conversion context.
        name: The layer's name: the converter's own, or that and ``/part``.
        kind: What follows ``add_`` in TensorRT's name of the method.
        *args: The method's arguments.
        **kwargs: The method's arguments.

    Raises:
        ConversionError: TensorRT refused the layer.
    """
    layer = getattr(ctx.net, f"add_{kind}")(*args, **kwargs)
    if layer is None:
        inputs = ", ".join(
            f"{value.dtype.name} {list(value.shape)}" for value in args if hasattr(value, "dtype")
        )
        message = (
            f"{name}: TensorRT refused the {kind} layer over ({inputs}). Its log says why; keep the op in "
            "PyTorch with torch_executed_ops, or report the case to this pack."
        )
        raise ConversionError(message)
    layer.name = name
    return layer


def add(ctx: Any, name: str, kind: str, *args: Any, **kwargs: Any) -> Any:
    """Returns the only output of the layer that :func:`add_layer` makes."""
    return add_layer(ctx, name, kind, *args, **kwargs).get_output(0)


def constant(
    ctx: Any,
    tensor: torch.Tensor,
    name: str,
    dtype: torch.dtype | None = None,
    shape: tuple[int, ...] | None = None,
) -> Any:
    """Returns a constant with the values of ``tensor``.

    A weight of the model keeps its name for refitting as long as its values are used unchanged, whatever the shape.

    Args:
        ctx: The conversion context.
        tensor: The values.
        name: The layer's name.
        dtype: The dtype to have; the tensor's own without it.
        shape: The shape to have, of as many elements; the tensor's own without it.
    """
    tensor = tensor if dtype is None else tensor.to(dtype)
    shape = tuple(tensor.shape) if shape is None else shape
    if shape == tuple(tensor.shape):
        return get_trt_tensor(ctx, tensor, name)
    if tensor.dtype is torch.bool:
        return get_trt_tensor(ctx, tensor.reshape(shape), name)
    weights = get_weights(ctx, tensor)
    result = add(ctx, name, "constant", shape, weights)
    name_weights(ctx, weights, tensor)
    return result
