"""Adds layers and constants to a network."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.conversion.context import ConversionContext


def add_layer(ctx: ConversionContext, kind: str, *args: Any, **kwargs: Any) -> Any:
    """Returns the layer that ``ctx.net.add_<kind>`` makes.

    Args:
        ctx: The conversion context.
        kind: What follows ``add_`` in TensorRT's name of the method.
        *args: The method's arguments.
        **kwargs: The method's arguments.

    Raises:
        ConversionError: TensorRT refused the layer.
    """
    return getattr(ctx.net, f"add_{kind}")(*args, **kwargs)


def add(ctx: ConversionContext, kind: str, *args: Any, **kwargs: Any) -> Any:
    """Returns the only output of the layer that :func:`add_layer` makes."""
    return add_layer(ctx, kind, *args, **kwargs).get_output(0)


def get_trt_tensor(
    ctx: ConversionContext, value: Any, name: str = "", dtype: torch.dtype | None = None
) -> Any:
    """Returns a network tensor for ``value``.

    Args:
        ctx: The conversion context.
        value: A network tensor (returned as it is, or cast to ``dtype``), a Python number or nested
            list of them, a NumPy array or a PyTorch tensor (a constant layer is made; a number's is
            shared by the whole network).
        name: A part of the constant layer's name; see :meth:`ConversionContext.part`.
        dtype: The dtype to have. Without it a constant keeps its own, and a Python number becomes
            int32 or float32.

    Raises:
        ConversionError: ``value`` is none of these.
    """
    if not name:
        return ctx.tensor(value, dtype)
    with ctx.part(name):
        return ctx.tensor(value, dtype)


def get_constant(
    ctx: ConversionContext,
    tensor: torch.Tensor,
    dtype: torch.dtype | None = None,
    shape: tuple[int, ...] | None = None,
) -> Any:
    """Returns a constant with the values of ``tensor``.

    A weight of the model keeps its name for refitting as long as its values are used unchanged, whatever the shape.

    Args:
        ctx: The conversion context.
        tensor: The values.
        dtype: The dtype to have; the tensor's own without it.
        shape: The shape to have, of as many elements; the tensor's own without it.
    """
    tensor = tensor if dtype is None else tensor.to(dtype)
    shape = tuple(tensor.shape) if shape is None else shape
    if shape == tuple(tensor.shape) or tensor.dtype is torch.bool:
        return ctx.tensor(tensor.reshape(shape) if shape != tuple(tensor.shape) else tensor)
    return ctx.add_constant(tensor, shape)


def get_weights(ctx: ConversionContext, tensor: torch.Tensor) -> Any:
    """Returns ``trt.Weights`` over a tensor's values, for layers that take weights rather than tensors."""
    return ctx.weights(tensor)
