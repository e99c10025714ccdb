"""Formulas over network tensors, written with Python's operators."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, Operand, is_network_tensor
from torchtrt_blocks import activation, elementwise, reduction, types, unary


class Formula:
    """A network tensor that ``+ - * /``, comparisons and ``& | ^ ~`` apply to.

    The other operand is a formula, a network tensor, a PyTorch tensor or a number. Operands
    broadcast. Arithmetic has the dtype of the left formula; numbers and tensors are cast to it.
    Each operation is one layer, or as many as PyTorch's result requires.

    Args:
        ctx: The conversion context.
        value: A network tensor, a PyTorch tensor or a number.
        dtype: The dtype to compute in; by default the one that the network tensor has.

    Attributes:
        tensor: The network tensor.
        dtype: The dtype of its elements.

    Example:
        >>> x = Formula(ctx, tensor, torch.float32)
        >>> (x * x + 1.0).apply("SQRT").cast(torch.float16).tensor
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

    def _combine(self, kind: str, other: Formula | Operand, swapped: bool = False) -> Formula:
        if isinstance(other, Formula) and len(other.tensor.shape) == len(self.tensor.shape):
            pair = (other.tensor, self.tensor) if swapped else (self.tensor, other.tensor)
            return self._same(elementwise.combine(self.ctx, kind, *pair))
        first, second = self.tensor, _value(other)
        if swapped:
            result = elementwise.arithmetic(self.ctx, kind, second, first, self.dtype)
        else:
            result = elementwise.arithmetic(self.ctx, kind, first, second, self.dtype)
        return self._same(result)

    def _compare(self, kind: str, other: Formula | Operand) -> Formula:
        result = elementwise.compare(self.ctx, kind, self.tensor, _value(other))
        return Formula._of(self.ctx, result, torch.bool)

    def _logical(self, kind: str, other: Formula | Operand) -> Formula:
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
        """
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

    def floor(self) -> Formula:
        """Returns the elements rounded down."""
        return self._same(unary.floor(self.ctx, self.tensor))

    def mean(self, dims: Sequence[int]) -> Formula:
        """Returns the mean over dimensions, which stay with size 1."""
        return self._same(reduction.reduce(self.ctx, "AVG", self.tensor, dims, True))

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
            dtype = next(each.dtype for each in (chosen, other) if isinstance(each, Formula))
        values = (_value(chosen), _value(other))
        result = elementwise.select(self.ctx, self.tensor, *values, dtype)
        return Formula._of(self.ctx, result, dtype)


def _value(operand: Formula | Operand) -> Operand:
    return operand.tensor if isinstance(operand, Formula) else operand
