"""Shuffle: reshapes with 0 and -1, transposes, dynamic shapes, types, scalars and nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, ShapeValues, dynamic

GRID = np.arange(6, dtype=np.float32).reshape(2, 3)
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
RESHAPES = {
    "same volume": (3, 2),
    "flat": (6,),
    "-1": (-1,),
    "0 and -1": (0, -1),
    "-1 and 0": (-1, 0),
    "0 and 0": (0, 0),
    "0 beyond the rank": (2, 3, 0),
    "0 and 1 and -1": (0, 1, -1),
    "two -1": (-1, -1),
    "not divisible": (4, -1),
    "other volume": (5,),
    "-2": (-2, 3),
    "rank 8": (1, 1, 1, 1, 1, 1, 2, 3),
    "scalar": (),
}
EMPTY_RESHAPES = {
    "to itself": (0, 3),
    "other": (3, 0),
    "0 and -1": (0, -1),
    "flat": (0,),
    "flat -1": (-1,),
    "more zeros": (0, 0),
    "rank 3": (2, 0, 5),
}
TRANSPOSES = {
    "reversed": (2, 1, 0),
    "rotated": (1, 2, 0),
    "identity": (0, 1, 2),
    "repeated": (0, 0, 1),
    "beyond the rank": (0, 1, 3),
    "too short": (1, 0),
}


def case(name: str, x: Given, types: tuple[str, ...] = (), **attributes: Any) -> Case:
    """A case of static attributes."""
    return Case(
        f"shuffle/{name}", {"x": x}, lambda n: n.layer("shuffle", n["x"], **attributes), types=types
    )


def to_constant(
    name: str, x: Given, shape: tuple[int, ...], zero_is_placeholder: bool = True
) -> Case:
    """A reshape to a constant tensor."""

    def build(n: Network) -> Any:
        layer = n.layer("shuffle", n["x"], zero_is_placeholder=zero_is_placeholder)
        layer.set_input(1, n.ints(*shape))
        return layer

    return Case(f"shuffle/{name}", {"x": x}, build)


def to_input(
    name: str, x: Given, shape: tuple[int, ...], low: int = 1, high: int = 12, best: Any = None
) -> Case:
    """A reshape to a shape input."""
    count = len(shape)
    shape_values = ShapeValues(np.array(shape, np.int32), (low,) * count, (high,) * count, best)

    def build(n: Network) -> Any:
        layer = n.layer("shuffle", n["x"])
        layer.set_input(1, n["shape"])
        return layer

    return Case(f"shuffle/{name}", {"x": x, "shape": shape_values}, build)


def to_shape_of(name: str, x: Given, like: Given) -> Case:
    """A reshape to the shape of another input."""

    def build(n: Network) -> Any:
        layer = n.layer("shuffle", n["x"])
        layer.set_input(1, n.shape(n["like"]))
        return layer

    return Case(f"shuffle/{name}", {"x": x, "like": like}, build)


def flattened(n: Network) -> Any:
    """A reshape to the product of a shape."""
    layer = n.layer("shuffle", n["x"])
    layer.set_input(1, n.out("reduce", n.shape(n["x"]), "ReduceOperation.PROD", 1, True))
    return layer


def rows_kept(n: Network) -> Any:
    """A reshape to (size of dimension 0, -1). The size is a shape tensor."""
    rows = n.out("shuffle", n.size(n["x"], 0), reshape_dims=(1,))
    layer = n.layer("shuffle", n["x"])
    layer.set_input(1, n.out("concatenation", [rows, n.ints(-1)], axis=0))
    return layer


CASES = (
    *(case(f"reshape/{name}", GRID, reshape_dims=dims) for name, dims in RESHAPES.items()),
    *(
        case(
            f"reshape without placeholders/{name}",
            GRID,
            zero_is_placeholder=False,
            reshape_dims=dims,
        )
        for name, dims in RESHAPES.items()
        if 0 in dims
    ),
    *(
        case(
            f"reshape of nothing/{name}",
            np.zeros((0, 3), "f4"),
            zero_is_placeholder=False,
            reshape_dims=dims,
        )
        for name, dims in EMPTY_RESHAPES.items()
    ),
    *(
        case(f"reshape of nothing, placeholders/{name}", np.zeros((0, 3), "f4"), reshape_dims=dims)
        for name, dims in EMPTY_RESHAPES.items()
    ),
    *(
        case(f"reshape of dynamic/{name}", dynamic(GRID), reshape_dims=dims)
        for name, dims in RESHAPES.items()
    ),
    *(
        case(f"first transpose/{name}", CUBE, first_transpose=perm)
        for name, perm in TRANSPOSES.items()
    ),
    *(
        case(f"second transpose/{name}", CUBE, second_transpose=perm)
        for name, perm in TRANSPOSES.items()
    ),
    case("transpose of dynamic", dynamic(CUBE), first_transpose=(2, 0, 1)),
    case("transpose of nothing", np.zeros((0, 3), "f4"), first_transpose=(1, 0)),
    case(
        "all three",
        CUBE,
        first_transpose=(2, 0, 1),
        reshape_dims=(4, -1, 2),
        second_transpose=(1, 2, 0),
    ),
    case("0 copies after the transpose", CUBE, first_transpose=(2, 0, 1), reshape_dims=(0, -1)),
    case("nothing set", CUBE),
    case("scalar to vector", np.array(3.0, np.float32), reshape_dims=(1,)),
    case("scalar to rank 3", np.array(3.0, np.float32), reshape_dims=(1, 1, 1)),
    case("scalar kept", np.array(3.0, np.float32)),
    case("vector to scalar", np.array([3.0], np.float32), reshape_dims=()),
    case("two to scalar", np.array([3.0, 4.0], np.float32), reshape_dims=()),
    *(
        case(f"type/{dtype}", (GRID % 2).astype(dtype), first_transpose=(1, 0))
        for dtype in ("float16", "int32", "bool", "int8", "uint8")
    ),
    case("type/float16 output", GRID.astype("f2"), ("HALF",), first_transpose=(1, 0)),
    to_constant("constant/same volume", GRID, (3, 2)),
    to_constant("constant/0 and -1", GRID, (0, -1)),
    to_constant("constant/0 without placeholders", np.zeros((0, 3), "f4"), (0, 5), False),
    to_constant("constant/two -1", GRID, (-1, -1)),
    to_constant("constant/other volume", GRID, (5,)),
    to_constant("constant/scalar to vector", np.array(3.0, "f4"), (1,)),
    to_input("input/same volume", GRID, (3, 2)),
    to_input("input/-1", GRID, (3, -1), low=-1),
    to_input("input/0 copies", GRID, (0, -1), low=-1),
    to_input("input/other volume", GRID, (3, 3)),
    to_input("input/outside the profile", GRID, (1, 6), high=5, best=(2, 3)),
    to_input("input/dynamic", dynamic(GRID), (3, 2)),
    to_shape_of("shape of another", dynamic(GRID), dynamic(np.ones((3, 2), "f4"))),
    to_shape_of("shape of another, other volume", dynamic(GRID), dynamic(np.ones((2, 2), "f4"))),
    Case("shuffle/product of a shape", {"x": dynamic(GRID)}, flattened),
    Case("shuffle/rows kept", {"x": dynamic(CUBE)}, rows_kept),
)
