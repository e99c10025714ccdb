"""Sizes as TensorRT's plugins compute them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sympy
import torch
from torch.utils._sympy.functions import CeilDiv, CleanDiv, FloorDiv, IntTrueDiv, Max, Min, Mod

from torchtrt.plugins.sizes import InexpressibleError, evaluate, to_size

n, m = sympy.symbols("n m", integer=True, positive=True)
PLACES = {n: (0, 1), m: (1, 0)}


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
    """Also through JSON, as in a plan, for sizes from 0 on."""
    size = json.loads(json.dumps(to_size(expression, PLACES.get)))

    for first in (0, 1, 3, 8, 17):
        for second in (1, 2, 5):
            shapes = [torch.Size([9, first]), torch.Size([second])]
            assert evaluate(size, shapes) == compute(first, second)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (n + sympy.Symbol("u0"), "u0 is no size of its inputs"),
        (IntTrueDiv(n, m), "no operation for"),
        (n / 2, "no operation for 1/2"),
        (sympy.Pow(2, n), r"no operation for 2\*\*n"),
        (sympy.sqrt(n), "no operation for sqrt"),
    ],
)
def test_what_tensorrt_cannot_compute_is_refused(expression: Any, reason: str) -> None:
    """With the part that it cannot compute."""
    with pytest.raises(InexpressibleError, match=reason):
        to_size(expression, PLACES.get)
