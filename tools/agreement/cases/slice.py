"""Slice: every mode, type, bound; static and dynamic starts, sizes and strides."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Dynamic, Given, Network, ShapeValues, dynamic

MODES = ("STRICT_BOUNDS", "WRAP", "CLAMP", "FILL", "REFLECT")
ROW = np.array([1, 2, 3, 4], np.float32)
GRID = np.arange(12, dtype=np.float32).reshape(3, 4)
WINDOWS = {
    "inside": (1, 2, 1),
    "beyond both ends": (-3, 10, 1),
    "far beyond": (-9, 20, 1),
    "backwards": (3, 4, -1),
    "backwards beyond": (5, 8, -1),
    "step 2": (0, 2, 2),
    "step 3 beyond": (-2, 4, 3),
    "step 0": (1, 3, 0),
    "nothing": (1, 0, 1),
    "nothing at the start": (0, 0, 1),
    "nothing at the end": (4, 0, 1),
    "nothing beyond": (5, 0, 1),
    "negative size": (1, -1, 1),
    "start at the end": (4, 1, 1),
}
TYPES = ("float16", "int32", "bool", "int8", "uint8")


def case(
    name: str,
    x: Given,
    start: Any,
    size: Any,
    stride: Any,
    mode: str,
    fill: Any = None,
    **more: Any,
) -> Case:
    """A case of a static window."""

    def build(n: Network) -> Any:
        layer = n.layer("slice", n["x"], start, size, stride, mode=f"SampleMode.{mode}")
        if fill is not None:
            layer.set_input(4, n.constant(fill, np.asarray(fill).dtype))
        return layer

    return Case(f"slice/{name}", {"x": x}, build, **more)


def sized_by(
    name: str, x: Given, like: Given, start: Any, stride: Any, mode: str = "STRICT_BOUNDS"
) -> Case:
    """A case whose size is the shape of another input."""

    def build(n: Network) -> Any:
        layer = n.layer(
            "slice", n["x"], start, (1,) * len(start), stride, mode=f"SampleMode.{mode}"
        )
        layer.set_input(2, n.shape(n["like"]))
        return layer

    return Case(f"slice/{name}", {"x": x, "like": like}, build)


def with_inputs(name: str, x: Given, mode: str = "STRICT_BOUNDS", **inputs: Any) -> Case:
    """A case whose start, size or stride are constant tensors or shape inputs."""
    index = {"start": 1, "size": 2, "stride": 3}
    shape_inputs = {key: value for key, value in inputs.items() if isinstance(value, ShapeValues)}

    def build(n: Network) -> Any:
        layer = n.layer("slice", n["x"], (0,), (2,), (1,), mode=f"SampleMode.{mode}")
        for key, value in inputs.items():
            layer.set_input(index[key], n[key] if key in shape_inputs else n.ints(*value))
        return layer

    return Case(f"slice/{name}", {"x": x, **shape_inputs}, build)


def values(*numbers: int, low: int = 0, high: int = 4, best: Any = None) -> ShapeValues:
    """A shape input."""
    count = len(numbers)
    return ShapeValues(np.array(numbers, np.int32), (low,) * count, (high,) * count, best)


CASES = (
    *(
        case(f"{mode}/{name}", ROW, (start,), (size,), (stride,), mode)
        for mode in MODES
        for name, (start, size, stride) in WINDOWS.items()
    ),
    *(
        case(f"{mode}/{dtype}", ROW.astype(dtype), (1,), (2,), (1,), mode)
        for mode in MODES
        for dtype in TYPES
    ),
    *(case(f"{mode}/two dimensions", GRID, (-1, 1), (5, 2), (1, 2), mode) for mode in MODES[1:]),
    *(case(f"{mode}/size 1", ROW[:1], (-2,), (5,), (1,), mode) for mode in MODES[1:]),
    *(
        case(f"{mode}/of nothing", np.zeros((0, 2), "f4"), (0, 0), (0, 2), (1, 1), mode)
        for mode in MODES
    ),
    *(
        case(f"{mode}/something of nothing", np.zeros((0,), "f4"), (0,), (2,), (1,), mode)
        for mode in MODES
    ),
    *(case(f"{mode}/dynamic input", dynamic(GRID), (0, 0), (1, 1), (1, 1), mode) for mode in MODES),
    *(
        case(f"{mode}/dynamic input beyond", dynamic(GRID, 0), (-1, 0), (5, 4), (1, 1), mode)
        for mode in MODES
    ),
    *(
        sized_by(
            f"{mode}/size of another", GRID, dynamic(np.ones((2, 3), "f4")), (1, 1), (1, 1), mode
        )
        for mode in MODES
    ),
    *(
        sized_by(
            f"{mode}/size of another, beyond",
            GRID,
            dynamic(np.ones((3, 3), "f4")),
            (1, 1),
            (1, 1),
            mode,
        )
        for mode in MODES
    ),
    *(
        case(
            f"FILL/value {dtype}", ROW.astype(dtype), (-1,), (6,), (1,), "FILL", np.array(9, dtype)
        )
        for dtype in ("float32", "float16", "int32")
    ),
    case("FILL/value bool", np.array([False]), (-1,), (3,), (1,), "FILL", np.array(True)),
    case("FILL/value of another type", ROW, (-1,), (6,), (1,), "FILL", np.array(9, np.int32)),
    case("FILL/value of rank 1", ROW, (-1,), (6,), (1,), "FILL", np.array([9], np.float32)),
    case("CLAMP/with a value", ROW, (-1,), (6,), (1,), "CLAMP", np.array(9, np.float32)),
    case("STRICT_BOUNDS/scalar", np.array(1.0, np.float32), (), (), (), "STRICT_BOUNDS"),
    case("STRICT_BOUNDS/start too short", GRID, (0,), (2, 2), (1, 1), "STRICT_BOUNDS"),
    case("STRICT_BOUNDS/all too short", GRID, (0,), (2,), (1,), "STRICT_BOUNDS"),
    case("STRICT_BOUNDS/negative start", ROW, (-1,), (1,), (1,), "STRICT_BOUNDS"),
    case(
        "STRICT_BOUNDS/rank 8",
        np.zeros((1,) * 7 + (3,), "f4"),
        (0,) * 7 + (1,),
        (1,) * 7 + (2,),
        (1,) * 8,
        "STRICT_BOUNDS",
    ),
    case(
        "STRICT_BOUNDS/float16 output",
        ROW.astype("f2"),
        (1,),
        (2,),
        (1,),
        "STRICT_BOUNDS",
        types=("HALF",),
    ),
    case("STRICT_BOUNDS/whole", GRID, (0, 0), (3, 4), (1, 1), "STRICT_BOUNDS"),
    with_inputs("STRICT_BOUNDS/constant start", ROW, start=(1,)),
    with_inputs("STRICT_BOUNDS/constant size", ROW, size=(3,)),
    with_inputs("STRICT_BOUNDS/constant stride", ROW, stride=(2,)),
    with_inputs("STRICT_BOUNDS/constant all", ROW, start=(3,), size=(2,), stride=(-2,)),
    with_inputs("STRICT_BOUNDS/constant start beyond", ROW, start=(3,)),
    with_inputs("STRICT_BOUNDS/start of wrong length", ROW, start=(1, 1)),
    with_inputs("STRICT_BOUNDS/start as input", ROW, start=values(1)),
    with_inputs("STRICT_BOUNDS/start as input beyond", ROW, start=values(3)),
    with_inputs("STRICT_BOUNDS/size as input", ROW, size=values(3)),
    with_inputs("STRICT_BOUNDS/size 0 as input", ROW, size=values(0)),
    with_inputs("STRICT_BOUNDS/size as input beyond", ROW, size=values(5, high=6)),
    with_inputs("STRICT_BOUNDS/size as input outside the profile", ROW, size=values(5, best=(2,))),
    with_inputs("STRICT_BOUNDS/stride as input", ROW, stride=values(2)),
    with_inputs(
        "STRICT_BOUNDS/negative stride as input", ROW, start=(3,), stride=values(-1, low=-1)
    ),
    with_inputs("WRAP/start as input", ROW, "WRAP", start=values(3), size=(4,)),
    sized_by(
        "STRICT_BOUNDS/expand by stride 0",
        ROW[None, :1],
        dynamic(np.ones((2, 3), "f4")),
        (0, 0),
        (0, 0),
    ),
    sized_by(
        "STRICT_BOUNDS/nothing of a dynamic shape",
        GRID,
        Dynamic(np.ones((0, 3), "f4"), (0, 1), (2, 4), (-1, -1)),
        (0, 0),
        (1, 1),
    ),
)
