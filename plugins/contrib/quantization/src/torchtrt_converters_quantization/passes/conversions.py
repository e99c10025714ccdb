"""Weights of 8 bits that a model multiplies itself: ``weight.to(dtype) * scale``, as most libraries write it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from torchtrt.conversion import arguments_of, constant_of
from torchtrt_converters_quantization.ops import DEQUANTIZE, FORMAT_OF
from torchtrt_converters_quantization.passes.graphs import (
    CASTS,
    RESHAPES,
    TRANSPOSES,
    Editor,
    computed_on,
    only_user,
    other_constant,
)
from torchtrt_converters_quantization.passes.weights import Weight, along_one_dimension

aten = torch.ops.aten

_FORMS = {torch.int8: "INT8", torch.float8_e4m3fn: "FP8"}
_PRODUCTS = (aten.mul.Tensor, aten.mul.Scalar)


def is_conversion(node: Node) -> bool:
    """Returns whether a node converts a weight of 8 bits to floating point."""
    if node.target not in CASTS:
        return False
    source = constant_of(node.args[0])
    return (
        source is not None
        and source.dtype in _FORMS
        and source.numel() > 1
        and node.meta["val"].dtype.is_floating_point
        and node.meta["val"].dtype is not torch.float64
        and node.meta["val"].dtype not in _FORMS
    )


def rewrite_conversion(editor: Editor, node: Node) -> None:
    """Replaces a conversion, and the products with constants and casts after it, by Dequantize."""
    data = constant_of(node.args[0])
    assert data is not None
    scale: Tensor = torch.ones((), device=data.device)
    last: Any = node
    dtype = node.meta["val"].dtype
    steps: list[Node] = []  # that change the shape, since it was the weight's
    while (user := only_user(last)) is not None:
        if user.target in CASTS and _is_floating(user):
            dtype = user.meta["val"].dtype
        elif user.target in _PRODUCTS:
            factor = _factor(user, last, node, steps)
            if factor is None:
                break
            scale = scale * factor
            dtype = user.meta["val"].dtype
        elif user.target in RESHAPES:
            steps.append(user)
        else:
            break
        last = user
    # Reshapes at the end stay: they may be of the model.
    while last is not node and last.target in RESHAPES and last.meta["val"].shape != data.shape:
        steps.pop()
        last = last.args[0]
    if steps and last.meta["val"].shape != data.shape:
        last, scale, dtype = node, torch.ones((), device=data.device), node.meta["val"].dtype
    is_turned = data.dim() == 2 and not data.is_contiguous() and data.t().is_contiguous()
    if is_turned:
        data, scale = data.t(), scale.t() if scale.dim() == 2 else scale
    scale = along_one_dimension(scale, data.shape)
    form = _FORMS[data.dtype]
    made = Weight(form, data.contiguous(), scale).node(editor, last, dtype)
    if is_turned:
        made = editor.call(aten.t.default, (made,), last)
    editor.replace(last, made)


def _is_floating(node: Node) -> bool:
    dtype = node.meta["val"].dtype
    return dtype.is_floating_point and dtype not in (torch.float64, *_FORMS)


def _factor(product: Node, source: Node, first: Node, steps: list[Node]) -> Tensor | None:
    """Returns what a product multiplies a weight by, in blocks of the weight's own shape, if it is that."""
    factor = other_constant(product, source)
    value = source.meta["val"]
    if factor is None or product.meta["val"].shape != value.shape:
        return None
    factor = factor.to(torch.float32)
    if not bool((factor > 0).all()):
        return None  # TensorRT has no such scales
    if factor.numel() == 1:
        return factor.reshape(())
    factor = factor.reshape((1,) * (value.dim() - factor.dim()) + tuple(factor.shape))
    if not steps:
        return factor
    return _blocks(factor, first.meta["val"].shape, steps, first)


def _blocks(factor: Tensor, shape: Any, steps: list[Node], first: Node) -> Tensor | None:
    """Returns a factor of a reshaped weight as scales of blocks of the weight.

    The numbers of a probe show where each element of the weight gets its factor from.
    """
    positions = torch.arange(first.meta["val"].numel(), dtype=torch.int64).reshape(shape)
    moved = computed_on(steps, _source(steps[0]), positions)
    numbers = torch.arange(factor.numel()).reshape(factor.shape).expand(moved.shape)
    owner = torch.empty(positions.numel(), dtype=torch.int64)
    owner[moved.reshape(-1)] = numbers.reshape(-1)
    owner = owner.reshape(shape)
    for dim in range(owner.dim()):
        block = _run(owner, dim)
        owner = owner.index_select(dim, torch.arange(0, owner.shape[dim], block))
    return factor.reshape(-1)[owner.reshape(-1)].reshape(owner.shape)


def _source(node: Node) -> Node:
    source = node.args[0]
    assert isinstance(source, Node)
    return source


def _run(owner: Tensor, dim: int) -> int:
    """Returns how many neighbors along a dimension always have the same owner."""
    size = owner.shape[dim]
    for block in range(size, 1, -1):
        if size % block == 0:
            parts = owner.unflatten(dim, (-1, block))
            first = parts.narrow(dim + 1, 0, 1)
            if bool((parts == first).all()):
                return block
    return 1


def use_linear(editor: Editor, node: Node) -> None:
    """Replaces a product with a transposed weight by ``linear``, and a factor for each column by one of its scale."""
    if node.target not in (aten.mm.default, aten.matmul.default):
        return
    x, turned = node.args
    if not isinstance(turned, Node) or turned.target not in TRANSPOSES:
        return
    weight = turned.args[0]
    if not isinstance(weight, Node) or weight.meta["val"].dim() != 2:
        return
    if not _is_dequantized(weight):
        return
    made = editor.call(aten.linear.default, (x, weight), node)
    editor.replace(node, made)
    _absorb_column_scale(editor, made, weight, turned)


def _is_dequantized(node: Node) -> bool:
    return node.target in DEQUANTIZE.values()


def _absorb_column_scale(editor: Editor, linear: Node, weight: Node, turned: Node) -> None:
    """Moves a factor behind a linear layer into the scale of its weight, where nothing else reads the two."""
    user = only_user(linear)
    if user is None or user.target is not aten.mul.Tensor:
        return
    factor = other_constant(user, linear)
    op = arguments_of(weight)
    data, scale = constant_of(op.data), constant_of(op.scale)
    is_alone = set(weight.users) <= {linear, turned} and not turned.users
    if factor is None or data is None or scale is None or scale.numel() != 1 or not is_alone:
        return
    columns = linear.meta["val"].shape[-1]
    if user.meta["val"].shape != linear.meta["val"].shape or factor.shape != (columns,):
        return
    if not bool((factor > 0).all()):
        return
    if user.meta["val"].dtype is not linear.meta["val"].dtype:
        return
    scales = scale.to(torch.float32) * factor.to(torch.float32).reshape(-1, 1)
    form = FORMAT_OF[weight.target].name
    made = Weight(form, data, scales).node(editor, weight, op.dtype)
    weight.replace_all_uses_with(made)
    editor.replace(user, linear)


__all__ = ["is_conversion", "rewrite_conversion", "use_linear"]
