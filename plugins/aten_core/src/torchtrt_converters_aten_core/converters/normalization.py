"""Normalization layers."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt_converters_aten_core.impl import normalization as impl
from torchtrt_converters_aten_core.impl import types
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    is_constant,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


def _unfit_layer_norm(node: Node) -> str | None:
    op = node_arguments(node)
    if all(isinstance(size, int) and size > 0 for size in op.normalized_shape):
        return None
    return "the normalized sizes must be fixed"


@converts(aten.layer_norm.default, unless=_unfit_layer_norm, keep_constants=True)
def layer_norm(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a layer normalization."""
    op = arguments(target, args, kwargs)
    count = len(op.normalized_shape)
    return impl.layer_norm(ctx, op.input, count, op.weight, op.bias, op.eps, name)


@converts(aten.rms_norm.default, unless=_unfit_layer_norm, keep_constants=True)
def rms_norm(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a normalization by the root of the mean square."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx)
    epsilon = torch.finfo(dtype).eps if op.eps is None else op.eps
    return impl.rms_norm(ctx, op.input, len(op.normalized_shape), op.weight, epsilon, name)


def _reads_statistics(node: Node) -> str | None:
    if all(user.target is operator.getitem and user.args[1] == 0 for user in node.users):
        return None
    return "TensorRT's normalization tells no mean and variance"


@converts(
    aten.native_layer_norm.default,
    unless=(_unfit_layer_norm, _reads_statistics),
    keep_constants=True,
)
def native_layer_norm(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a layer normalization whose mean and deviation nothing reads."""
    return layer_norm(ctx, target, args, kwargs, name), None, None


def _unfit_batch_norm(node: Node) -> str | None:
    op = node_arguments(node)
    if getattr(op, "training", False):
        return "batch normalization in training mode takes its statistics from the batch"
    parts = (op.weight, op.bias, op.running_mean, op.running_var)
    if not all(map(is_constant, parts)) or op.running_mean is None or op.running_var is None:
        return "the statistics and parameters of batch normalization must be weights"
    return None


@converts(
    aten.batch_norm.default,
    aten._native_batch_norm_legit_no_training.default,
    unless=_unfit_batch_norm,
    keep_constants=True,
)
def batch_norm(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts batch normalization with the statistics that training left."""
    op = arguments(target, args, kwargs)
    result = impl.batch_norm(
        ctx, op.input, op.weight, op.bias, op.running_mean, op.running_var, op.eps, name
    )
    return result if target is aten.batch_norm.default else (result, None, None)


def _unfit_group_norm(node: Node) -> str | None:
    op = node_arguments(node)
    tensor = value_of(op.input)
    if tensor.dim() < 2 or not isinstance(tensor.shape[1], int):
        return "group normalization needs a fixed number of channels"
    if not getattr(op, "use_input_stats", True):
        return "instance normalization with running statistics is batch normalization"
    if getattr(op, "running_mean", None) is not None and op.momentum != 0:
        return "instance normalization in training mode updates its running statistics"
    return None


@converts(
    aten.group_norm.default,
    aten.instance_norm.default,
    unless=_unfit_group_norm,
    keep_constants=True,
)
def group_norm(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a normalization over groups of channels, or over each channel alone."""
    op = arguments(target, args, kwargs)
    groups = getattr(op, "num_groups", op.input.shape[1])
    return impl.group_norm(ctx, op.input, groups, op.weight, op.bias, op.eps, name)


def _unfit_native_group_norm(node: Node) -> str | None:
    op = node_arguments(node)
    if not isinstance(op.C, int):
        return "group normalization needs a fixed number of channels"
    return None


@converts(
    aten.native_group_norm.default,
    unless=(_unfit_native_group_norm, _reads_statistics),
    keep_constants=True,
)
def native_group_norm(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a group normalization whose mean and deviation nothing reads."""
    op = arguments(target, args, kwargs)
    result = impl.group_norm(ctx, op.input, op.group, op.weight, op.bias, op.eps, name)
    return result, None, None
