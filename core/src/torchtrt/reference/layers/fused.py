"""What a build makes of several layers: operations that no network definition can add."""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import torch

from torchtrt.reference.facts import Fact
from torchtrt.reference.layers.matrices import MatrixMultiply
from torchtrt.reference.operation import Call, Function, Operation, frozen

Tensor = torch.Tensor
_PRODUCT = MatrixMultiply()


class Linear(Operation):
    """``x @ weight^T + bias`` with a constant two-dimensional weight."""

    name = "linear"

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """The last dimension changes."""
        rows, columns = call.shape(1)
        shape = call.shape(0)
        call.require(
            shape[-1] in (columns, -1),
            f"the inner dimensions of a matrix product must be equal, not {shape[-1]} and {columns}",
        )
        return (Fact(call.declared(call.fact(0).dtype), (*shape[:-1], rows)),)

    def bind(self, call: Call) -> Function:
        """``torch.nn.functional.linear``, which is twice as slow on an input with gaps as the copy that closes them."""
        linear = torch.nn.functional.linear
        return lambda x, weight, bias=None: linear(x.contiguous(), weight, bias)


class ScaledDotProduct(Operation):
    """``softmax(scale * query @ key^T) @ value`` with the key as it was given: transposed or not."""

    name = "scaled_dot_product"
    defaults = frozen({"scale": 1.0, "transposed_key": True})

    def _scores(self, call: Call) -> Call:
        op1 = "TRANSPOSE" if call["transposed_key"] else "NONE"
        return Call({"op0": "NONE", "op1": op1}, call.inputs[:2], call.rules, call.strong)

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """The rules of the two products."""
        (scores,) = _PRODUCT.infer(self._scores(call))
        weighted = Call(
            {"op0": "NONE", "op1": "NONE"}, [scores, call.fact(2)], call.rules, call.strong
        )
        return _PRODUCT.infer(weighted)

    def bind(self, call: Call) -> Function:
        """``torch.nn.functional.scaled_dot_product_attention``."""
        scale, transposed = float(call["scale"]), bool(call["transposed_key"])
        attend = torch.nn.functional.scaled_dot_product_attention

        def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend(query, key if transposed else key.mT, value, scale=scale)

        return attention


OPERATIONS = (Linear(), ScaledDotProduct())
