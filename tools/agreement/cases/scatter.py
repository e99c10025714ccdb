"""Scatter: modes, axes, negative, far and repeated indices, shapes, types."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, dynamic

ZEROS = np.zeros((3, 4), np.float32)


def numbers(*shape: int) -> np.ndarray:
    """1, 2, 3, ... in a shape."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def case(
    name: str,
    data: Given,
    indices: Any,
    updates: Given,
    mode: str,
    types: tuple[str, ...] = (),
    **attributes: Any,
) -> Case:
    """A case of Scatter."""
    index_values = indices if not isinstance(indices, list) else np.array(indices, np.int32)
    return Case(
        f"scatter/{mode}/{name}",
        {"data": data, "indices": index_values, "updates": updates},
        lambda n: n.layer(
            "scatter", n["data"], n["indices"], n["updates"], f"ScatterMode.{mode}", **attributes
        ),
        types=types,
    )


CASES = (
    case("axis 0", ZEROS, [[2, 0, 1, 2]], numbers(1, 4), "ELEMENT", axis=0),
    case("axis 1", ZEROS, [[2], [0], [1]], numbers(3, 1), "ELEMENT", axis=1),
    case("default axis", ZEROS, [[2, 0, 1, 2]], numbers(1, 4), "ELEMENT"),
    *(
        case(f"axis {axis}", ZEROS, [[2, 0, 1, 2]], numbers(1, 4), "ELEMENT", axis=axis)
        for axis in (-1, 2)
    ),
    case("negative", ZEROS, [[-1, -3]], numbers(1, 2), "ELEMENT", axis=0),
    case("beyond", ZEROS, [[3, 0]], numbers(1, 2), "ELEMENT", axis=0),
    case("repeated", np.zeros(3, np.float32), [0, 1, 0], numbers(3), "ELEMENT", axis=0),
    case("fewer off the axis", ZEROS, [[1]], numbers(1, 1), "ELEMENT", axis=0),
    case("more off the axis", ZEROS[:1], [[1], [0]], numbers(2, 1), "ELEMENT", axis=1),
    case("more than the axis", ZEROS[:1], [[1, 0, 3, 2, 1]], numbers(1, 5), "ELEMENT", axis=1),
    case("shape mismatch", ZEROS, [[1, 0]], numbers(1, 1), "ELEMENT", axis=0),
    case("rank mismatch", ZEROS, [1], numbers(1), "ELEMENT", axis=0),
    case("nothing", ZEROS, np.zeros((0, 4), np.int32), np.zeros((0, 4), "f4"), "ELEMENT", axis=0),
    case(
        "rank 4",
        np.zeros((1, 2, 1, 3), "f4"),
        [[[[2]], [[0]]]],
        numbers(1, 2, 1, 1),
        "ELEMENT",
        axis=3,
    ),
    case(
        "dynamic",
        dynamic(ZEROS),
        dynamic(np.array([[2, 0]], np.int32)),
        dynamic(numbers(1, 2)),
        "ELEMENT",
        axis=0,
    ),
    case(
        "scalar", np.array(0.0, "f4"), np.array(0, np.int32), np.array(1.0, "f4"), "ELEMENT", axis=0
    ),
    *(
        case(dtype, np.zeros((3,), dtype), [2, 0], np.ones((2,), dtype), mode, axis=0)
        if mode == "ELEMENT"
        else case(dtype, np.zeros((3,), dtype), [[2], [0]], np.ones((2,), dtype), mode)
        for mode in ("ELEMENT", "ND")
        for dtype in ("float16", "int32", "bool", "int8", "uint8")
    ),
    case(
        "float16 output", np.zeros(3, "f2"), [2, 0], np.ones(2, "f2"), "ELEMENT", ("HALF",), axis=0
    ),
    case("mixed types", ZEROS, [[0, 0]], np.ones((1, 2), np.int32), "ELEMENT", axis=0),
    case("float indices", ZEROS, np.zeros((1, 2), np.float32), numbers(1, 2), "ELEMENT", axis=0),
    case("rows", ZEROS, [[0], [2]], numbers(2, 4), "ND"),
    case("elements", ZEROS, [[0, 1], [2, 3]], numbers(2), "ND"),
    case("one element", ZEROS, [1, 2], np.array(5, np.float32), "ND"),
    case("one row", ZEROS, [1], numbers(4), "ND"),
    case("rank 3 indices", ZEROS, [[[0, 1], [2, 3]]], numbers(1, 2), "ND"),
    case("negative", ZEROS, [[-1, -1]], numbers(1), "ND"),
    case("beyond", ZEROS, [[3, 0]], numbers(1), "ND"),
    case("updates of a wrong shape", ZEROS, [[0], [2]], numbers(2, 3), "ND"),
    case("updates of a wrong rank", ZEROS, [[0], [2]], numbers(2), "ND"),
    case("index too long", ZEROS, [[0, 0, 0]], numbers(1), "ND"),
    case("nothing", ZEROS, np.zeros((0, 2), np.int32), np.zeros((0,), "f4"), "ND"),
    case("dynamic data", dynamic(ZEROS), [[0, 1], [2, 3]], numbers(2), "ND"),
    case(
        "dynamic count",
        ZEROS,
        dynamic(np.array([[0, 1], [2, 3]], np.int32), 0),
        dynamic(numbers(2)),
        "ND",
    ),
)
