"""Unary: every operation on every type, and edge values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, dynamic

OPERATIONS = (
    *("EXP", "LOG", "SQRT", "RECIP", "ABS", "NEG", "SIN", "COS", "TAN", "SINH", "COSH", "ASIN"),
    *("ACOS", "ATAN", "ASINH", "ACOSH", "ATANH", "CEIL", "FLOOR", "ERF", "NOT", "SIGN", "ROUND"),
    "ISINF",
)
ORDINARY = {
    "float32": np.array([0.25, 0.5, 1.0, 1.5, -0.75], np.float32),
    "float16": np.array([0.25, 0.5, 1.0, 1.5, -0.75], np.float16),
    "int32": np.array([-2, 0, 3, -(2**31)], np.int32),
    "bool": np.array([True, False]),
}
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0], np.float32)


def case(name: str, operation: str, x: Given, **more: Any) -> Case:
    """A case of one input."""
    return Case(
        f"unary/{name}",
        {"x": x},
        lambda n: n.layer("unary", n["x"], f"UnaryOperation.{operation}"),
        **more,
    )


def named_alike(n: Network) -> Any:
    """Two layers of one name."""
    first = n.out("unary", n["x"], "UnaryOperation.ABS", name="one name")
    return n.layer("unary", first, "UnaryOperation.SQRT", name="one name")


CASES = (
    Case("unary/two layers of one name", {"x": np.array([4.0], np.float32)}, named_alike),
    *(
        case(f"{operation}/{dtype}", operation, x)
        for operation in OPERATIONS
        for dtype, x in ORDINARY.items()
    ),
    *(case(f"{op}/float32 edges", op, EDGES) for op in OPERATIONS if op != "NOT"),
    *(case(f"{op}/scalar", op, np.array(0.5, np.float32)) for op in ("EXP", "ABS", "ERF", "ISINF")),
    *(
        case(f"{op}/float16 output", op, ORDINARY["float16"], types=("HALF",))
        for op in ("EXP", "ERF")
    ),
    *(case(f"{op}/empty", op, np.zeros((0, 2), np.float32)) for op in ("EXP", "ISINF")),
    *(
        case(f"{op}/dynamic", op, dynamic(ORDINARY[dtype]))
        for op, dtype in (
            ("EXP", "float32"),
            ("NOT", "bool"),
            ("ABS", "int32"),
            ("ISINF", "float32"),
        )
    ),
    case("NOT/scalar", "NOT", np.array(True)),
    case("ROUND/ties", "ROUND", np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4999], np.float32)),
    case("EXP/rank 8", "EXP", np.zeros((1,) * 7 + (2,), np.float32)),
    case("ABS/int8", "ABS", np.array([-1, 2], np.int8)),
    case("ABS/uint8", "ABS", np.array([1, 2], np.uint8)),
)
