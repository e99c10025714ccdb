"""Reduce: every operation on every type, axes, kept dimensions, edge values, nothing to reduce."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, dynamic

OPERATIONS = ("SUM", "PROD", "MAX", "MIN", "AVG")
COUNTING = np.arange(1, 13, dtype=np.float32).reshape(2, 3, 2)
AXES = {"first": 0b001, "middle": 0b010, "last": 0b100, "first and last": 0b101, "all": 0b111}
EDGES = {
    "nan": [np.nan, 3, -1],
    "nan last": [3, -1, np.nan],
    "all nan": [np.nan, np.nan],
    "inf": [np.inf, -np.inf, 1],
    "overflow": [3e38, 3e38, 3e38],
}
INTEGERS = {
    "above 2**24": [16777217, 2],
    "overflow": [2**31 - 1, 1],
    "negative overflow": [-(2**31), -1],
    "negative": [-3, 2, -2],
    "large product": [4097, 4099],
}


def case(name: str, operation: str, x: Given, axes: int, keep: bool = False, **more: Any) -> Case:
    """A case of one input."""
    return Case(
        f"reduce/{operation}/{name}",
        {"x": x},
        lambda n: n.layer("reduce", n["x"], f"ReduceOperation.{operation}", axes, keep),
        **more,
    )


def then_arithmetic(operation: str, factor: int, addend: int) -> Case:
    """A reduction of int32, whose result is multiplied and added to."""

    def build(n: Any) -> Any:
        reduced = n.out("reduce", n["x"], f"ReduceOperation.{operation}", 0b10, False)
        numbers = (n.constant([number] * 2, np.int32) for number in (factor, addend))
        product = n.out("elementwise", reduced, next(numbers), "ElementWiseOperation.PROD")
        return n.layer("elementwise", product, next(numbers), "ElementWiseOperation.SUM")

    x = np.array([[1, 256], [40000, 25535]], np.int32)
    return Case(f"reduce/{operation}/int32 times {factor} plus {addend}", {"x": x}, build)


CASES = (
    *(
        then_arithmetic(operation, *numbers)
        for operation in ("SUM", "MAX")
        for numbers in ((3, 5), (32767, 257))
    ),
    *(
        case(f"{axes} {'kept' if keep else 'dropped'}", op, COUNTING, mask, keep)
        for op in OPERATIONS
        for axes, mask in AXES.items()
        for keep in (False, True)
        if op in ("SUM", "MAX") or axes in ("middle", "all")
    ),
    *(case("float16", op, COUNTING.astype(np.float16), 0b010) for op in OPERATIONS),
    *(
        case("float16 output", op, COUNTING.astype("f2"), 0b010, types=("HALF",))
        for op in OPERATIONS
    ),
    *(case("bool", op, np.array([True, False]), 1) for op in OPERATIONS),
    *(case("int32", op, COUNTING.astype(np.int32), 0b010) for op in OPERATIONS),
    *(
        case(f"float32 {edge}", op, np.array(values, np.float32), 1)
        for op in OPERATIONS
        for edge, values in EDGES.items()
    ),
    *(
        case(f"int32 {edge}", op, np.array(values, np.int32), 1)
        for op in OPERATIONS
        for edge, values in INTEGERS.items()
    ),
    *(case("nothing float32", op, np.zeros((0, 3), np.float32), 1) for op in OPERATIONS),
    *(case("nothing int32", op, np.zeros((0, 3), np.int32), 1) for op in OPERATIONS),
    *(case("to nothing", op, np.zeros((0, 3), np.float32), 2) for op in OPERATIONS),
    *(case("dynamic", op, dynamic(COUNTING), 0b110) for op in OPERATIONS),
    *(case("dynamic int32", op, dynamic(COUNTING.astype(np.int32)), 0b110) for op in OPERATIONS),
    *(case("mask 0", op, COUNTING, 0) for op in ("SUM", "MAX")),
    *(case("mask beyond the rank", op, COUNTING, 0b1000) for op in ("SUM", "MAX")),
    *(case("mask partly beyond the rank", op, COUNTING, 0b1001) for op in ("SUM", "MAX")),
    *(case("scalar", op, np.array(1.0, np.float32), 1) for op in ("SUM", "MAX")),
    *(case("vector kept", op, np.array([1, 2, 3], np.float32), 1, True) for op in OPERATIONS),
    case("rank 8", "SUM", np.ones((1,) * 7 + (2,), np.float32), 0b10000001),
    case("int8", "SUM", np.array([1, 2], np.int8), 1),
)
