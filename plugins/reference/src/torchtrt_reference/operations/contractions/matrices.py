"""Products of matrices: MatrixMultiply, Einsum and FullyConnected."""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import math
from collections.abc import Mapping
from string import ascii_letters, ascii_lowercase
from typing import Any

import torch

from torchtrt_reference.semantics.operation import FLOATS, Call, Function, Operation, frozen
from torchtrt_reference.semantics.tensor_facts import TensorFacts, broadcast

Tensor = torch.Tensor


class MatrixMultiply(Operation):
    """The product of two stacks of matrices or vectors, each optionally transposed."""

    name = "matrix_multiply"
    methods = frozen({"add_matrix_multiply": {}})
    defaults = frozen({"op0": "NONE", "op1": "NONE"})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Floating point, equally many batch dimensions, matching inner dimensions."""
        batches, inner, outer = [], [], list[tuple[int, ...]]()
        for index in (0, 1):
            call.accept(index, FLOATS, f"input {index} of a matrix product")
            shape, op = call.shape(index), call[f"op{index}"]
            minimum = 1 if op == "VECTOR" else 2
            call.require(
                len(shape) >= minimum,
                f"input {index} with operation {op} must have at least rank {minimum}",
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
        return (TensorFacts(dtype, batch + outer[0] + outer[1]),)

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

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Letters for labels, no ellipsis; equal labels have equal dimensions (or 1)."""
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
            call.require(
                len(set(term)) == len(term),
                f"the term {term!r} repeats a label: diagonal operations are not permitted in an einsum equation",
            )
            call.require(
                0 not in shape or call.rules.empty_einsum, "einsum has no support for empty tensors"
            )
            for label, dimension in zip(term, shape, strict=True):
                size = sizes.get(label, 1)
                call.require(
                    dimension in (1, -1, size) or size in (1, -1),
                    f"label {label!r} stands for both {size} and {dimension}",
                )
                if size in (1, -1) and dimension != 1:
                    sizes[label] = dimension if size == 1 or dimension != -1 else size
                sizes.setdefault(label, dimension)
        for label in result:
            call.require(label in sizes, f"the output label {label!r} appears in no input")
        call.require(len(set(result)) == len(result), "an output label may appear once only")
        return (TensorFacts(dtype, tuple(sizes[label] for label in result)),)

    @staticmethod
    def _parse(call: Call) -> tuple[list[str], str]:
        """Returns the labels of each operand and of the output, by default those that occur once."""
        equation = str(call["equation"]).replace(" ", "")
        labels, rule = ascii_lowercase, "lower-case labels only"
        if call.rules.upper_case_einsum:
            labels, rule = ascii_letters, "letters only"
        call.require(
            set(equation) <= {*labels, *",->"},
            f"the equation {equation!r} is not supported: {rule}, no ellipsis; "
            "output shape can not be computed",
        )
        left, arrow, right = equation.partition("->")
        terms = left.split(",")
        if arrow:
            return terms, right
        operand_labels = "".join(terms)
        return terms, "".join(
            sorted(label for label in set(operand_labels) if operand_labels.count(label) == 1)
        )

    def bind(self, call: Call) -> Function:
        """``torch.einsum``."""
        terms, result = self._parse(call)
        equation = ",".join(terms) + "->" + result
        return lambda *operands: torch.einsum(equation, *operands)


class FullyConnected(Operation):
    """The product of the last three dimensions, taken as one, with a constant matrix, and a bias (TensorRT 8)."""

    name = "fully_connected"
    methods = frozen({"add_fully_connected": {}})
    renames = frozen({"num_outputs": "num_output_channels"})
    weights_roles = frozen({"kernel": "KERNEL", "bias": "BIAS"})
    defaults = frozen({"num_output_channels": 1, "kernel": None, "bias": None})

    def admit(self, call: Call) -> None:
        """At least one output channel, and as many bias elements."""
        channels, bias = int(call["num_output_channels"]), call["bias"]
        call.require(channels >= 1, "num_output_channels must be positive")
        call.require(
            bias is None or bias.size in (0, channels),
            f"bias weights must have {channels} elements or none",
        )

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """``[..., C, H, W]`` with static C, H and W becomes ``[..., K, 1, 1]``."""
        dtype = call.accept(0, FLOATS, "the input of fully_connected")
        shape, channels = call.shape(), int(call["num_output_channels"])
        call.require(len(shape) >= 3, "the input of fully_connected must have at least rank 3")
        call.require(-1 not in shape[-3:], "the last three dimensions must be build-time constants")
        count, kernel = channels * math.prod(shape[-3:]), call.attributes.get("kernel")
        kernel_facts = call.optional(1)
        size = (
            kernel_facts.volume
            if kernel_facts is not None
            else 0
            if kernel is None
            else kernel.size
        )
        call.require(size == count, f"kernel weights must have {count} elements, not {size}")
        return (TensorFacts(call.declared(dtype), (*shape[:-3], channels, 1, 1)),)

    def weights(self, attributes: Mapping[str, Any]) -> Mapping[int, tuple[str, tuple[int, ...]]]:
        """Kernel and bias become inputs 1 and 2 of the built graph."""
        channels = int(attributes["num_output_channels"])
        inputs: dict[int, tuple[str, tuple[int, ...]]] = {}
        inputs[1] = ("kernel", (channels, attributes["kernel"].size // channels))
        if attributes["bias"] is not None and attributes["bias"].size:
            inputs[2] = ("bias", (channels,))
        return inputs

    def bind(self, call: Call) -> Function:
        """``torch.nn.functional.linear`` over the flattened dimensions."""
        linear = torch.nn.functional.linear
        return lambda x, kernel, bias=None: linear(x.flatten(-3), kernel, bias)[..., None, None]


OPERATIONS = (MatrixMultiply(), Einsum(), FullyConnected())
