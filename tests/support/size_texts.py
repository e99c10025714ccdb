"""Python expressions of two sizes, ``n`` and ``m``, drawn at random, and their values for numbers or symbolic sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import strategies as st

_UNARY = (
    *("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh"),
)
_MATH = SimpleNamespace(
    floor=math.floor,
    ceil=math.ceil,
    trunc=math.trunc,
    **{name: getattr(torch, f"_sym_{name}", getattr(math, name)) for name in _UNARY},
)
_NAMES = {
    "math": _MATH,
    "min": torch.sym_min,
    "max": torch.sym_max,
    "float": torch.sym_float,
    "choose": torch.sym_ite,
    "negated": torch.sym_not,
}
"""What stands for functions of Python where sizes are symbolic."""
_PATTERNS = {
    "whole": (
        *("{whole} + {whole}", "{whole} - {whole}", "{whole} * {whole}", "{whole} - {number}"),
        *("{whole} // {number}", "-(-{whole} // {number})", "{whole} // max(1, {whole})"),
        *(
            "{whole} % {number}",
            "{whole} ** {number}",
            "{whole} << {number}",
            "{whole} >> {number}",
        ),
        *("{whole} & {whole}", "{whole} | {number}", "abs({whole})", "{number} * {whole}"),
        *("min({whole}, {whole})", "max({whole}, {whole})", "max(1, {whole})"),
        *("math.floor({float})", "math.ceil({float})", "math.trunc({float})", "round({float})"),
        "choose({condition}, n, m)",
    ),
    "float": (
        *(
            "float({whole})",
            "{whole} * {fraction}",
            "{whole} / {number}",
            "{whole} / max(1, {whole})",
        ),
        *(
            "1 / math.sqrt({size})",
            "{float} + {float}",
            "{float} * {float}",
            "max({float}, {float})",
        ),
        *("{float} - {fraction}", "{float} ** 0.5", "{float} ** 2.0", "-{float}", "{size} ** -0.5"),
        *(f"math.{name}({{float}})" for name in _UNARY),
    ),
    "condition": (
        "{whole} < {whole}",
        "{whole} <= {number}",
        "{whole} == {whole}",
        "{whole} != {whole}",
        "{condition} & {condition}",
        "{condition} | {condition}",
        "negated({condition})",
        "{float} < {float}",
        "{condition} ^ {condition}",
        "{condition} == {condition}",
    ),
}
_LEAVES = {
    "size": ("n", "m"),
    "number": ("1", "2", "3", "4"),
    "fraction": ("0.5", "1.5", "0.1", "0.7071067811865475"),
}


@st.composite
def texts(draw: Callable[[Any], Any], kind: str, depth: int = 3) -> str:
    """Draws the text of a ``"whole"`` number, a ``"float"`` or a ``"condition"``."""
    if kind == "whole" and (not depth or draw(st.integers(0, 3)) == 0):
        kind = "size"
    if kind in _LEAVES:
        return draw(st.sampled_from(_LEAVES[kind]))
    patterns = _PATTERNS[kind][: None if depth else 2]
    parts = draw(st.sampled_from(patterns)).replace("{", "\0{").replace("}", "}\0").split("\0")
    drawn = [
        draw(texts(part[1:-1], max(depth - 1, 0))) if part.startswith("{") else part
        for part in parts
    ]
    return f"({''.join(drawn)})"


def value_of(text: str, n: Any, m: Any) -> Any:
    """Returns the value of a text, for numbers or for symbolic sizes."""
    return eval(text, {**_NAMES, "n": n, "m": m})
