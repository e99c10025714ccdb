"""Cases of arithmetic on sizes."""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from torchtrt_testing.cases import OpCase, op_case

Computation = Callable[[Any, Any], Any]
"""A function of two sizes, or of two conditions on sizes."""


def on_sizes(op: str, compute: Computation, label: str = "") -> OpCase:
    """Returns a case that adds a number computed from sizes, which may be a condition, to a tensor."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.full((1,), compute(x.shape[0], x.shape[1]), dtype=torch.float32)

    return op_case(op, "batch length", function=function, label=label)


def choose_by(comparison: Computation) -> Computation:
    """Returns a computation that compares a size."""
    return lambda b, s: torch.sym_ite(comparison(s, 4), b, s)


def choose_by_both(combination: Computation) -> Computation:
    """Returns a computation that combines conditions on sizes."""
    return lambda b, s: torch.sym_ite(combination(s > 4, b > 2), b, s)


CASES = [
    op_case("aten.sym_size.int", "batch length", function=lambda x: x.view(x.shape[1], x.shape[0])),
    on_sizes("operator.add", lambda b, s: b + s + 1),
    on_sizes("operator.sub", lambda b, s: s - b),
    on_sizes("operator.mul", lambda b, s: 2 * b * s),
    on_sizes("operator.floordiv", lambda b, s: s // 2),
    on_sizes("operator.mod", lambda b, s: s % 3),
    on_sizes("operator.neg", lambda b, s: -s),
    on_sizes("operator.pow", lambda b, s: s**2),
    on_sizes("operator.truediv", lambda b, s: b / s),
    on_sizes("math.floor", lambda b, s: math.floor(s * 1.5)),
    on_sizes("math.ceil", lambda b, s: math.ceil(s * 1.5)),
    on_sizes("math.trunc", lambda b, s: math.trunc(s * 1.5)),
    on_sizes("builtins.round", lambda b, s: round(s * 1.25)),
    on_sizes("torch.sym_float", lambda b, s: torch.sym_float(s) * 1.5),
    on_sizes("torch._sym_sqrt", lambda b, s: torch.sym_sqrt(s)),
    on_sizes("torch.sym_not", lambda b, s: torch.sym_ite(torch.sym_not(s > 4), b, s)),
    on_sizes("torch.sym_ite", lambda b, s: torch.sym_ite(s > 4, b, s)),
    *[
        on_sizes(f"operator.{name}", choose_by(getattr(operator, name)))
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    ],
    *[
        on_sizes(
            f"operator.{name}",
            choose_by_both(getattr(operator, name)),
        )
        for name in ("and_", "or_")
    ],
    on_sizes("torch.sym_max", lambda b, s: torch.sym_max(b, s)),
    on_sizes("torch.sym_min", lambda b, s: torch.sym_min(b, s)),
]
