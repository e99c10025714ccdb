"""Products of matrices: MatrixMultiply and Einsum."""

from __future__ import annotations

import torch

from torchtrt.reference.facts import Fact, broadcast
from torchtrt.reference.operation import FLOATS, Call, Function, Operation, frozen

Tensor = torch.Tensor


class MatrixMultiply(Operation):
    """The product of two stacks of matrices or vectors, each optionally transposed."""

    name = "matrix_multiply"
    methods = frozen({"add_matrix_multiply": {}})
    defaults = frozen({"op0": "NONE", "op1": "NONE"})

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """Floating point, equally many batch dimensions, matching inner dimensions."""
        batches, inner, outer = [], [], list[tuple[int, ...]]()
        for index in (0, 1):
            call.accept(index, FLOATS, f"input {index} of a matrix product")
            shape, op = call.shape(index), call[f"op{index}"]
            least = 1 if op == "VECTOR" else 2
            call.require(
                len(shape) >= least,
                f"input {index} with operation {op} must have at least rank {least}",
            )
            if op == "VECTOR":
                batches.append(shape[:-1])
                inner.append(shape[-1])
                outer.append(())
                continue
            rows, columns = (shape[-1], shape[-2]) if op == "TRANSPOSE" else (shape[-2], shape[-1])
            batches.append(shape[:-2])
            inner.append(columns if index == 0 else rows)
            outer.append((rows if index == 0 else columns,))
        dtype = call.same_type(0, 1, what="the operands of a matrix product")
        batch = broadcast(batches, "the batch dimensions of a matrix product")
        call.require(
            inner[0] == inner[1] or -1 in inner,
            f"the inner dimensions of a matrix product must be equal, not {inner[0]} and {inner[1]} "
            f"(shapes {call.shape(0)} {call['op0']} and {call.shape(1)} {call['op1']})",
        )
        return (Fact(dtype, batch + outer[0] + outer[1]),)

    def bind(self, call: Call) -> Function:
        """``torch.matmul`` over views."""
        op0, op1 = call["op0"], call["op1"]
        if op0 == op1 == "NONE":
            return torch.matmul
        if (op0, op1) == ("NONE", "TRANSPOSE"):
            return lambda a, b: torch.matmul(a, b.mT)

        def multiply(a: Tensor, b: Tensor) -> Tensor:
            a = a.unsqueeze(-2) if op0 == "VECTOR" else a.mT if op0 == "TRANSPOSE" else a
            b = b.unsqueeze(-1) if op1 == "VECTOR" else b.mT if op1 == "TRANSPOSE" else b
            product = torch.matmul(a, b)
            product = product.squeeze(-1) if op1 == "VECTOR" else product
            if op0 != "VECTOR":
                return product
            return product.squeeze(-1 if op1 == "VECTOR" else -2)

        return multiply


class Einsum(Operation):
    """A sum of products in index notation."""

    name = "einsum"
    methods = frozen({"add_einsum": {}})
    defaults = frozen({"equation": ""})

    def admit(self, call: Call) -> None:
        """One or two operands."""
        call.require(
            1 <= len(call.inputs) <= 2, f"einsum takes one or two inputs, not {len(call.inputs)}"
        )

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """Lower-case labels, no ellipsis; equal labels have equal dimensions (or 1)."""
        self.admit(call)
        for index in range(len(call.inputs)):
            call.accept(index, FLOATS, f"input {index} of einsum")
        dtype = call.same_type(*range(len(call.inputs)))
        terms, result = self._parse(call)
        call.require(
            len(terms) == len(call.inputs), "the equation must have one term for each input"
        )
        sizes: dict[str, int] = {}
        for index, term in enumerate(terms):
            shape = call.shape(index)
            call.require(
                len(term) == len(shape), f"the term {term!r} does not fit rank {len(shape)}"
            )
            for label, dimension in zip(term, shape, strict=True):
                known = sizes.get(label, 1)
                call.require(
                    dimension in (1, -1, known) or known in (1, -1),
                    f"label {label!r} stands for both {known} and {dimension}",
                )
                if known in (1, -1) and dimension != 1 and not (known > 1):
                    sizes[label] = dimension if known == 1 or dimension != -1 else known
                sizes.setdefault(label, dimension)
        for label in result:
            call.require(label in sizes, f"the output label {label!r} appears in no input")
        call.require(len(set(result)) == len(result), "an output label may appear once only")
        return (Fact(dtype, tuple(sizes[label] for label in result)),)

    @staticmethod
    def _parse(call: Call) -> tuple[list[str], str]:
        equation = str(call["equation"]).replace(" ", "")
        call.require(
            "." not in equation and all(c.islower() or c in ",->" for c in equation),
            f"the equation {equation!r} is not supported: lower-case labels only, no ellipsis; "
            "output shape can not be computed",
        )
        left, arrow, right = equation.partition("->")
        terms = left.split(",")
        if arrow:
            return terms, right
        labels = "".join(terms)
        return terms, "".join(sorted(label for label in set(labels) if labels.count(label) == 1))

    def bind(self, call: Call) -> Function:
        """``torch.einsum``."""
        terms, result = self._parse(call)
        equation = ",".join(terms) + "->" + result
        return lambda *operands: torch.einsum(equation, *operands)


OPERATIONS = (MatrixMultiply(), Einsum())
