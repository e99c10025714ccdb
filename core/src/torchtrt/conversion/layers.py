"""Adds layers and constants to a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchtrt.conversion.context import ConversionContext
from torchtrt.tensorrt.interfaces import NetworkLayer, NetworkTensor

if TYPE_CHECKING:
    from torchtrt.conversion.values import Constant


def add_layer(ctx: ConversionContext, kind: str, *args: Any, **kwargs: Any) -> NetworkLayer:
    """Returns the layer that ``ctx.net.add_<kind>`` makes.

    Args:
        ctx: The conversion context.
        kind: What follows ``add_`` in TensorRT's name of the method.
        *args: The method's arguments.
        **kwargs: The method's arguments.

    Raises:
        ConversionError: TensorRT refused the layer.
    """
    layer: NetworkLayer = getattr(ctx.net, f"add_{kind}")(*args, **kwargs)
    return layer


def add(ctx: ConversionContext, kind: str, *args: Any, **kwargs: Any) -> NetworkTensor:
    """Returns the only output of the layer that ``add_layer`` makes."""
    return add_layer(ctx, kind, *args, **kwargs).get_output(0)


def get_trt_tensor(
    ctx: ConversionContext,
    value: NetworkTensor | Constant,
    name: str = "",
    dtype: torch.dtype | None = None,
) -> NetworkTensor:
    """Returns a network tensor for ``value``.

    Args:
        ctx: The conversion context.
        value: A network tensor, which is returned as it is or cast to ``dtype``. A Python number or nested list of
            them, a NumPy array or a PyTorch tensor becomes a constant layer. Equal numbers share a
            layer.
        name: A part of the constant layer's name; see ``ConversionContext.part``.
        dtype: The dtype to have. Without it a constant keeps its own, and a Python number becomes int32 or float32.

    Raises:
        ConversionError: ``value`` is something else.
    """
    if not name:
        return ctx.tensor(value, dtype)
    with ctx.part(name):
        return ctx.tensor(value, dtype)
