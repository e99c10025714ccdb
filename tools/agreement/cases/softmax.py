"""SoftMax and ragged SoftMax: axes, ranks, types, edge values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, dynamic

CUBE = np.arange(12, dtype=np.float32).reshape(2, 3, 2) / 4
INF, NAN = np.inf, np.nan
EDGES = {
    "all -inf": [-INF, -INF, -INF],
    "one -inf": [-INF, 0, 1],
    "one inf": [INF, 0, 1],
    "nan": [NAN, 0, 1],
    "large": [1000, 999, -1000],
}


def case(name: str, x: Given, axes: int | None = None, **more: Any) -> Case:
    """A case of SoftMax; the default axis if none is given."""
    attributes = {} if axes is None else {"axes": axes}
    return Case(
        f"softmax/{name}", {"x": x}, lambda n: n.layer("softmax", n["x"], **attributes), **more
    )


def ragged(name: str, x: Given, bounds: Given) -> Case:
    """A case of ragged SoftMax."""
    return Case(
        f"softmax/ragged/{name}",
        {"x": x, "bounds": bounds},
        lambda n: n.layer("ragged_softmax", n["x"], n["bounds"]),
    )


CASES = (
    *(case(f"rank 3 axis {axis}", CUBE, 1 << axis) for axis in range(4)),
    *(
        case(f"rank {rank} default axis", CUBE.reshape((1,) * (rank - 3) + (2, 3, 2)))
        for rank in range(3, 7)
    ),
    case("rank 2 default axis", CUBE[0]),
    case("rank 2 axis 0", CUBE[0], 1),
    case("rank 1", CUBE[0, :, 0], 1),
    case("rank 1 default axis", CUBE[0, :, 0]),
    case("scalar", np.array(1.0, np.float32), 1),
    case("mask 0", CUBE, 0),
    case("two axes", CUBE, 3),
    *(case(f"edge {edge}", np.array([values], np.float32), 2) for edge, values in EDGES.items()),
    case("float16", CUBE.astype(np.float16), 4),
    case("float16 output", CUBE.astype(np.float16), 4, types=("HALF",)),
    case("int32", CUBE.astype(np.int32), 4),
    case("bool", CUBE > 1, 4),
    case("no rows", np.zeros((0, 3), np.float32), 2),
    case("no columns", np.zeros((2, 0), np.float32), 2),
    case("dynamic", dynamic(CUBE), 4),
    case("dynamic first axis", dynamic(CUBE), 1),
    ragged("bounds", CUBE, np.array([[[1], [2], [2]], [[2], [1], [1]]], np.int32)),
    ragged("bound 0", CUBE, np.zeros((2, 3, 1), np.int32)),
    ragged("rank 2", CUBE[0], np.array([[1], [2], [2]], np.int32)),
    ragged("float bounds", CUBE, np.ones((2, 3, 1), np.float32)),
)
