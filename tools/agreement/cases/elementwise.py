"""Elementwise: every operation on every type, edge values, broadcasting, rank and shape rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, dynamic

INF, NAN = np.inf, np.nan
OPERATIONS = (
    *("SUM", "PROD", "MAX", "MIN", "SUB", "DIV", "POW", "FLOOR_DIV"),
    *("AND", "OR", "XOR", "EQUAL", "GREATER", "LESS"),
)
ARITHMETIC = OPERATIONS[:8]
COMPARISONS = OPERATIONS[11:]
ORDINARY = {
    "float32": np.array([[7, -7, 7.5, -0.5], [2, 2, -2, 4]], np.float32),
    "float16": np.array([[7, -7, 7.5, -0.5], [2, 2, -2, 4]], np.float16),
    "int32": np.array([[7, -7, 7, -7, 3], [2, 2, -2, -2, 3]], np.int32),
    "bool": np.array([[True, True, False, False], [True, False, True, False]]),
}
EDGES = {
    "nan": ([NAN, 1, NAN], [1, NAN, NAN]),
    "inf": ([INF, -INF, INF, 1], [INF, INF, 2, INF]),
    "zero": ([1, -1, 0, -0.0], [0, 0, 0, 1]),
}
SHAPES = {
    "equal": ((2, 3), (2, 3)),
    "one against three": ((2, 1), (2, 3)),
    "both ways": ((2, 1), (1, 3)),
    "scalars": ((), ()),
    "scalar against vector": ((), (3,)),
    "rank mismatch": ((2, 3), (3,)),
    "size mismatch": ((2, 3), (2, 2)),
    "empty": ((0, 3), (0, 3)),
    "empty against one": ((0, 3), (1, 3)),
    "empty against two": ((0, 3), (2, 3)),
    "rank 8": ((1,) * 7 + (2,), (2,) + (1,) * 7),
}


def operate(operation: str) -> Any:
    """The operation on inputs a and b."""
    return lambda n: n.layer("elementwise", n["a"], n["b"], f"ElementWiseOperation.{operation}")


def case(name: str, operation: str, a: Given, b: Given, **more: Any) -> Case:
    """A case of two inputs."""
    return Case(f"elementwise/{name}", {"a": a, "b": b}, operate(operation), **more)


def counting(shape: tuple[int, ...], start: int = 0) -> np.ndarray:
    """start, start + 1, ... in a shape."""
    return np.arange(start, start + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def with_itself(n: Network) -> Any:
    """The sum of a tensor with itself."""
    return n.layer("elementwise", n["a"], n["a"], "ElementWiseOperation.SUM")


def chained(n: Network) -> Any:
    """Greater or equal, composed from two comparisons."""
    greater = n.out("elementwise", n["a"], n["b"], "ElementWiseOperation.GREATER")
    equal = n.out("elementwise", n["a"], n["b"], "ElementWiseOperation.EQUAL")
    return n.layer("elementwise", greater, equal, "ElementWiseOperation.OR")


def undeclared(operation: str) -> Any:
    """An output whose type is left alone."""
    return lambda n: n.layer("elementwise", n["a"], n["b"], f"ElementWiseOperation.{operation}")


def int32(*values: int) -> np.ndarray:
    """An int32 vector."""
    return np.array(values, np.int32)


CASES = (
    *(
        case(f"{operation}/{dtype}", operation, a, b)
        for operation in OPERATIONS
        for dtype, (a, b) in ORDINARY.items()
    ),
    *(
        case(f"{op}/float16 output", op, *ORDINARY["float16"], types=("HALF",))
        for op in ("SUM", "DIV", "POW", "FLOOR_DIV")
    ),
    *(
        case(f"{op}/float32 {edge}", op, np.array(a, np.float32), np.array(b, np.float32))
        for op in (*ARITHMETIC, *COMPARISONS)
        for edge, (a, b) in EDGES.items()
    ),
    *(
        case(f"{op}/int32 extremes", op, int32(2**31 - 1, -(2**31), 65537), int32(2, -1, 65537))
        for op in ("SUM", "SUB", "PROD", "MAX", "MIN", "DIV", "FLOOR_DIV", "LESS", "EQUAL")
    ),
    *(
        case(f"{op}/int32 by zero", op, int32(5, -5, 0), int32(0, 0, 0))
        for op in ("DIV", "FLOOR_DIV")
    ),
    *(
        case(f"SUM/shapes {name}", "SUM", counting(a), counting(b, 1))
        for name, (a, b) in SHAPES.items()
    ),
    *(
        case(f"SUM/dynamic shapes {name}", "SUM", dynamic(counting(a)), dynamic(counting(b, 1)))
        for name, (a, b) in SHAPES.items()
        if a and b
    ),
    *(
        case(f"{op}/mixed {a} {b}", op, ORDINARY[a][0][:3], ORDINARY[b][0][:3])
        for op in ("SUM", "EQUAL")
        for a, b in (("float32", "int32"), ("float32", "float16"), ("int32", "bool"))
    ),
    case("SUM/uint8", "SUM", np.array([1], np.uint8), np.array([1], np.uint8)),
    case("SUM/int8", "SUM", np.array([1], np.int8), np.array([1], np.int8)),
    case("POW/negative base", "POW", np.array([-2, -2, -8], "f4"), np.array([3, 0.5, 1 / 3], "f4")),
    *(
        Case(
            f"elementwise/{op}/undeclared",
            {"a": int32(1, 2), "b": int32(2, 2)},
            undeclared(op),
            undeclared=True,
        )
        for op in ("SUM", "EQUAL")
    ),
    Case("elementwise/SUM/with itself", {"a": counting((2, 2))}, with_itself),
    Case(
        "elementwise/greater or equal",
        {"a": np.array([1, 2, 3, NAN], "f4"), "b": np.array([2, 2, 2, 2], "f4")},
        chained,
    ),
)
