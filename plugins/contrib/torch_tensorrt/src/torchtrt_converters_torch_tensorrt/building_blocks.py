"""``torch_tensorrt.dynamo.conversion.impl``: its functions as PyTorch functions, which are traced and converted.

Each function has the parameters of Torch-TensorRT's behind ``(ctx, target, source_ir, name)``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchtrt.conversion import add, add_layer
from torchtrt_converters_torch_tensorrt.dtypes import torch_dtype
from torchtrt_converters_torch_tensorrt.tracing import building_block

BLOCKS: dict[str, dict[str, Callable[..., Any]]] = {}
"""The building blocks by module below ``impl`` and name: ``BLOCKS["elementwise"]["add"]``."""

aten = torch.ops.aten


def block(path: str, *, sizes: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Returns a decorator that makes a PyTorch function the building block ``module.name``."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        module, _, name = path.rpartition(".")
        function.__name__ = f"impl.{path}"
        BLOCKS.setdefault(module, {})[name] = building_block(function, sizes=sizes)
        return function

    return register


def layer_block(path: str) -> Callable[[Callable[..., Any]], Any]:
    """Returns a decorator that makes a function ``(ctx, target, source_ir, name, ...)`` the building block itself."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        module, _, name = path.rpartition(".")
        BLOCKS.setdefault(module, {})[name] = function
        return function

    return register


# Element by element

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil"),
            *("cos", "cosh", "erf", "exp", "expm1", "floor", "isinf", "log", "log10", "log1p"),
            *("log2", "logical_not", "neg", "round", "sign", "sin", "sinh", "sqrt", "tan", "trunc"),
        )
    },
    "recip": torch.reciprocal,
}
for _name, _function in UNARY.items():

    def _apply(input_val: Any, function: Callable[[Tensor], Tensor] = _function) -> Tensor:
        return function(torch.as_tensor(input_val))

    block(f"unary.{_name}")(_apply)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floor_divide": operator.floordiv,
    "pow": operator.pow,
    "max": torch.maximum,
    "min": torch.minimum,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}


def _with_numbers(
    function: Callable[[Any, Any], Any], first: Any, second: Any, as_tensors: bool
) -> Any:
    """Returns ``function(first, second)``; a number takes the dtype of the tensor beside it where it fits."""
    if not as_tensors or (isinstance(first, Tensor) and isinstance(second, Tensor)):
        return function(first, second)
    dtype = torch.result_type(first, second)
    return function(*(torch.as_tensor(each, dtype=dtype) for each in (first, second)))


for _name, _binary in BINARY.items():
    _takes_tensors = _name in ("max", "min", "logical_and", "logical_or", "logical_xor")

    def _combine(
        lhs_val: Any,
        rhs_val: Any,
        function: Callable[[Any, Any], Any] = _binary,
        as_tensors: bool = _takes_tensors,
    ) -> Any:
        return _with_numbers(function, lhs_val, rhs_val, as_tensors)

    block(f"elementwise.{_name}")(_combine)

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "atan2": torch.atan2,
    "trunc_div": lambda first, second: torch.div(first, second, rounding_mode="trunc"),
}
for _name, _binary in _OPERATIONS.items():

    def _operate(input: Any, other: Any, function: Callable[[Any, Any], Any] = _binary) -> Any:
        return _with_numbers(function, input, other, True)

    block(f"elementwise.{_name}")(_operate)


_BY_OPERATION = {
    "SUM": operator.add,
    "SUB": operator.sub,
    "PROD": operator.mul,
    "POW": operator.pow,
    "FLOOR_DIV": operator.floordiv,
    "MAX": torch.maximum,
    "MIN": torch.minimum,
    "AND": torch.logical_and,
    "OR": torch.logical_or,
    "XOR": torch.logical_xor,
    "EQUAL": operator.eq,
    "GREATER": operator.gt,
    "LESS": operator.lt,
}


@block("elementwise.base.convert_binary_elementwise")
def _convert_binary_elementwise(op_type: Any, lhs_val: Any, rhs_val: Any) -> Any:
    if op_type.name == "DIV":  # TensorRT's division of integers truncates
        floating = torch.result_type(lhs_val, rhs_val).is_floating_point
        return torch.div(lhs_val, rhs_val, rounding_mode=None if floating else "trunc")
    return _with_numbers(_BY_OPERATION[op_type.name], lhs_val, rhs_val, True)


@layer_block("unary.base.convert_unary")
def _convert_unary(
    ctx: Any, target: Any, source_ir: Any, name: str, operation_type: Any, input_val: Any
) -> Any:
    """Adds one unary layer."""
    del target, source_ir
    with ctx.part(name):
        return add(ctx, "unary", ctx.tensor(input_val), operation_type)


@layer_block("activation.base.convert_activation")
def _convert_activation(
    ctx: Any,
    target: Any,
    source_ir: Any,
    name: str,
    operation_type: Any,
    input_val: Any,
    alpha: Any = None,
    beta: Any = None,
    dyn_range_fn: Any = None,
) -> Any:
    """Adds one activation layer."""
    del target, source_ir, dyn_range_fn
    with ctx.part(name):
        layer = add_layer(ctx, "activation", ctx.tensor(input_val), operation_type)
    if alpha is not None:
        layer.alpha = alpha
    if beta is not None:
        layer.beta = beta
    return layer.get_output(0)


# Activations


@block("activation.elu")
def _elu(input_val: Tensor, alpha: float = 1.0, beta: float | None = None) -> Tensor:
    del beta
    return F.elu(input_val, alpha)


# Making and casting


@block("arange.arange", sizes=("start", "end", "step"))
def _arange(start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None) -> Tensor:
    chosen = torch_dtype(dtype)
    if chosen is None and not any(isinstance(each, float) for each in (start, end, step)):
        chosen = torch.int32
    return torch.arange(start, end, step, dtype=chosen)


@block("full.full", sizes=("shape",))
def _full(shape: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    chosen = torch_dtype(dtype)
    if chosen is None:
        chosen = torch.tensor(fill_value).dtype
    return torch.full(shape, fill_value, dtype=chosen)


@block("cast.to_copy")
def _to_copy(input: Tensor, dtype: Any, force_layer: bool = False) -> Tensor:
    del force_layer
    return input.to(torch_dtype(dtype))


# Shapes


@layer_block("shape.shape")
def _shape(
    ctx: Any, target: Any, source_ir: Any, name: str, input_val: Any, dim: int | None = None
) -> Any:
    """Returns one size as an int32 tensor of shape ``(1,)``, or all of them as one of shape ``(rank,)``."""
    del target, source_ir
    with ctx.part(name):
        shape = ctx.shape_of(ctx.tensor(input_val))
        if dim is None:
            return shape
        place = ctx.tensor([dim % len(input_val.shape)], torch.int32)
        return add(ctx, "gather", shape, place, 0)


@layer_block("shape.numel")
def _numel(ctx: Any, target: Any, source_ir: Any, name: str, input_val: Any) -> Any:
    """Returns how many elements there are, as an int32 tensor of shape ``(1,)``."""
    shape = _shape(ctx, target, source_ir, name, input_val)
    return _PRODUCT(ctx, target, source_ir, name, shape)


_PRODUCT = building_block(lambda shape: torch.prod(shape, 0, keepdim=True, dtype=torch.int32))


@layer_block("shape.get_shape_with_dynamic_shape")
def _get_shape_with_dynamic_shape(
    ctx: Any, target: Any, source_ir: Any, name: str, shape: Sequence[int], input_val: Any
) -> Any:
    """Returns sizes as an int32 vector, in which each -1 is the size that a tensor has there."""
    del target, source_ir
    with ctx.part(name):
        sizes = ctx.tensor(list(shape), torch.int32)
        if all(size >= 0 for size in shape):
            return sizes
        is_given = ctx.tensor([size >= 0 for size in shape], torch.bool)
        return add(ctx, "select", is_given, sizes, ctx.shape_of(ctx.tensor(input_val)))


@block("shuffle.reshape", sizes=("shape",))
def _reshape(input: Tensor, shape: Any) -> Tensor:
    return torch.reshape(input, tuple(shape))


@block("permutation.roll", sizes=("shifts",))
def _roll(input: Tensor, shifts: Any, dims: Any) -> Tensor:
    return torch.roll(input, shifts, dims)


@block("squeeze.squeeze")
def _squeeze(input: Tensor, dim: Any = None) -> Tensor:
    if dim is None:
        return torch.squeeze(input)
    return torch.squeeze(input, dim if isinstance(dim, int) else tuple(dim))


@block("unsqueeze.broadcast_in_dim", sizes=("shape",))
def _broadcast_in_dim(input_t: Tensor, shape: Any, broadcast_dimensions: Sequence[int]) -> Tensor:
    for dim in range(len(shape)):
        if dim not in broadcast_dimensions:
            input_t = input_t.unsqueeze(dim)
    return input_t.expand(tuple(shape))


# Slices


@block("slice.slice_op", sizes=("start", "stop"))
def _slice_op(input: Tensor, dim: int, start: Any, stop: Any, step: int = 1) -> Tensor:
    result: Tensor = aten.slice.Tensor(input, dim, start, stop, step)
    return result


@block("slice.base.slice", sizes=("start", "shape"))
def _slice(input: Tensor, start: Any, shape: Any, stride: Sequence[int]) -> Tensor:
    for dim, (first, size, step) in enumerate(zip(start, shape, stride, strict=True)):
        input = aten.slice.Tensor(input, dim, first, first + (size - 1) * step + 1, step)
    return input


@block("slice.expand", sizes=("shape",))
def _expand(input_t: Tensor, shape: Any) -> Tensor:
    return input_t.expand(tuple(shape))


@block("slice.tile", sizes=("dims",))
def _tile(input: Tensor, dims: Any) -> Tensor:
    return torch.tile(input, tuple(dims))


@block("cat.cat")
def _cat(input: Sequence[Tensor], dim: int, cast_dtype: Any = None) -> Tensor:
    joined = torch.cat([torch.as_tensor(each) for each in input], dim)
    return joined if cast_dtype is None else joined.to(torch_dtype(cast_dtype))


# Choosing


@block("select.select", sizes=("index",))
def _select(input: Tensor, dim: int, index: Any) -> Tensor:
    return torch.select(input, dim, index)


@block("select.index_put_converter")
def _index_put(
    input_tensor: Tensor, input_indices: Sequence[Any], values: Any, accumulate: bool = False
) -> Tensor:
    values = torch.as_tensor(values, dtype=input_tensor.dtype)
    result: Tensor = aten.index_put.default(input_tensor, list(input_indices), values, accumulate)
    return result


# Reductions


def _sum_dtype(tensor: Tensor) -> torch.dtype:
    """Returns the dtype of a sum: that of integers stays, as it does in Torch-TensorRT."""
    return torch.int32 if tensor.dtype is torch.bool else tensor.dtype


def _dims(tensor: Tensor, dim: Any) -> list[int]:
    if dim is None or dim == [] or dim == ():
        return list(range(tensor.dim()))
    return [dim] if isinstance(dim, int) else list(dim)


@block("reduce.sum")
def _sum(input_val: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    dims = _dims(input_val, dim)
    return torch.sum(input_val, dims, keepdim, dtype=_sum_dtype(input_val))


@block("reduce.prod")
def _prod(input_val: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    for each in sorted((place % input_val.dim() for place in _dims(input_val, dim)), reverse=True):
        input_val = torch.prod(input_val, each, keepdim, dtype=_sum_dtype(input_val))
    return input_val


@block("reduce.mean")
def _mean(input_val: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    wide = input_val if input_val.is_floating_point() else input_val.to(torch.float32)
    return torch.mean(wide, _dims(input_val, dim), keepdim)


@block("reduce.amax")
def _amax(input_val: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return torch.amax(input_val, _dims(input_val, dim), keepdim)


@block("reduce.amin")
def _amin(input_val: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return torch.amin(input_val, _dims(input_val, dim), keepdim)


@block("reduce.max")
def _max(input_val: Tensor, dim: Any, keepdim: bool, return_indices: bool) -> Any:
    if return_indices:
        return tuple(torch.max(input_val, dim, keepdim))
    return torch.amax(input_val, _dims(input_val, dim), keepdim)


@block("reduce.min")
def _min(input_val: Tensor, dim: Any, keepdim: bool, return_indices: bool) -> Any:
    if return_indices:
        return tuple(torch.min(input_val, dim, keepdim))
    return torch.amin(input_val, _dims(input_val, dim), keepdim)


@block("topk.topk")
def _topk(
    input: Tensor,
    k: int,
    dim: int,
    largest: bool = True,
    sorted: bool | None = True,
    return_indices: bool = True,
) -> Any:
    values, indices = torch.topk(input, k, dim, largest, sorted is not False)
    return (values, indices) if return_indices else values


@block("topk.sort")
def _sort(input: Tensor, dim: int, descending: bool, return_indices: bool = True) -> Any:
    values, indices = torch.sort(input, dim=dim, descending=descending)
    return (values, indices) if return_indices else values


# Matrices, convolutions, pooling


@block("matmul.matrix_multiply")
def _matrix_multiply(
    input: Tensor, other: Tensor, input_matrix_op: Any = None, other_matrix_op: Any = None
) -> Tensor:
    first, second = (
        each.mT if getattr(operation, "name", "") == "TRANSPOSE" else each
        for each, operation in ((input, input_matrix_op), (other, other_matrix_op))
    )
    return torch.matmul(first, second)


def _each(value: Any, count: int) -> list[int]:
    return [value] * count if isinstance(value, int) else list(value)


@block("conv.convNd")
def _convolution(
    is_conv1d: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int | None,
    output_padding: Any = 0,
    scale: Any = None,
    zero_point: Any = None,
    pre_padding: Sequence[int] | None = None,
    post_padding: Sequence[int] | None = None,
) -> Tensor:
    del is_conv1d, zero_point
    return _convolve(
        *(False, input, weight, bias, stride, padding, dilation, groups, output_padding, scale),
        pre_padding,
        post_padding,
    )


@block("deconv.deconvNd")
def _deconvolution(
    is_deconv1d: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int | None,
    output_padding: Any = 0,
    scale: Any = None,
    zero_point: Any = None,
) -> Tensor:
    del is_deconv1d, zero_point
    return _convolve(
        *(True, input, weight, bias, stride, padding, dilation, groups, output_padding, scale)
    )


def _convolve(
    transposed: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int | None,
    output_padding: Any,
    scale: Any,
    pre_padding: Sequence[int] | None = None,
    post_padding: Sequence[int] | None = None,
) -> Tensor:
    if scale is not None:
        raise NotImplementedError("int8 convolution by a scale: quantize the input instead")
    dims = input.dim() - 2
    if pre_padding is not None or post_padding is not None:
        before, after = _each(pre_padding or 0, dims), _each(post_padding or 0, dims)
        pairs = zip(reversed(before), reversed(after), strict=True)
        input, padding = F.pad(input, [size for pair in pairs for size in pair]), 0
    steps, zeros, gaps = (
        _each(0 if value is None else value, dims) for value in (stride, padding, dilation)
    )
    extra = _each(output_padding, dims)
    return torch.convolution(
        input, weight, bias, steps, zeros, gaps, transposed, extra, groups or 1
    )


@block("pool.max_poolNd")
def _max_pool(
    input: Tensor,
    kernel_size: Sequence[int],
    stride: Any,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    pool = getattr(F, f"max_pool{len(kernel_size)}d")
    result: Tensor = pool(input, kernel_size, stride or None, padding, dilation, ceil_mode)
    return result


@block("pool.avg_poolNd")
def _avg_pool(
    input: Tensor,
    kernel_size: Sequence[int],
    stride: Any,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    pool = getattr(F, f"avg_pool{len(kernel_size)}d")
    extra = () if divisor_override is None else (divisor_override,)
    result: Tensor = pool(
        input, kernel_size, stride or None, padding, ceil_mode, count_include_pad, *extra
    )
    return result


@block("pool.adaptive_avg_poolNd")
def _adaptive_avg_pool(input: Tensor, output_size: Sequence[int]) -> Tensor:
    pool = getattr(F, f"adaptive_avg_pool{len(output_size)}d")
    result: Tensor = pool(input, output_size)
    return result


@block("pad.constant_padNd", sizes=("pad",))
def _constant_pad(input: Tensor, pad: Any, value: float = 0) -> Tensor:
    return F.pad(input, tuple(pad), "constant", value)


@block("upsample.upsample")
def _upsample(
    input: Tensor, size: Any, scale_factor: Any, mode: str, align_corners: bool
) -> Tensor:
    align = align_corners if "linear" in mode or mode == "bicubic" else None
    return F.interpolate(input, size, scale_factor, mode, align)


# Normalization and attention


@block("normalization.batch_norm")
def _batch_norm(
    input: Tensor,
    momentum: float,
    eps: float,
    return_mean_rstd: bool = False,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    training: bool = False,
    cudnn_enabled: bool = False,
) -> Any:
    del cudnn_enabled
    normal = F.batch_norm(
        *(input, running_mean, running_var, weight, bias, training, momentum, eps)
    )
    if not return_mean_rstd:
        return normal
    empty = torch.empty(0)
    return normal, empty, empty


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    return F.scaled_dot_product_attention(
        *(query, key, value, attn_mask, 0.0 * dropout_p, is_causal),
        scale=scale,
        enable_gqa=enable_gqa,
    )


block("attention.scaled_dot_product_attention")(_attention)


@block("attention.tril", sizes=("row", "col"))
def _tril(row: Any, col: Any, sliding_window_size: int | None = None) -> Tensor:
    distance = torch.arange(row)[:, None] - torch.arange(col)[None, :]
    inside = distance >= 0
    return inside if sliding_window_size is None else inside & (distance < sliding_window_size)


# What is one call of PyTorch

CALLS: dict[str, Callable[..., Any]] = {
    "unary.isnan": lambda input: torch.isnan(input),
    "unary.sym_not": lambda input_val: torch.logical_not(torch.as_tensor(input_val)),
    "unary.nonzero": lambda input_val: torch.nonzero(input_val),
    "unary.scalar_tensor": lambda scalar, dtype=None: torch.tensor(
        scalar, dtype=torch_dtype(dtype)
    ),
    "elementwise.rsqrt": lambda input: torch.rsqrt(input),
    "elementwise.clamp": lambda input_val, min_val=None, max_val=None: torch.clamp(
        input_val, min_val, max_val
    ),
    "activation.relu": lambda input_val: torch.relu(input_val),
    "activation.sigmoid": lambda input_val: torch.sigmoid(input_val),
    "activation.tanh": lambda input_val: torch.tanh(input_val),
    "activation.leaky_relu": lambda input_val, alpha=0.01: F.leaky_relu(input_val, alpha),
    "activation.selu": lambda input_val: F.selu(input_val),
    "activation.softsign": lambda input_val: F.softsign(input_val),
    "activation.softplus": lambda input_val, beta=1: F.softplus(input_val, beta),
    "activation.gelu": lambda input_val, approximate="none": F.gelu(
        input_val, approximate=approximate
    ),
    "activation.hardtanh": lambda input_val, min_val=-1.0, max_val=1.0: F.hardtanh(
        input_val, min_val, max_val
    ),
    "activation.hard_sigmoid": lambda input_val, alpha, beta: torch.clamp(
        alpha * input_val + beta, 0, 1
    ),
    "activation.scaled_tanh": lambda input_val, alpha, beta: alpha * torch.tanh(beta * input_val),
    "activation.thresholded_relu": lambda input_val, alpha: torch.where(
        input_val > alpha, input_val, 0
    ),
    "prelu.prelu": lambda input, weight: F.prelu(input, weight),
    "shuffle.pixel_shuffle": lambda input, upscale_factor: F.pixel_shuffle(input, upscale_factor),
    "shuffle.pixel_unshuffle": lambda input, downscale_factor: F.pixel_unshuffle(
        input, downscale_factor
    ),
    "permutation.permute": lambda input, permutation: input.permute(*permutation),
    "unsqueeze.unsqueeze": lambda input, dim: torch.unsqueeze(input, dim),
    "slice.cumsum": lambda input, dim: torch.cumsum(input, dim, dtype=_sum_dtype(input)),
    "slice.flip": lambda input, dims: torch.flip(input, tuple(dims)),
    "slice.diagonal": lambda input, offset=0, dim1=0, dim2=1: torch.diagonal(
        input, offset, dim1, dim2
    ),
    "slice.as_strided": lambda input, size, stride, storage_offset=None: torch.as_strided(
        input, size, stride, storage_offset
    ),
    "slice_scatter.slice_scatter": lambda input, src, dim, start=None, end=None, step=None: (
        torch.slice_scatter(input, src, dim, start, end, 1 if step is None else step)
    ),
    "split.split": lambda input, split_size_or_sections, dim=0: torch.split(
        input, split_size_or_sections, dim
    ),
    "condition.where": lambda input, other, condition: torch.where(condition, input, other),
    "condition.select": lambda input, other, condition: torch.where(condition, input, other),
    "select.index": lambda input, indices: aten.index.Tensor(input, list(indices)),
    "select.index_select": lambda input, dim, index: torch.index_select(input, dim, index),
    "select.gather": lambda input, dim, index: torch.gather(input, dim, index.to(torch.int64)),
    "select.scatter": lambda input, dim, index, src: torch.scatter(
        input, dim, index.to(torch.int64), src
    ),
    "embedding.embedding": lambda input, weight: F.embedding(input, weight),
    "grid.grid": lambda input, grid, interpolation_mode, padding_mode, align_corners: (
        torch.grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)
    ),
    "reduce.any": lambda input_val, dim=None, keepdim=False: torch.any(
        input_val, dim=tuple(_dims(input_val, dim)), keepdim=keepdim
    ),
    "topk.argmax": lambda input, dim, keep_dim=False: torch.argmax(input, dim, keep_dim),
    "topk.argmin": lambda input, dim, keep_dim=False: torch.argmin(input, dim, keep_dim),
    "linear.linear": lambda input, weight, bias=None: F.linear(input, weight, bias),
    "addmm.addmm": lambda input, mat1, mat2, *, beta=1, alpha=1: torch.addmm(
        input, mat1, mat2, beta=beta, alpha=alpha
    ),
    "linalg.cross": lambda input, other, dim: torch.linalg.cross(input, other, dim=dim),
    "pool.adaptive_avg_pool1d": lambda input, output_size: F.adaptive_avg_pool1d(
        input, output_size
    ),
    "pad.reflection_padNd": lambda input, padding: F.pad(input, tuple(padding), "reflect"),
    "pad.replication_padNd": lambda input, padding: F.pad(input, tuple(padding), "replicate"),
    "pad.circular_padNd": lambda input, padding: F.pad(input, tuple(padding), "circular"),
    "pad.pad": lambda input, pad, mode="constant", value=None: F.pad(
        input, tuple(pad), mode, value
    ),
    "normalization.softmax": lambda input, dim, half_to_float=False: torch.softmax(
        input, dim, dtype=torch.float32 if half_to_float else None
    ),
    "normalization.native_layer_norm": lambda input, normalized_shape, weight, bias, eps: (
        torch.native_layer_norm(input, list(normalized_shape), weight, bias, eps)
    ),
    "normalization.native_group_norm": lambda input, weight, bias, N, C, HxW, group, eps: (
        torch.native_group_norm(input, weight, bias, N, C, HxW, group, eps)
    ),
    "normalization.pdist": lambda input, p=2: F.pdist(input, p),
    "normalization.cdist_forward": lambda x1, x2, p, compute_mode=None: aten._cdist_forward(
        x1, x2, p, compute_mode
    ),
}
for _path, _call in CALLS.items():
    block(_path)(_call)


def converter_of(packet: Any) -> Callable[..., Any]:
    """Returns a converter ``(ctx, target, args, kwargs, name)`` that adds what an op computes."""
    function = building_block(lambda *args, **kwargs: packet(*args, **kwargs))

    def convert(
        ctx: Any, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
    ) -> Any:
        return function(ctx, target, None, name, *args, **kwargs)

    return convert
