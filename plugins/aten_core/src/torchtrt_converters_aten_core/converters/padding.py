"""Elements added around a tensor, and tensors turned around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, Size, arguments_of, value_of
from torchtrt_blocks import padding as blocks
from torchtrt_blocks import shape, sizes, types
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


MODES: dict[object, str] = {
    aten.constant_pad_nd.default: "constant",
    aten.reflection_pad1d.default: "reflect",
    aten.reflection_pad2d.default: "reflect",
    aten.reflection_pad3d.default: "reflect",
    aten.replication_pad1d.default: "replicate",
    aten.replication_pad2d.default: "replicate",
    aten.replication_pad3d.default: "replicate",
    aten._pad_circular.default: "circular",
}
SAMPLES = {"constant": "FILL", "reflect": "REFLECT", "replicate": "CLAMP", "circular": "WRAP"}
"""PyTorch's names of the modes, and TensorRT's."""


def _amounts(op: Any) -> Any:
    return op.padding if hasattr(op, "padding") else op.pad


def _unsupported_padding(node: Node, *, kind: str | None) -> str | None:
    """Returns why one TensorRT layer cannot pad this, or ``None``."""
    op = arguments_of(node)
    tensor, amounts = value_of(op.self), _amounts(op)
    mode = kind or op.mode
    if not all(isinstance(amount, int) for amount in amounts):
        return _unclear_padding(tensor, amounts, mode)
    if mode in ("reflect", "replicate") and tensor.dtype not in (*blocks.FILLABLE, torch.bool):
        return f"TensorRT has no {mode} padding of this dtype"
    if mode == "circular" and min(amounts) < 0:
        return "circular padding that takes elements away is not one TensorRT slice"
    return None


def _unclear_padding(tensor: torch.Tensor, amounts: Any, mode: str) -> str | None:
    """Returns why one layer cannot pad by numbers that the engine computes, or ``None``."""
    values = [value_of(amount) for amount in amounts]
    if not all(isinstance(value, (int, torch.SymInt)) for value in values):
        return "how much to pad must be whole numbers"
    if mode in ("reflect", "replicate"):
        return f"how much to pad must be fixed for {mode} padding"
    if mode == "circular" and not all(map(sizes.is_never_negative, values)):
        return "circular padding that may take elements away is not one TensorRT slice"
    return None


@pack.converter(table={"kind": MODES | {aten.pad.default: None}}, reject_if=_unsupported_padding)
def pad(
    ctx: ConversionContext,
    self: NetworkTensor,
    pad: Sequence[Size] = (),
    padding: Sequence[Size] = (),
    mode: str = "",
    value: int | float | bool | None = None,
    *,
    kind: str | None,
) -> NetworkTensor:
    """Converts padding of the last dimensions, listed from the last, by a value or by elements of the tensor."""
    amounts = pad or padding
    rest = len(self.shape) - len(amounts) // 2
    before = [*[0] * rest, *amounts[::2][::-1]]
    after = [*[0] * rest, *amounts[1::2][::-1]]
    return blocks.pad(
        ctx, self, before, after, SAMPLES[kind or mode], 0 if value is None else value
    )


@pack.converter(
    table={"fixed": {aten.flip.default: None, aten.fliplr.default: (1,), aten.flipud.default: (0,)}}
)
def flip(
    ctx: ConversionContext,
    self: NetworkTensor,
    dims: Sequence[int] = (),
    *,
    fixed: tuple[int, ...] | None,
) -> NetworkTensor:
    """Converts a reversed order of elements."""
    return blocks.flip(ctx, self, dims if fixed is None else fixed)


def _unknown_shift(node: Node) -> str | None:
    shifts = arguments_of(node).shifts
    values = shifts if isinstance(shifts, Sequence) else [shifts]
    are_fixed = all(isinstance(shift, int) for shift in values)
    return None if are_fixed else "the shift must be fixed"


@pack.converter(aten.roll.default, reject_if=_unknown_shift)
def roll(
    ctx: ConversionContext,
    self: NetworkTensor,
    shifts: Sequence[int],
    dims: Sequence[int],
) -> NetworkTensor:
    """Converts elements moved along dimensions, or along the flattened tensor."""
    rank = len(self.shape)
    if not rank:
        return self
    if not dims:
        flat = shape.flatten(ctx, self)
        rolled = blocks.roll(ctx, flat, {0: shifts[0]})
        extents = sizes.lazy_shape(ctx, self)
        return shape.reshape(ctx, rolled, extents, types.output_value(ctx).shape)
    total: dict[int, int] = {}
    for dim, shift in zip(dims, shifts, strict=True):
        total[dim % rank] = total.get(dim % rank, 0) + shift
    return blocks.roll(ctx, self, total)
