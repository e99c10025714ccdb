"""Formulas over network tensors, written with Python's operators."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, Operand, is_network_tensor
from torchtrt.errors import ConversionError
from torchtrt_blocks import activation, elementwise, reduction, shape, types, unary


class Formula:
    """A network tensor that ``+ - * / // % **``, comparisons and ``& | ^ ~`` apply to.

    The other operand is a formula, a network tensor, a PyTorch tensor or a number. Operands
    broadcast. Arithmetic has the dtype of the left formula; numbers and tensors are cast to it, and a
    number with a fraction is refused beside integers. ``// %`` are for integers: ``torchtrt_blocks.remainders``
    has those of floating point. ``& | ^ ~`` are for booleans.
    Each operation is one layer, or as many as PyTorch's result requires.
    Functions of each element, such as ``exp``, are one layer too, for floating-point tensors.

    Args:
        ctx: The conversion context.
        value: A network tensor, a PyTorch tensor or a number.
        dtype: The dtype to compute in; by default the one that the network tensor has.

    Attributes:
        tensor: The network tensor.
        dtype: The dtype of its elements.

    Example:
        >>> x = Formula(ctx, tensor, torch.float32)
        >>> (x**2 + 1.0).sqrt().cast(torch.float16).tensor
    """

    __hash__ = None  # type: ignore[assignment]  # == makes a formula

    def __init__(self, ctx: ConversionContext, value: Operand, dtype: torch.dtype | None = None):
        self.ctx = ctx
        if is_network_tensor(value):
            self.dtype = types.effective_dtype(ctx, value) if dtype is None else dtype
            self.tensor = value if dtype is None else types.cast(ctx, value, dtype)
        else:
            self.dtype = torch.float32 if dtype is None else dtype
            self.tensor = types.operand(ctx, value, self.dtype, types.rank_of(value))

    def _same(self, tensor: NetworkTensor) -> Formula:
        return Formula._of(self.ctx, tensor, self.dtype)

    @classmethod
    def _of(cls, ctx: ConversionContext, tensor: NetworkTensor, dtype: torch.dtype) -> Formula:
        formula = cls.__new__(cls)
        formula.ctx, formula.tensor, formula.dtype = ctx, tensor, dtype
        return formula

    def _require(self, is_fit: bool, what: str, advice: str) -> None:
        """Checks the dtype.

        Raises:
            ConversionError: It does not fit.
        """
        if not is_fit:
            dtype = str(self.dtype).removeprefix("torch.")
            raise ConversionError(f"A formula of {dtype} has no {what}. {advice}")

    def _combine(self, kind: str, other: Formula | Operand, swapped: bool = False) -> Formula:
        """Returns arithmetic with another operand, which is the first one if ``swapped``."""
        if isinstance(other, float) and not other.is_integer():
            self._require(
                self.dtype.is_floating_point,
                f"arithmetic with {other}",
                "Cast it to a floating-point dtype first.",
            )
        if isinstance(other, Formula) and len(other.tensor.shape) == len(self.tensor.shape):
            return self._same(elementwise.combine(self.ctx, kind, self.tensor, other.tensor))
        first, second = (_value(other), self.tensor) if swapped else (self.tensor, _value(other))
        return self._same(elementwise.arithmetic(self.ctx, kind, first, second, self.dtype))

    def _compare(self, kind: str, other: Formula | Operand) -> Formula:
        result = elementwise.compare(self.ctx, kind, self.tensor, _value(other))
        return Formula._of(self.ctx, result, torch.bool)

    def _logical(self, kind: str, other: Formula | Operand) -> Formula:
        self._require(
            self.dtype is torch.bool, f"logical {kind}", "Compare it with a number first."
        )
        result = elementwise.logical(self.ctx, kind, self.tensor, _value(other))
        return Formula._of(self.ctx, result, torch.bool)

    def __add__(self, other: Formula | Operand) -> Formula:
        return self._combine("SUM", other)

    def __radd__(self, other: Formula | Operand) -> Formula:
        return self._combine("SUM", other, swapped=True)

    def __sub__(self, other: Formula | Operand) -> Formula:
        return self._combine("SUB", other)

    def __rsub__(self, other: Formula | Operand) -> Formula:
        return self._combine("SUB", other, swapped=True)

    def __mul__(self, other: Formula | Operand) -> Formula:
        return self._combine("PROD", other)

    def __rmul__(self, other: Formula | Operand) -> Formula:
        return self._combine("PROD", other, swapped=True)

    def __truediv__(self, other: Formula | Operand) -> Formula:
        return self._combine("DIV", other)

    def __rtruediv__(self, other: Formula | Operand) -> Formula:
        return self._combine("DIV", other, swapped=True)

    def __floordiv__(self, other: Formula | Operand) -> Formula:
        """Returns the quotient of integers rounded down."""
        self._require(
            not self.dtype.is_floating_point, "//", "Call torchtrt_blocks.remainders.floor_divide."
        )
        quotient = elementwise.floor_divide(self.ctx, self.tensor, _value(other), self.dtype)
        return self._same(quotient)

    def __mod__(self, other: Formula | Operand) -> Formula:
        """Returns the remainder of integers with the divisor's sign."""
        self._require(
            not self.dtype.is_floating_point, "%", "Call torchtrt_blocks.remainders.remainder."
        )
        divisor = _value(other)
        rest = elementwise.remainder(self.ctx, self.tensor, divisor, self.dtype, "floor")
        return self._same(rest)

    def __pow__(self, exponent: int) -> Formula:
        """Returns a power with a positive integer, by at most two products for each of its bits."""
        if not isinstance(exponent, int) or exponent < 1:
            raise ValueError(f"a formula has powers with positive integers, not with {exponent!r}")
        if exponent == 1:
            return self
        rest = (self * self) ** (exponent // 2)
        return self * rest if exponent % 2 else rest

    def __neg__(self) -> Formula:
        return self._same(unary.negative(self.ctx, self.tensor))

    def __abs__(self) -> Formula:
        return self.apply("ABS")

    def __invert__(self) -> Formula:
        return self.apply("NOT")

    def __lt__(self, other: Formula | Operand) -> Formula:
        return self._compare("lt", other)

    def __le__(self, other: Formula | Operand) -> Formula:
        return self._compare("le", other)

    def __gt__(self, other: Formula | Operand) -> Formula:
        return self._compare("gt", other)

    def __ge__(self, other: Formula | Operand) -> Formula:
        return self._compare("ge", other)

    def __eq__(self, other: Formula | Operand) -> Formula:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: Formula | Operand) -> Formula:  # type: ignore[override]
        return self._compare("ne", other)

    def __and__(self, other: Formula | Operand) -> Formula:
        return self._logical("AND", other)

    def __or__(self, other: Formula | Operand) -> Formula:
        return self._logical("OR", other)

    def __xor__(self, other: Formula | Operand) -> Formula:
        return self._logical("XOR", other)

    def apply(self, kind: str) -> Formula:
        """Returns a function of each element.

        Args:
            kind: The name of a ``trt.UnaryOperation``, such as ``"SQRT"``.

        Raises:
            ConversionError: The function takes floating-point tensors only, and this tensor has another dtype.
        """
        self._require(
            self.dtype.is_floating_point or kind in _OF_ANY_DTYPE,
            kind,
            "Cast it to a floating-point dtype first, or reject such a node.",
        )
        return self._same(unary.apply(self.ctx, kind, self.tensor))

    def activate(self, kind: str) -> Formula:
        """Returns an activation of each element.

        Args:
            kind: The name of a ``trt.ActivationType``, such as ``"SIGMOID"``.
        """
        return self._same(activation.apply(self.ctx, kind, self.tensor))

    def cast(self, dtype: torch.dtype) -> Formula:
        """Returns the elements in another dtype, by PyTorch's rules."""
        return Formula._of(self.ctx, types.cast(self.ctx, self.tensor, dtype), dtype)

    def exp(self) -> Formula:
        """Returns the exponential."""
        return self.apply("EXP")

    def log(self) -> Formula:
        """Returns the natural logarithm."""
        return self.apply("LOG")

    def sqrt(self) -> Formula:
        """Returns the square root."""
        return self.apply("SQRT")

    def sin(self) -> Formula:
        """Returns the sine."""
        return self.apply("SIN")

    def tan(self) -> Formula:
        """Returns the tangent."""
        return self.apply("TAN")

    def floor(self) -> Formula:
        """Returns the elements rounded down."""
        return self.apply("FLOOR")

    def ceil(self) -> Formula:
        """Returns the elements rounded up."""
        return self.apply("CEIL")

    def round(self) -> Formula:
        """Returns the elements rounded to integers, halves to the even one."""
        return self.apply("ROUND")

    def sigmoid(self) -> Formula:
        """Returns ``1 / (1 + exp(-x))``."""
        return self.activate("SIGMOID")

    def tanh(self) -> Formula:
        """Returns the hyperbolic tangent."""
        return self.activate("TANH")

    def log1p(self) -> Formula:
        """Returns ``log(1 + x)``, accurate near 0."""
        return self._same(unary.log1p(self.ctx, self.tensor))

    def is_infinite(self) -> Formula:
        """Returns which elements are infinite."""
        return Formula._of(self.ctx, unary.is_infinite(self.ctx, self.tensor), torch.bool)

    def maximum(self, other: Formula | Operand) -> Formula:
        """Returns the larger of each two elements, in one layer; TensorRT passes over NaN."""
        return self._combine("MAX", other)

    def minimum(self, other: Formula | Operand) -> Formula:
        """Returns the smaller of each two elements, in one layer; TensorRT passes over NaN."""
        return self._combine("MIN", other)

    def clamp(
        self, low: Formula | Operand | None = None, high: Formula | Operand | None = None
    ) -> Formula:
        """Returns the elements limited from below and above; what is NaN stays NaN."""
        bounds = [None if limit is None else _value(limit) for limit in (low, high)]
        limited = elementwise.clamp(self.ctx, self.tensor, bounds[0], bounds[1], self.dtype)
        return self._same(limited)

    def max(self, dims: Sequence[int], keep: bool = True) -> Formula:
        """Returns the largest element over dimensions, which stay with size 1 or go; TensorRT passes over NaN."""
        return self._same(reduction.reduce(self.ctx, "MAX", self.tensor, dims, keep))

    def min(self, dims: Sequence[int], keep: bool = True) -> Formula:
        """Returns the smallest element over dimensions, which stay with size 1 or go; TensorRT passes over NaN."""
        return self._same(reduction.reduce(self.ctx, "MIN", self.tensor, dims, keep))

    def mean(self, dims: Sequence[int], keep: bool = True) -> Formula:
        """Returns the mean over dimensions, which stay with size 1 or go."""
        return self._same(reduction.reduce(self.ctx, "AVG", self.tensor, dims, keep))

    def sum(self, dims: Sequence[int], keep: bool = True) -> Formula:
        """Returns the sum over dimensions, which stay with size 1 or go."""
        return self._same(reduction.reduce(self.ctx, "SUM", self.tensor, dims, keep))

    def squeeze(self, dims: Sequence[int]) -> Formula:
        """Returns the elements without these dimensions, whose sizes are 1."""
        return self._same(shape.squeeze(self.ctx, self.tensor, dims))

    def unsqueeze(self, *dims: int) -> Formula:
        """Returns the elements with new dimensions of size 1 at these places of the result."""
        return self._same(shape.unsqueeze(self.ctx, self.tensor, dims))

    def where(
        self, chosen: Formula | Operand, other: Formula | Operand, dtype: torch.dtype | None = None
    ) -> Formula:
        """Returns ``chosen`` where this condition is true, and ``other`` elsewhere.

        Args:
            chosen: A formula, a network tensor, a PyTorch tensor or a number.
            other: Likewise.
            dtype: The dtype of the result; by default that of the first formula of the two.
        """
        if dtype is None:
            dtype = next(
                operand.dtype for operand in (chosen, other) if isinstance(operand, Formula)
            )
        values = (_value(chosen), _value(other))
        result = elementwise.select(self.ctx, self.tensor, *values, dtype)
        return Formula._of(self.ctx, result, dtype)


_OF_ANY_DTYPE = frozenset({"ABS", "NEG", "NOT", "SIGN"})
"""The functions of each element that TensorRT has for integers or booleans."""


def _value(operand: Formula | Operand) -> Operand:
    return operand.tensor if isinstance(operand, Formula) else operand
