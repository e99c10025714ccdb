"""Compares what a converter returns with what the node returns in PyTorch."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.fx import Node

from torchtrt.capability import Capability
from torchtrt.conversion.context import ConversionContext
from torchtrt.conversion.layers import add_layer
from torchtrt.conversion.network import FOREIGN
from torchtrt.conversion.values import as_torch_tensor, is_array, is_network_tensor
from torchtrt.errors import ConversionError
from torchtrt.tensorrt.dtypes import dtype_name, engine_dtype
from torchtrt.tensorrt.probes import supports


def without_arrays(result: Any) -> Any:
    """Returns results with PyTorch tensors in place of NumPy arrays: the next converters compute with those."""
    if isinstance(result, (tuple, list)):
        return tuple(map(without_arrays, result)) if any(map(is_array, result)) else result
    return as_torch_tensor(result) if is_array(result) else result


def check_result(ctx: ConversionContext, node: Node, result: Any) -> None:
    """Checks the number of results, and each one's kind, rank, fixed sizes and dtype.

    Raises:
        ConversionError: A result differs from PyTorch's; the message contains which and how.
    """
    expected = node.meta.get("val")
    if isinstance(expected, torch.Tensor):
        _check_tensor(ctx, "the result", result, expected)
    elif isinstance(expected, (tuple, list)):
        _check_several(ctx, node, result, expected)
    elif expected is not None and result is None:
        raise ConversionError("the converter returned None where a number is meant")


def lacks_known_sizes(node: Node, result: Any) -> bool:
    """Returns whether TensorRT computes a size of a checked result when it runs that is a number in the program."""
    expected = node.meta.get("val")
    if isinstance(expected, (tuple, list)):
        return any(map(_lacks_known_sizes, result, expected))
    return _lacks_known_sizes(result, expected)


def _lacks_known_sizes(result: Any, expected: Any) -> bool:
    if not is_network_tensor(result) or not isinstance(expected, torch.Tensor):
        return False
    sizes = [size if type(size) is int else None for size in expected.shape]
    is_known = all(
        size is None or mine >= 0 for mine, size in zip(tuple(result.shape), sizes, strict=True)
    )
    return not is_known and 0 not in sizes  # a reshape would take it for the size as it is


def with_known_sizes(ctx: ConversionContext, node: Node, result: Any) -> Any:
    """Returns a checked result with the sizes that are numbers in the program.

    Some layers, and the code of converters, need a number. A reshape makes it one.
    """
    expected = node.meta.get("val")
    if isinstance(expected, (tuple, list)):
        return tuple(map(functools.partial(_with_known_sizes, ctx), result, expected))
    return _with_known_sizes(ctx, result, expected)


def _with_known_sizes(ctx: ConversionContext, result: Any, expected: Any) -> Any:
    if not _lacks_known_sizes(result, expected):
        return result
    layer = add_layer(ctx, "shuffle", result)
    layer.reshape_dims = tuple(size if type(size) is int else 0 for size in expected.shape)
    return layer.get_output(0)


def _check_several(ctx: ConversionContext, node: Node, result: Any, expected: Any) -> None:
    if not isinstance(result, (tuple, list)) or len(result) != len(expected):
        returned = f"{len(result)} results" if isinstance(result, (tuple, list)) else _kind(result)
        message = f"the converter returned {returned}, and PyTorch returns {len(expected)} results"
        raise ConversionError(message)
    read = {user.args[1] for user in node.users if len(user.args) > 1}
    for index, (output, expected_output) in enumerate(zip(result, expected, strict=True)):
        if isinstance(expected_output, torch.Tensor) and (output is not None or index in read):
            _check_tensor(ctx, f"result {index}", output, expected_output)


def _check_tensor(ctx: ConversionContext, label: str, result: Any, expected: torch.Tensor) -> None:
    """Checks that a result has the shape and the dtype that PyTorch's has.

    Raises:
        ConversionError: It has not, or is no tensor.
    """
    if is_network_tensor(result):
        if not ctx.net.owns(result):
            raise ConversionError(f"{label} is a tensor of another network. {FOREIGN}")
        shape, dtype = _shape(label, result), ctx.dtype_of(result)
    elif isinstance(result, torch.Tensor):
        shape, dtype = tuple(result.shape), engine_dtype(result.dtype)
    else:
        raise ConversionError(f"{label} is {_kind(result)}, and PyTorch returns a tensor")
    fits = len(shape) == expected.dim() and all(
        mine == theirs
        for mine, theirs in zip(shape, expected.shape, strict=True)
        if mine >= 0 and type(theirs) is int
    )
    if not fits:
        message = f"{label} has the shape {shape}, and PyTorch returns {tuple(expected.shape)}"
        raise ConversionError(message)
    wanted = engine_dtype(expected.dtype)
    # A weakly typed network calls floating-point tensors float32 until it is built, and int8 ones cast from them.
    is_hint = wanted.is_floating_point or wanted is torch.int8
    is_open = dtype.is_floating_point and is_hint and not supports(Capability.STRONG_TYPING)
    if dtype is not wanted and not is_open:
        name = dtype_name(expected.dtype)
        raise ConversionError(f"{label} is {dtype_name(dtype)}, and PyTorch returns {name}")


def _shape(label: str, tensor: Any) -> tuple[int, ...]:
    try:
        return tuple(tensor.shape)
    except ValueError as error:  # TensorRT has no shape for what it finds invalid
        message = f"{label} has no valid shape: TensorRT refused a layer before it"
        raise ConversionError(message) from error


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
