"""Operations that a build makes of several layers, and that no network definition can add."""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import torch

from torchtrt_reference.operations.contractions.matrices import MatrixMultiply
from torchtrt_reference.semantics.operation import Call, Function, Operation, frozen
from torchtrt_reference.semantics.tensor_facts import TensorFacts, broadcast

Tensor = torch.Tensor
_PRODUCT = MatrixMultiply()
MASKING = -1e30
"""A bias that takes the place of a score is at most this."""


class Linear(Operation):
    """``x @ weight^T + bias`` with a constant two-dimensional weight."""

    name = "linear"

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The last dimension changes."""
        rows, columns = call.shape(1)
        shape = call.shape(0)
        call.require(
            shape[-1] in (columns, -1),
            f"the inner dimensions of a matrix product must be equal, not {shape[-1]} and {columns}",
        )
        return (TensorFacts(call.declared(call.facts(0).dtype), (*shape[:-1], rows)),)

    def bind(self, call: Call) -> Function:
        """``torch.nn.functional.linear``, which is twice as slow on an input with gaps as the copy that closes them."""
        linear = torch.nn.functional.linear
        return lambda x, weight, bias=None: linear(x.contiguous(), weight, bias)


class ScaledDotProduct(Operation):
    """``softmax(scale * query @ key^T + bias) @ value`` with the key as it was given: transposed or not.

    The bias is optional and nowhere -inf. With ``selects``, it takes the place of scores where it is not 0.
    """

    name = "scaled_dot_product"
    defaults = frozen({"scale": 1.0, "transposed_key": True, "selects": False})

    def _scores(self, call: Call) -> tuple[TensorFacts, tuple[int, ...]]:
        """The product of query and key, and the shape of the sum of it and the bias."""
        op1 = "TRANSPOSE" if call["transposed_key"] else "NONE"
        product = Call({"op0": "NONE", "op1": op1}, call.inputs[:2], call.rules, call.strong)
        (scores,) = _PRODUCT.infer(product)
        bias = call.optional(3)
        shapes = [scores.shape] if bias is None else [scores.shape, bias.shape]
        return scores, broadcast(shapes, "elementwise inputs")

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The rules of the two products and of the sum."""
        scores, shape = self._scores(call)
        operands = [TensorFacts(scores.dtype, shape), call.facts(2)]
        return _PRODUCT.infer(
            Call({"op0": "NONE", "op1": "NONE"}, operands, call.rules, call.strong)
        )

    def bind(self, call: Call) -> Function:
        """``torch.nn.functional.scaled_dot_product_attention``, whose bias must not be larger than the scores.

        It makes 0 of rows with NaN, and its bias hides no infinity and no NaN: such rows are computed step by step.
        """
        scale, transposed = float(call["scale"]), bool(call["transposed_key"])
        selects = bool(call["selects"])
        attend = torch.nn.functional.scaled_dot_product_attention
        scores, shape = self._scores(call)
        is_larger = shape != scores.shape
        rows = (*shape[:-1], call.shape(0)[-1])

        def attention(
            query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None
        ) -> Tensor:
            rows_of_key = key if transposed else key.mT
            if not bool(torch.isfinite(query.sum() + key.sum())):
                total = query @ rows_of_key.mT * scale
                if bias is not None:
                    hidden = bias <= MASKING if selects else torch.zeros_like(bias).bool()
                    total = torch.where(hidden, bias, total + bias)
                return total.softmax(-1) @ value
            query = query.expand(rows) if is_larger else query
            return attend(query, rows_of_key, value, attn_mask=bias, scale=scale)

        return attention


OPERATIONS = (Linear(), ScaledDotProduct())
