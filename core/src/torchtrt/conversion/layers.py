"""Adds one layer to the network."""

from __future__ import annotations

from typing import Any

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
