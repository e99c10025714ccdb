"""Products of matrices and vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    Operand,
    add,
    add_layer,
    is_network_tensor,
)
from torchtrt.tensorrt import Capability, supports, trt
from torchtrt_blocks import elementwise, reduction, types
from torchtrt_blocks import sizes as size_math
from torchtrt_blocks.integer_reduction import total
from torchtrt_blocks.shape import reshape, swap, to_rank, unsqueeze


def multiply(
    ctx: ConversionContext,
    first: NetworkTensor,
    second: NetworkTensor,
    transpose_first: bool = False,
    transpose_second: bool = False,
    *,
    may_transpose: bool = True,
) -> NetworkTensor:
    """Returns the product of two network tensors of one floating-point dtype, by the rules of ``torch.matmul``.

    One-dimensional operands are vectors; the dimensions before the last two broadcast. If more than three dimensions
    meet one matrix, and all sizes but the first are known, those between the first and the last become one.
    TensorRT 8.6 would compute a small product for each of them, at half the speed. If they are 1, they vanish: of
    ``(8, 1, 2048)`` TensorRT 8.6 would compute eight products of one row, at a quarter to an eighth of the speed.

    If several of the sizes before the last vary, TensorRT 8.6 may compute such a product wrongly, and all of these
    dimensions become one.

    A product of batches whose matrices have one row is computed as its transpose where TensorRT may compute attention
    wrongly otherwise. TensorRT 8.6 does so for ``softmax(q @ k.T + mask) @ v``, by as much as the values themselves.
    That happens if ``q`` has one row that does not vary, the batch has several products, and a reduction reads the
    mask as well. On an H200, 34 of 176 such networks were wrong, and 0 of 38 whose scores are the transpose of
    ``k @ q.T``.

    Args:
        ctx: The conversion context.
        first: A network tensor of rank 1 or more.
        second: A network tensor of rank 1 or more.
        transpose_first: Exchange the last two dimensions of ``first``.
        transpose_second: Exchange the last two dimensions of ``second``.
        may_transpose: Whether a product with one row may be computed as its transpose, at some cost.
    """
    is_one_matrix = len(second.shape) > 1 and tuple(second.shape)[:-2] in ((), (1,))
    if is_one_matrix and not transpose_first and _rows_lose_sizes(first):
        if len(second.shape) > 2:
            second = _with_sizes(ctx, second, tuple(second.shape)[1:])
        matrix = second
        return _by_rows(
            ctx, first, lambda rows: multiply(ctx, rows, matrix, transpose_second=transpose_second)
        )
    if is_one_matrix and len(first.shape) > 2 and not transpose_first:
        *middle, depth = tuple(first.shape)[1:]
        width = second.shape[-2 if transpose_second else -1]
        rows = math.prod(middle)
        if min(*middle, depth, width) > 0 and (len(middle) > 1 or rows == 1):
            if rows == 1 and len(second.shape) > 2:
                second = _with_sizes(ctx, second, tuple(second.shape)[1:])
            first = _with_sizes(ctx, first, (0, depth) if rows == 1 else (0, rows, depth))
            product = multiply(ctx, first, second, transpose_second=transpose_second)
            return _with_sizes(ctx, product, (0, *middle, width))
    has_risk = may_transpose and not supports(Capability.SINGLE_ROW_PRODUCTS)
    if has_risk and min(len(first.shape), len(second.shape)) > 2:
        rows = first.shape[-1 if transpose_first else -2]
        columns = second.shape[-2 if transpose_second else -1]
        if rows == 1 and columns == 1:
            return _dot(ctx, first, second, transpose_first, transpose_second)
        if rows == 1:
            product = _multiply(ctx, second, first, not transpose_second, not transpose_first)
            return swap(ctx, product, -2, -1)
    return _multiply(ctx, first, second, transpose_first, transpose_second)


def _rows_lose_sizes(tensor: NetworkTensor) -> bool:
    """Returns whether TensorRT may mix up the rows of a tensor, because several of its other sizes vary."""
    sizes = tuple(tensor.shape)[:-1]
    return (
        sizes.count(-1) > 1
        and tensor.shape[-1] > 0
        and not supports(Capability.SEVERAL_VARYING_SIZES)
    )


def _by_rows(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    multiplied: Callable[[NetworkTensor], NetworkTensor],
) -> NetworkTensor:
    """Returns a product of a tensor whose dimensions before the last are one while it is computed.

    Args:
        ctx: The conversion context.
        tensor: The tensor.
        multiplied: Returns the product of rows ``(rows, depth)``.
    """
    shape = size_math.sizes_of(ctx, tensor)
    rows = reshape(ctx, tensor, [size_math.product(ctx, shape[:-1]), shape[-1]])
    product = multiplied(rows)
    return reshape(ctx, product, [*shape[:-1], size_math.size_of(ctx, product, -1)])


def _dot(
    ctx: ConversionContext,
    first: NetworkTensor,
    second: NetworkTensor,
    transpose_first: bool,
    transpose_second: bool,
) -> NetworkTensor:
    """Returns the products of rows and columns, one of each in every matrix, as sums of elementwise products."""
    row = swap(ctx, first, -2, -1) if transpose_first else first
    column = second if transpose_second else swap(ctx, second, -2, -1)
    products = elementwise.arithmetic(ctx, "PROD", row, column, ctx.dtype_of(first))
    return reduction.reduce(ctx, "SUM", products, [-1], True)


def _multiply(
    ctx: ConversionContext,
    first: NetworkTensor,
    second: NetworkTensor,
    transpose_first: bool,
    transpose_second: bool,
) -> NetworkTensor:
    """Returns the product as one layer, with as many batch dimensions as the operand that has more of them."""
    dtype = types.effective_dtype(ctx, first)
    if is_summed_wide(ctx, first, second):
        # TensorRT takes casts around a product for a product of float16 that sums in float32.
        wide = [types.cast(ctx, operand, torch.float32) for operand in (first, second)]
        product = _multiply(ctx, wide[0], wide[1], transpose_first, transpose_second)
        return types.cast(ctx, product, dtype)
    batch = max(len(first.shape), len(second.shape), 2) - 2
    operations = []
    tensors = []
    for tensor, transpose in ((first, transpose_first), (second, transpose_second)):
        vector = len(tensor.shape) == 1
        kind = "VECTOR" if vector else "TRANSPOSE" if transpose else "NONE"
        operations.append(getattr(trt.MatrixOperation, kind))
        tensors.append(to_rank(ctx, tensor, batch + 2 - vector))
    return add(ctx, "matrix_multiply", tensors[0], operations[0], tensors[1], operations[1])


def is_summed_wide(ctx: ConversionContext, *operands: NetworkTensor) -> bool:
    """Returns whether the settings ask for a sum in float32 and TensorRT may sum up a product in float16.

    It sums products of bfloat16 in float32. It computes a product of dequantized values in their format, unless a cast
    is between.

    Args:
        ctx: The conversion context.
        operands: The network tensors that are multiplied, of one dtype.
    """
    is_half = types.effective_dtype(ctx, operands[0]) is torch.float16
    is_plain = not any(types.is_dequantized(ctx, operand) for operand in operands)
    return ctx.compilation_settings.use_fp32_acc and is_half and is_plain


def _with_sizes(
    ctx: ConversionContext, tensor: NetworkTensor, sizes: Sequence[int]
) -> NetworkTensor:
    """Returns a tensor with these sizes. A 0 stands for the tensor's own size at that place."""
    layer = add_layer(ctx, "shuffle", tensor)
    layer.reshape_dims = tuple(sizes)
    return layer.get_output(0)


def multiply_heads(
    ctx: ConversionContext,
    first: NetworkTensor,
    second: NetworkTensor,
    transpose_second: bool = False,
    *,
    may_transpose: bool = True,
) -> NetworkTensor:
    """Returns the product of each head of attention, where TensorRT multiplies batches of heads one after the other.

    TensorRT 8.6 does that for ``(batch, heads, rows, columns)`` if the batch is dynamic and the product gets a mask
    for each sequence. It then takes up to thirty times as long. A batch of all heads is one product.

    Args:
        ctx: The conversion context.
        first: A network tensor of shape ``(batch, heads, rows, depth)``.
        second: A network tensor ``(batch, heads, depth, columns)`` of the same batch and heads.
        transpose_second: Exchange the last two dimensions of ``second``.
        may_transpose: As for ``multiply``.
    """
    shape, columns = size_math.sizes_of(ctx, first), size_math.sizes_of(ctx, second)
    heads = size_math.product(ctx, shape[:2])
    rows = reshape(ctx, first, [heads, *shape[2:]])
    matrices = reshape(ctx, second, [heads, *columns[2:]])
    product = multiply(
        ctx, rows, matrices, transpose_second=transpose_second, may_transpose=may_transpose
    )
    return reshape(ctx, product, [*shape[:3], columns[2 if transpose_second else 3]])


def product(ctx: ConversionContext, first: NetworkTensor, second: NetworkTensor) -> NetworkTensor:
    """Returns the product of two network tensors of one dtype, of integers too, by the rules of ``torch.matmul``.

    Args:
        ctx: The conversion context.
        first: A network tensor of at least one dimension.
        second: A network tensor of the same dtype, likewise.
    """
    is_floating = types.effective_dtype(ctx, first).is_floating_point
    return (multiply if is_floating else multiply_whole)(ctx, first, second)


def multiply_whole(
    ctx: ConversionContext, first: NetworkTensor, second: NetworkTensor
) -> NetworkTensor:
    """Returns the product of two network tensors of one integer dtype, by the rules of ``torch.matmul``.

    Each product is computed by itself and then summed up, which is exact.

    Args:
        ctx: The conversion context.
        first: An integer network tensor of at least one dimension.
        second: A network tensor of the same dtype, likewise.
    """
    ranks = len(first.shape), len(second.shape)
    if ranks[1] > 1:
        second = swap(ctx, second, -2, -1)
        if ranks[0] > 1:
            first = unsqueeze(ctx, first, [-2])
            second = unsqueeze(ctx, second, [-3])
    rank = max(len(first.shape), len(second.shape))
    dtype = ctx.dtype_of(first)
    products = elementwise.arithmetic(ctx, "PROD", first, second, dtype)
    return total(ctx, products, [rank - 1], False)


def linear(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    weight: NetworkTensor | torch.Tensor,
    bias: NetworkTensor | torch.Tensor | None,
) -> NetworkTensor:
    """Returns ``tensor @ weight.T + bias``.

    Args:
        ctx: The conversion context.
        tensor: A floating-point network tensor of shape ``(..., in)``.
        weight: A PyTorch or network tensor of shape ``(out, in)`` or ``(in,)``.
        bias: A PyTorch or network tensor of shape ``(out,)``, or ``None``.
    """
    dtype, rank = ctx.dtype_of(tensor), len(tensor.shape)
    if len(weight.shape) == 2 and _rows_lose_sizes(tensor):
        return _by_rows(ctx, tensor, lambda rows: linear(ctx, rows, weight, bias))
    if is_network_tensor(weight) or weight.dim() < 2 or rank < 2:
        weight = types.operand(ctx, weight, dtype, len(weight.shape))
    else:
        weight = types.operand(ctx, weight, dtype, min(rank, 3))
    product = multiply(ctx, tensor, weight, transpose_second=True)
    if bias is None:
        return product
    return elementwise.arithmetic(ctx, "SUM", product, bias, dtype)


def sum_of_product(
    ctx: ConversionContext,
    addend: Operand,
    first: NetworkTensor,
    second: NetworkTensor,
    beta: float,
    alpha: float,
) -> NetworkTensor:
    """Returns ``beta * addend + alpha * (first @ second)`` in the dtype of the factors.

    With ``beta`` 0 the addend is not read, whatever it holds. A product of float16 that only ``alpha`` makes small
    enough for this dtype does not overflow.

    Args:
        ctx: The conversion context.
        addend: A network tensor, a PyTorch tensor or a number. It broadcasts to the product.
        first: A network tensor of at least one dimension.
        second: A network tensor of the same dtype, likewise.
        beta: A number.
        alpha: A number.
    """
    dtype = types.effective_dtype(ctx, first)
    if is_summed_wide(ctx, first, second):
        first, second = (types.cast(ctx, operand, torch.float32) for operand in (first, second))
        return types.cast(ctx, sum_of_product(ctx, addend, first, second, beta, alpha), dtype)
    if dtype is torch.float16 and 0 < abs(alpha) < 1 and not types.is_dequantized(ctx, first):
        factor = 2.0 ** math.floor(math.log2(abs(alpha)))  # it loses no digit
        first = elementwise.arithmetic(ctx, "PROD", first, factor, dtype)
        alpha /= factor
    return _add_scaled(ctx, addend, product(ctx, first, second), beta, alpha, dtype)


def _add_scaled(
    ctx: ConversionContext,
    addend: Operand,
    product: NetworkTensor,
    beta: float,
    alpha: float,
    dtype: torch.dtype,
) -> NetworkTensor:
    """Returns ``beta * addend + alpha * product``, without the addend where ``beta`` is 0."""
    if alpha != 1:
        product = elementwise.arithmetic(ctx, "PROD", product, alpha, dtype)
    if beta == 0:
        return product
    if beta != 1:
        addend = elementwise.arithmetic(ctx, "PROD", addend, beta, dtype)
    return elementwise.arithmetic(ctx, "SUM", product, addend, dtype)
