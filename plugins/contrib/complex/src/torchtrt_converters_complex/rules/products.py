"""Products of matrices and vectors, and convolutions: linear in either operand."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.conversion import named_arguments
from torchtrt_converters_complex.pairs import Pair, as_pair, is_complex, rule
from torchtrt_converters_complex.rules.arithmetic import add, conjugate, multiply, product

aten = torch.ops.aten

for _target in (
    aten.mm.default,
    aten.bmm.default,
    aten.matmul.default,
    aten.mv.default,
    aten.dot.default,
    aten.outer.default,
    aten.ger.default,
    aten.inner.default,
    aten.kron.default,
):
    rule(_target)(product(_target))


@rule(aten.linalg_cross.default)
def cross(self: Any, other: Any, *, dim: int = -1) -> Any:
    """Returns the cross product along a dimension."""
    return product(lambda first, second: torch.linalg.cross(first, second, dim=dim))(self, other)


@rule(aten.vdot.default)
def vdot(self: Any, other: Any) -> Any:
    """Returns the product of two vectors, the first one conjugated."""
    return product(torch.dot)(conjugate(self), other)


@rule(aten.linalg_vecdot.default)
def vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    """Returns products along a dimension, the first operand conjugated."""
    result = multiply(conjugate(x), y)
    return as_pair(result).map(lambda part: part.sum(dim))


@rule(aten.linear.default)
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """Returns ``input @ weight.T + bias``."""
    result = product(torch.nn.functional.linear)(input, weight)
    return result if bias is None else _sum(result, bias)


def _sum(first: Any, second: Any) -> Any:
    if is_complex(first) or is_complex(second):
        return add(first, second)
    return first + second


def _scaled(value: Any, factor: Any) -> Any:
    return value if factor == 1 else multiply(value, factor)


def _sum_of_product(combine: Any) -> Any:
    def compute(self: Any, first: Any, second: Any, beta: Any = 1, alpha: Any = 1) -> Any:
        result = _scaled(product(combine)(first, second), alpha)
        return result if beta == 0 else _sum(_scaled(self, beta), result)

    return compute


rule(aten.addmm.default)(_sum_of_product(torch.mm))
rule(aten.addmv.default)(_sum_of_product(torch.mv))
rule(aten.baddbmm.default)(_sum_of_product(torch.bmm))
rule(aten.addr.default)(_sum_of_product(torch.outer))
rule(aten.addbmm.default)(_sum_of_product(lambda first, second: torch.bmm(first, second).sum(0)))


def _convolution(target: Any) -> Any:
    """Returns the rule of a convolution."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        arguments = vars(named_arguments(target, args, kwargs))
        bias = arguments.pop("bias")
        rest = {name: value for name, value in arguments.items() if name not in ("input", "weight")}
        result = product(
            lambda input, weight: target(input=input, weight=weight, bias=None, **rest)
        )(arguments["input"], arguments["weight"])
        if bias is None:
            return result
        trailing = (1,) * (len(arguments["weight"].shape) - 2)

        def spread(part: Any) -> Any:
            return part.reshape(-1, *trailing)

        return _sum(result, bias.map(spread) if isinstance(bias, Pair) else spread(bias))

    return compute


for _target in (
    aten.conv1d.default,
    aten.conv2d.default,
    aten.conv3d.default,
    aten.conv1d.padding,
    aten.conv2d.padding,
    aten.conv3d.padding,
    aten.conv_transpose1d.default,
    aten.conv_transpose2d.input,
    aten.conv_transpose3d.input,
    aten.convolution.default,
):
    rule(_target)(_convolution(_target))
