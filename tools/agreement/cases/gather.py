"""Gather: modes, axes, negative and far indices, elementwise dimensions, types."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, dynamic

GRID = np.arange(12, dtype=np.float32).reshape(3, 4)
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
INDICES = {
    "vector": [0, 2],
    "scalar": 1,
    "matrix": [[0, 1], [2, 0]],
    "negative": [-1, -3],
    "beyond": [3, 100],
    "beyond negative": [-4, -100],
    "nothing": [],
}


def case(
    name: str,
    data: Given,
    indices: Any,
    mode: str = "DEFAULT",
    as_constant: bool = False,
    types: tuple[str, ...] = (),
    **attributes: Any,
) -> Case:
    """A case of ``add_gather_v2``."""
    index_values = indices if not isinstance(indices, (list, int)) else np.array(indices, np.int32)

    def build(n: Network) -> Any:
        index = n.constant(index_values, np.int32) if as_constant else n["indices"]
        return n.layer("gather_v2", n["data"], index, f"GatherMode.{mode}", **attributes)

    inputs = {"data": data} if as_constant else {"data": data, "indices": index_values}
    return Case(f"gather/{mode}/{name}", inputs, build, types=types)


def original(name: str, axis: int) -> Case:
    """A case of ``add_gather``."""
    return Case(
        f"gather/without mode/{name}",
        {"data": CUBE, "indices": np.array([1, 0], np.int32)},
        lambda n: n.layer("gather", n["data"], n["indices"], axis),
    )


CASES = (
    *(
        case(f"{name} axis {axis}", GRID, index, axis=axis)
        for name, index in INDICES.items()
        for axis in (0, 1)
    ),
    *(
        case(f"constant {name}", GRID, index, as_constant=True, axis=0)
        for name, index in INDICES.items()
    ),
    *(
        case(f"dynamic {name}", dynamic(GRID), index, axis=0)
        for name, index in INDICES.items()
        if name != "nothing"
    ),
    *(
        case(f"dynamic indices axis {axis}", GRID, dynamic(np.array([1, 0], np.int32)), axis=axis)
        for axis in (0, 1)
    ),
    *(case(f"axis {axis} of rank 2", GRID, [0], axis=axis) for axis in (-1, 2)),
    *(
        case(f"data {dtype}", (GRID % 3).astype(dtype), [2, 0], axis=1)
        for dtype in ("float16", "int32", "bool", "int8", "uint8")
    ),
    case("float16 output", GRID.astype("f2"), [2, 0], types=("HALF",), axis=1),
    case("of a scalar", np.array(1.0, np.float32), [0], axis=0),
    case("of nothing", np.zeros((0, 3), "f4"), [0], axis=0),
    case("columns of nothing", np.zeros((0, 3), "f4"), [1, 2], axis=1),
    case("rank above 8", np.ones((1,) * 8, "f4"), [[0]], axis=0),
    case("float indices", GRID, np.array([1.0], np.float32), axis=0),
    case(
        "elementwise dimension",
        CUBE,
        np.array([[2, 0], [1, 1]], np.int32),
        axis=1,
        num_elementwise_dims=1,
    ),
    case(
        "elementwise dimension broadcast",
        CUBE,
        np.array([[2, 0]], np.int32),
        axis=1,
        num_elementwise_dims=1,
    ),
    case(
        "elementwise dimension axis 2",
        CUBE,
        np.array([[3, 0], [1, 1]], np.int32),
        axis=2,
        num_elementwise_dims=1,
    ),
    case(
        "elementwise dimension mismatch",
        CUBE,
        np.zeros((3, 1), np.int32),
        axis=1,
        num_elementwise_dims=1,
    ),
    case(
        "two elementwise dimensions",
        CUBE,
        np.zeros((2, 3, 1), np.int32),
        axis=2,
        num_elementwise_dims=2,
    ),
    case(
        "elementwise dimension at the axis",
        CUBE,
        np.zeros((2, 1), np.int32),
        axis=0,
        num_elementwise_dims=1,
    ),
    *(
        case(f"axis {axis}", GRID[:2], [[0, 1, 1, 0], [1, 1, 0, 0]], "ELEMENT", axis=axis)
        for axis in (0, 1)
    ),
    case("smaller off the axis", GRID, [[1, 1]], "ELEMENT", axis=0),
    case("larger on the axis", GRID[:1], [[1, 1, 0, 3, 2, 2]], "ELEMENT", axis=1),
    case("larger off the axis", GRID[:1], [[0], [0]], "ELEMENT", axis=1),
    case("negative", GRID, [[-1, -2]], "ELEMENT", axis=0),
    case("beyond", GRID, [[3, 5]], "ELEMENT", axis=0),
    case("rank mismatch", GRID, [0, 1], "ELEMENT", axis=0),
    case("dynamic", dynamic(GRID), np.array([[1, 1]], np.int32), "ELEMENT", axis=0),
    case("bool", GRID > 3, [[1, 1]], "ELEMENT", axis=0),
    case("int32", GRID.astype(np.int32), [[1, 1]], "ELEMENT", axis=0),
    case("elementwise dimension", GRID, [[1, 1]], "ELEMENT", axis=1, num_elementwise_dims=1),
    case("whole index", GRID, [[1, 2], [0, 0]], "ND"),
    case("partial index", GRID, [[1], [2]], "ND"),
    case("one index", GRID, [1, 2], "ND"),
    case("negative", GRID, [[-1, -1]], "ND"),
    case("beyond", GRID, [[3, 0], [0, 4]], "ND"),
    case("index too long", GRID, [[0, 0, 0]], "ND"),
    case("scalar index", GRID, 1, "ND"),
    case("index of length 0", GRID, np.zeros((2, 0), np.int32), "ND"),
    case("batch dimension", CUBE, [[1], [2]], "ND", num_elementwise_dims=1),
    case("batch dimension whole", CUBE, [[[1, 0]], [[2, 3]]], "ND", num_elementwise_dims=1),
    case("batch dimension mismatch", CUBE, [[1], [2], [0]], "ND", num_elementwise_dims=1),
    case("batch dimension beyond", GRID, [[[1]]], "ND", num_elementwise_dims=2),
    case("dynamic", dynamic(GRID), np.array([[1], [0]], np.int32), "ND"),
    case("dynamic indices", GRID, dynamic(np.array([[1], [0]], np.int32), 0), "ND"),
    case("dynamic index length", GRID, dynamic(np.array([[1], [0]], np.int32)), "ND"),
    case("bool", GRID > 3, [[1, 2], [0, 0]], "ND"),
    case("nothing", GRID, np.zeros((0, 2), np.int32), "ND"),
    *(original(f"axis {axis}", axis) for axis in (0, 1, 2, 3, -1)),
)
