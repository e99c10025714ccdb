"""Sizes as TensorRT's plugins compute them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sympy
from torch.utils._sympy.functions import CeilDiv, CleanDiv, FloorDiv, IntTrueDiv, Max, Min, Mod

from torchtrt.expressions.data import InexpressibleError, evaluate
from torchtrt_kernels.dimensions import build, to_size

n, m = sympy.symbols("n m", integer=True, positive=True)
PLACES = {n: (0, 1), m: (1, 0)}


class Numbers:
    """Computes as TensorRT does, for which a size is never negative."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        self.shapes = shapes

    def constant(self, number: int) -> int:
        return number

    def of_input(self, number: int, dimension: int) -> int:
        return self.shapes[number][dimension]

    def operation(self, name: str, left: int, right: int) -> int:
        compute: Any = {
            "SUM": lambda: left + right,
            "PROD": lambda: left * right,
            "SUB": lambda: left - right,
            "MAX": lambda: max(left, right),
            "MIN": lambda: min(left, right),
            "FLOOR_DIV": lambda: left // right,
            "CEIL_DIV": lambda: -(-left // right),
        }
        return int(compute[name]())


@pytest.mark.parametrize(
    ("expression", "compute"),
    [
        (5, lambda n, m: 5),
        (sympy.Integer(7), lambda n, m: 7),
        (n, lambda n, m: n),
        (2 * n - 3 * m + 1, lambda n, m: 2 * n - 3 * m + 1),
        (-n + m, lambda n, m: m - n),
        (-n, lambda n, m: -n),
        (n * m, lambda n, m: n * m),
        (n**3, lambda n, m: n**3),
        (FloorDiv(n - 3, 2) + 1, lambda n, m: (n - 3) // 2 + 1),
        (CleanDiv(n * m, m), lambda n, m: n),
        (CeilDiv(n, 4), lambda n, m: -(-n // 4)),
        (Mod(n, 4), lambda n, m: n % 4),
        (Max(n, m, 3), lambda n, m: max(n, m, 3)),
        (Min(n, 2 * m), lambda n, m: min(n, 2 * m)),
    ],
)
def test_an_expression_keeps_its_value(expression: Any, compute: Any) -> None:
    """Also through JSON, as in a plan, for sizes from 0 on; for TensorRT, and as an argument of the kernel."""
    size = json.loads(json.dumps(to_size(expression, PLACES.get)))

    for first in (0, 1, 3, 8, 17):
        for second in (1, 2, 5):
            shapes = (9, first), (second,)
            assert build(size, Numbers(*shapes)) == compute(first, second)
            assert evaluate(size, lambda at, of=shapes: of[at[0]][at[1]]) == compute(first, second)


def test_what_is_subtracted_is_computed_first() -> None:
    """No part of a sum is negative: TensorRT's sizes are not."""

    class Positive(Numbers):
        def constant(self, number: int) -> int:
            assert number >= 0
            return number

    assert build(to_size(n - 2 * m - 3, PLACES.get), Positive((9, 20), (4,))) == 9


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (n + sympy.Symbol("u0"), "u0 is no size of its inputs"),
        (IntTrueDiv(n, m), "no operation for IntTrueDiv, as in IntTrueDiv"),
        (n / 2, "no operation for rational, as in n/2"),
        (sympy.Pow(2, n), r"no operation for Pow, as in 2\*\*n"),
        (sympy.sqrt(n), "no operation for Pow, as in sqrt"),
        (n + sympy.zeta(n), r"zeta\(n\) has zeta, which is no function of sizes"),
    ],
)
def test_what_tensorrt_cannot_compute_is_refused(expression: Any, reason: str) -> None:
    """With the part that it cannot compute."""
    with pytest.raises(InexpressibleError, match=reason):
        to_size(expression, PLACES.get)
