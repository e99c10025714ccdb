"""Normalization layers."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node

from torchtrt.conversion import arguments_of, is_constant, value_of
from torchtrt_converters_aten_core.impl import normalization as impl
from torchtrt_converters_aten_core.impl import types
from torchtrt_converters_aten_core.registration import converts

aten = torch.ops.aten


def _unfit_layer_norm(node: Node) -> str | None:
    op = arguments_of(node)
    if all(isinstance(size, int) and size > 0 for size in op.normalized_shape):
        return None
    return "the normalized sizes must be fixed"


@converts(aten.layer_norm.default, unless=_unfit_layer_norm, keep_constants=True)
def layer_norm(ctx, input, normalized_shape, weight, bias, eps, **_):
    """Converts a layer normalization."""
    count = len(normalized_shape)
    return impl.layer_norm(ctx, input, count, weight, bias, eps)


@converts(aten.rms_norm.default, unless=_unfit_layer_norm, keep_constants=True)
def rms_norm(ctx, input, normalized_shape, weight, eps):
    """Converts a normalization by the root of the mean square."""
    dtype = types.output_dtype(ctx)
    epsilon = torch.finfo(dtype).eps if eps is None else eps
    return impl.rms_norm(ctx, input, len(normalized_shape), weight, epsilon)


def _reads_statistics(node: Node) -> str | None:
    if all(user.target is operator.getitem and user.args[1] == 0 for user in node.users):
        return None
    return "TensorRT's normalization tells no mean and variance"


@converts(
    aten.native_layer_norm.default,
    unless=(_unfit_layer_norm, _reads_statistics),
    keep_constants=True,
)
def native_layer_norm(ctx, input, normalized_shape, weight, bias, eps):
    """Converts a layer normalization whose mean and deviation nothing reads."""
    return layer_norm(ctx, input, normalized_shape, weight, bias, eps), None, None


def _unfit_batch_norm(node: Node) -> str | None:
    op = arguments_of(node)
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
def batch_norm(ctx, input, weight, bias, running_mean, running_var, eps, **_):
    """Converts batch normalization with the statistics that training left."""
    result = impl.batch_norm(ctx, input, weight, bias, running_mean, running_var, eps)
    return result if ctx.node.target is aten.batch_norm.default else (result, None, None)


def _unfit_group_norm(node: Node) -> str | None:
    op = arguments_of(node)
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
def group_norm(ctx, input, weight, bias, eps, num_groups=None, **_):
    """Converts a normalization over groups of channels, or over each channel alone."""
    groups = input.shape[1] if num_groups is None else num_groups
    return impl.group_norm(ctx, input, groups, weight, bias, eps)


def _unfit_native_group_norm(node: Node) -> str | None:
    op = arguments_of(node)
    if not isinstance(op.C, int):
        return "group normalization needs a fixed number of channels"
    return None


@converts(
    aten.native_group_norm.default,
    unless=(_unfit_native_group_norm, _reads_statistics),
    keep_constants=True,
)
def native_group_norm(ctx, input, weight, bias, group, eps, **_):
    """Converts a group normalization whose mean and deviation nothing reads."""
    result = impl.group_norm(ctx, input, group, weight, bias, eps)
    return result, None, None
