"""Arithmetic, comparison, logic and selection between tensors that broadcast."""

from __future__ import annotations

import math
from typing import TypeGuard

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, Operand, value_of
from torchtrt.tensorrt import Capability, engine_dtype, supports, trt
from torchtrt_blocks import elementwise, powers, remainders, shape, types, unary
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core.registration import converts_elementwise

aten = torch.ops.aten

BINARY = {
    aten.mul.Tensor: "PROD",
    aten.mul.Scalar: "PROD",
    aten.multiply.Tensor: "PROD",
}
"""Ops that are one layer in the dtype of their result."""
EXTREMES = {
    aten.maximum.default: "MAX",
    aten.minimum.default: "MIN",
    aten.max.other: "MAX",
    aten.min.other: "MIN",
}
ON_BOOL = {"SUM": "OR", "PROD": "AND", "MAX": "OR", "MIN": "AND"}
"""The logical operation that arithmetic is if PyTorch's result is bool."""
COMPARISONS = {
    getattr(getattr(aten, packet), overload): kind
    for kind, packets in {
        "eq": ("eq",),
        "ne": ("ne", "not_equal"),
        "lt": ("lt", "less"),
        "le": ("le", "less_equal"),
        "gt": ("gt", "greater"),
        "ge": ("ge", "greater_equal"),
    }.items()
    for packet in packets
    for overload in ("Tensor", "Scalar")
}
LOGICAL = {
    aten.logical_and.default: "AND",
    aten.logical_or.default: "OR",
    aten.logical_xor.default: "XOR",
}
SUMS = {
    aten.add.Tensor: "SUM",
    aten.add.Scalar: "SUM",
    aten.sub.Tensor: "SUB",
    aten.sub.Scalar: "SUB",
    aten.subtract.Tensor: "SUB",
}


@converts_elementwise(table={"kind": BINARY})
def binary(ctx: ConversionContext, self: Operand, other: Operand, *, kind: str) -> NetworkTensor:
    """Converts an op that is one layer."""
    return _arithmetic(ctx, kind, self, other)


@converts_elementwise(table={"kind": EXTREMES})
def extreme(ctx: ConversionContext, self: Operand, other: Operand, *, kind: str) -> NetworkTensor:
    """Converts the larger or smaller of two elements; where either is NaN, neither is the result."""
    dtype = types.output_dtype(ctx)
    if not dtype.is_floating_point:
        return _arithmetic(ctx, kind, self, other)
    # TensorRT returns the second operand where the first is NaN.
    first, second = types.operands(ctx, (self, other), dtype)
    chosen = elementwise.combine(ctx, kind, first, second)
    x = Formula(ctx, first)
    return (x == x).where(chosen, x, dtype).tensor


def _arithmetic(
    ctx: ConversionContext, kind: str, first: Operand, second: Operand
) -> NetworkTensor:
    dtype = types.output_dtype(ctx)
    if dtype is torch.bool:
        return elementwise.logical(ctx, ON_BOOL[kind], first, second)
    return elementwise.arithmetic(ctx, kind, first, second, dtype)


@converts_elementwise(table={"kind": SUMS})
def add_or_subtract(
    ctx: ConversionContext, self: Operand, other: Operand, alpha: Operand, *, kind: str
) -> NetworkTensor:
    """Converts ``self ± alpha * other``."""
    return _arithmetic(ctx, kind, self, _scaled(ctx, other, alpha))


@converts_elementwise(aten.rsub.Tensor, aten.rsub.Scalar)
def subtract_from(
    ctx: ConversionContext, self: Operand, other: Operand, alpha: Operand
) -> NetworkTensor:
    """Converts ``other - alpha * self``."""
    return _arithmetic(ctx, "SUB", other, _scaled(ctx, self, alpha))


def _scaled(ctx: ConversionContext, value: Operand, alpha: Operand) -> Operand:
    """Returns ``alpha * value`` in the dtype of the node's result; booleans are kept, or all false for 0."""
    dtype = types.output_dtype(ctx)
    if dtype is torch.bool:
        return value if alpha else False
    return value if alpha == 1 else elementwise.arithmetic(ctx, "PROD", alpha, value, dtype)


@converts_elementwise(table={"kind": COMPARISONS})
def comparison(
    ctx: ConversionContext, self: Operand, other: Operand, *, kind: str
) -> NetworkTensor:
    """Converts a comparison, in the dtype that PyTorch promotes the operands to."""
    return elementwise.compare(ctx, kind, self, other)


@converts_elementwise(table={"kind": LOGICAL})
def logical(ctx: ConversionContext, self: Operand, other: Operand, *, kind: str) -> NetworkTensor:
    """Converts a logical op: operands of any dtype are true where they are not zero."""
    return elementwise.logical(ctx, kind, self, other)


@converts_elementwise(aten.logical_not.default)
def negation(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts ``not``: zero becomes true."""
    condition = types.cast(ctx, self, torch.bool)
    return unary.apply(ctx, "NOT", condition)


def _is_power_of_two(divisor: object) -> TypeGuard[int | float]:
    return (
        isinstance(divisor, (int, float))
        and math.isfinite(divisor)
        and abs(math.frexp(divisor)[0]) == 0.5
    )


def _traced_as_integer(node: Node) -> str | None:
    """Rejects a true quotient that PyTorch 2.9 traces as an integer where the sizes of integer operands vary."""
    is_true = node.kwargs.get("rounding_mode") is None
    if is_true and types.is_integer(node.meta["val"].dtype):
        return (
            "this PyTorch traces the quotient as an integer, and computes a floating-point number"
        )
    return None


@converts_elementwise(
    aten.div.Tensor,
    aten.div.Scalar,
    aten.div.Tensor_mode,
    aten.div.Scalar_mode,
    aten.divide.Tensor,
    aten.true_divide.Tensor,
    reject_if=_traced_as_integer,
)
def divide(
    ctx: ConversionContext, self: Operand, other: Operand, rounding_mode: str | None = None
) -> NetworkTensor:
    """Converts division: true, or rounded toward zero or down."""
    dtype = types.output_dtype(ctx)
    if rounding_mode == "floor" and dtype.is_floating_point and not _is_power_of_two(other):
        return remainders.floor_divide(ctx, self, other, dtype)
    return elementwise.divide(ctx, self, other, dtype, rounding_mode)


@converts_elementwise(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(ctx: ConversionContext, self: Operand, other: Operand) -> NetworkTensor:
    """Converts division rounded down."""
    return divide(ctx, self, other, "floor")


REMAINDERS = {
    aten.remainder.Tensor: "floor",
    aten.remainder.Scalar: "floor",
    aten.remainder.Scalar_Tensor: "floor",
    aten.fmod.Tensor: "trunc",
    aten.fmod.Scalar: "trunc",
}


@converts_elementwise(table={"rounding": REMAINDERS})
def remainder(
    ctx: ConversionContext, self: Operand, other: Operand, *, rounding: str
) -> NetworkTensor:
    """Converts the remainder with the divisor's sign (``remainder``) or the dividend's (``fmod``)."""
    dtype = types.output_dtype(ctx)
    # The quotient by a power of 2 is exact, but may be infinite by one below 1.
    if dtype.is_floating_point and not (_is_power_of_two(other) and abs(other) >= 1):
        compute = remainders.remainder if rounding == "floor" else remainders.fmod
        return compute(ctx, self, other, dtype)
    return elementwise.remainder(ctx, self, other, dtype, rounding)


def _integer_power_varies(node: Node) -> str | None:
    """Returns why an integer power cannot be computed exactly, or ``None``, as for powers of floating-point numbers."""
    if node.meta["val"].dtype.is_floating_point:
        return None
    exponent = value_of(node.args[1])
    if isinstance(exponent, torch.Tensor):
        if supports(Capability.INTEGER_REDUCTION):
            return None
        return "this TensorRT computes fused integers in float32, which loses bits beyond 2^24"
    if isinstance(exponent, int) and 0 < exponent < 64:
        return None
    return "TensorRT raises integers only to a fixed integer power of at least 1"


@converts_elementwise(
    aten.pow.Tensor_Tensor,
    aten.pow.Tensor_Scalar,
    aten.pow.Scalar,
    reject_if=_integer_power_varies,
)
def power(ctx: ConversionContext, self: Operand, exponent: Operand) -> NetworkTensor:
    """Converts a power; small integer ones by multiplication, which is exact for integers."""
    base = self
    dtype = types.output_dtype(ctx)
    if types.is_integer(dtype) and not isinstance(exponent, int):
        return _power_by_bits(ctx, base, exponent, engine_dtype(dtype))
    if isinstance(exponent, (int, float)) and not isinstance(base, (int, float)):
        special = _POWERS.get(exponent)
        base = types.operand(ctx, base, dtype, types.rank_of(base))
        if exponent == 1:
            return base
        if special is not None and dtype.is_floating_point:
            for kind in special:
                base = unary.apply(ctx, kind, base)
            return base
        if exponent in (2, 3) or (types.is_integer(dtype) and exponent > 0):
            return (Formula(ctx, base) ** int(exponent)).tensor
    return powers.power(ctx, base, exponent, dtype)


def _power_by_bits(
    ctx: ConversionContext, first: Operand, second: Operand, dtype: torch.dtype
) -> NetworkTensor:
    """Returns a power of integers, by a loop over the bits of the exponent; products wrap as PyTorch's do."""
    operands = shape.broadcast(ctx, types.operands(ctx, (first, second), dtype))
    base, exponent = (Formula(ctx, operand) for operand in operands)
    one = types.operand(ctx, 1, dtype, types.rank_of(base.tensor))
    loop = ctx.net.add_loop()
    loop.add_trip_limit(ctx.tensor(8 * dtype.itemsize - 1), trt.TripLimit.COUNT)
    starts = (shape.broadcast(ctx, [one, base.tensor])[0], base.tensor, exponent.tensor)
    recurrences = [loop.add_recurrence(start) for start in starts]
    product, square, rest = (Formula(ctx, layer.get_output(0)) for layer in recurrences)
    taken = (rest % 2 == 1).where(product * square, product)
    for layer, value in zip(recurrences, (taken, square**2, rest // 2), strict=True):
        layer.set_input(1, value.tensor)
    result = loop.add_loop_output(product.tensor, trt.LoopOutput.LAST_VALUE, 0).get_output(0)
    # Of what has an inverse among integers, the inverse is 1 or -1: the number itself.
    own = (exponent % 2 == 0).where(base**2, base)
    inverse = (abs(base) == 1).where(own, 0)
    return (exponent < 0).where(inverse, Formula(ctx, result)).tensor


_POWERS = {0.5: ("SQRT",), -0.5: ("SQRT", "RECIP"), -1: ("RECIP",)}
"""The exponents for which PyTorch calls another function, and its layers here."""


@converts_elementwise(
    aten.where.self,
    aten.where.ScalarSelf,
    aten.where.ScalarOther,
    aten.where.Scalar,
)
def where(
    ctx: ConversionContext,
    condition: NetworkTensor | torch.Tensor,
    self: Operand,
    other: Operand,
) -> NetworkTensor:
    """Converts a choice between two values."""
    return elementwise.select(ctx, condition, self, other, types.output_dtype(ctx))


@converts_elementwise(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(
    ctx: ConversionContext, self: Operand, mask: NetworkTensor | torch.Tensor, value: Operand
) -> NetworkTensor:
    """Converts ``self`` with a value where ``mask`` is true."""
    return elementwise.select(ctx, mask, value, self, types.output_dtype(ctx))


@converts_elementwise(
    aten.clamp.default,
    aten.clamp.Tensor,
    aten.clamp_min.default,
    aten.clamp_min.Tensor,
    aten.clamp_max.default,
    aten.clamp_max.Tensor,
    aten.clip.default,
    aten.clip.Tensor,
)
def clamp(
    ctx: ConversionContext, self: Operand, min: Operand | None = None, max: Operand | None = None
) -> NetworkTensor:
    """Converts limits from below and above, or one of them."""
    return elementwise.clamp(ctx, self, min, max, types.output_dtype(ctx))
