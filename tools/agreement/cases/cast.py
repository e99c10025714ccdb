"""Cast, Identity, Constant and Shape: every pair of types, declared output types, edge values, scalars, nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import TENSORRT_TYPES, Case, Given, Network, dynamic

VALUES = {
    "float32": np.array([0, 1.5, -1.5, 2.999, 100, -0.25], np.float32),
    "float16": np.array([0, 1.5, -1.5, 2.999, 100, -0.25], np.float16),
    "int32": np.array([0, 1, -1, 100, 127, 1000], np.int32),
    "bool": np.array([True, False]),
    "int8": np.array([0, 1, -1, 100], np.int8),
    "uint8": np.array([0, 1, 200], np.uint8),
}
EDGES = {
    "nan": [np.nan, -np.nan],
    "inf": [np.inf, -np.inf],
    "large": [3e9, -3e9, 70000, -70000, 2147483520],
    "around 128": [127.5, 128, -128.5, -129, 255.5, 256, -1],
    "tiny": [1e-8, -1e-8, -0.0],
}
SHAPES = {"scalar": (), "vector": (2,), "nothing": (0, 3), "rank 8": (1,) * 7 + (2,)}


def declared(target: str) -> dict[str, Any]:
    """The settings of an output of this type: its type and the builder's flag."""
    flags = {"HALF": ("FP16",), "INT8": ("INT8",)}.get(target, ())
    return {"types": (target,), "flags": flags} if target in ("HALF", "INT8", "UINT8") else {}


def cast(name: str, x: Given, target: str, **more: Any) -> Case:
    """A case of Cast."""
    return Case(
        f"cast/{name}", {"x": x}, lambda n: n.layer("cast", n["x"], f"DataType.{target}"), **more
    )


def there_and_back(name: str, x: Given, target: str, back: str, **more: Any) -> Case:
    """A cast to a type and back."""

    def build(n: Network) -> Any:
        there = n.out("cast", n["x"], f"DataType.{target}")
        return n.layer("cast", there, f"DataType.{back}")

    return Case(f"cast/{name}", {"x": x}, build, **more)


def identity(name: str, x: Given, target: str | None = None, **more: Any) -> Case:
    """A case of Identity, with the layer's output type set if ``target`` is given."""

    def build(n: Network) -> Any:
        layer = n.layer("identity", n["x"])
        if target is not None:
            layer.set_output_type(0, getattr(n.trt.DataType, target))
        return layer

    return Case(f"cast/identity/{name}", {"x": x}, build, **more)


def constant(name: str, shape: tuple[int, ...], value: Any, dtype: str, **more: Any) -> Case:
    """A case of Constant, followed by an Identity."""

    def build(n: Network) -> Any:
        made = n.out("constant", shape, n.weights(value, dtype))
        return n.layer("identity", made)

    return Case(f"cast/constant/{name}", {}, build, **more)


def nothing(shape: tuple[int, ...], dtype: str) -> Case:
    """A constant of nothing, whose weights have a type and no address, followed by an Identity."""

    def build(n: Network) -> Any:
        weights = n.trt.Weights(getattr(n.trt.DataType, dtype))
        return n.layer("identity", n.out("constant", shape, weights))

    return Case(f"cast/constant/nothing of type {dtype}, rank {len(shape)}", {}, build)


def shape(name: str, x: Given) -> Case:
    """A case of Shape."""
    return Case(f"cast/shape/{name}", {"x": x}, lambda n: n.layer("shape", n["x"]))


def undeclared_pairs() -> tuple[Case, ...]:
    """Casts whose output type was left alone."""
    return tuple(
        cast(f"{dtype} to {target}, undeclared", VALUES[dtype], target, undeclared=True)
        for dtype in ("float32", "int32")
        for target in ("HALF", "INT8", "UINT8", "INT32", "BOOL")
        if TENSORRT_TYPES[dtype] != target
    )


CASES = (
    *(
        cast(f"{dtype} to {target}", x, target, **declared(target))
        for dtype, x in VALUES.items()
        for target in TENSORRT_TYPES.values()
    ),
    *undeclared_pairs(),
    *(
        cast(f"{edge} to {target}", np.array(values, np.float32), target, **declared(target))
        for edge, values in EDGES.items()
        for target in ("INT32", "BOOL", "HALF", "INT8")
    ),
    *(
        cast(
            f"large int32 to {t}", np.array([16777217, -(2**31), 70000], np.int32), t, **declared(t)
        )
        for t in ("FLOAT", "HALF", "INT8")
    ),
    *(
        cast(f"{name} to INT32", np.ones(dims, np.float32), "INT32")
        for name, dims in SHAPES.items()
    ),
    *(
        there_and_back(f"float32 to {t} and back", VALUES["float32"], t, "FLOAT")
        for t in ("INT32", "BOOL", "HALF")
    ),
    there_and_back(
        "float32 to HALF and back, with the flag",
        VALUES["float32"],
        "HALF",
        "FLOAT",
        flags=("FP16",),
    ),
    there_and_back(
        "float32 to INT8 and back, with the flag",
        VALUES["float32"],
        "INT8",
        "FLOAT",
        flags=("INT8",),
    ),
    there_and_back("int32 to FLOAT and back", np.array([16777217, 3], np.int32), "FLOAT", "INT32"),
    there_and_back("70000 to HALF and back", np.array([70000, 1e-8], np.float32), "HALF", "FLOAT"),
    cast("dynamic to INT32", dynamic(np.ones((2, 3), "f4")), "INT32"),
    *(identity(dtype, x, types=(TENSORRT_TYPES[dtype],)) for dtype, x in VALUES.items()),
    *(identity(f"{dtype}, undeclared", x, undeclared=True) for dtype, x in VALUES.items()),
    *(
        identity(f"{dtype} as {target}", VALUES[dtype], target)
        for dtype in ("float32", "int32", "bool")
        for target in ("FLOAT", "INT32", "BOOL", "HALF")
    ),
    *(identity(name, np.ones(dims, np.float32)) for name, dims in SHAPES.items()),
    identity("float32 declared INT32", VALUES["float32"], types=("INT32",)),
    identity("int32 declared FLOAT", VALUES["int32"], types=("FLOAT",)),
    *(constant(dtype, (2,), [1, 0], dtype) for dtype in VALUES),
    *(constant(f"{name}", dims, np.ones(dims), "float32") for name, dims in SHAPES.items()),
    constant("too few weights", (3,), [1, 2], "float32"),
    constant("too many weights", (1,), [1, 2], "float32"),
    constant("wildcard shape", (-1,), [1, 2], "float32"),
    constant("scalar bool", (), True, "bool"),
    constant("int64", (2,), [1, 2], "int64"),
    *(nothing(shape, dtype) for shape in ((0,), (0, 3)) for dtype in ("FLOAT", "INT32")),
    *(shape(name, np.ones(dims, np.float32)) for name, dims in SHAPES.items()),
    shape("dynamic", dynamic(np.ones((2, 3), "f4"))),
    shape("partly dynamic", dynamic(np.ones((2, 3), "f4"), 0)),
    shape("of bool", np.array([True])),
    shape("of dynamic nothing", dynamic(np.ones((0, 3), "f4"))),
    Case("cast/input as output", {"x": np.ones(2, "f4")}, lambda n: [n["x"]]),
    Case(
        "cast/one tensor twice",
        {"x": np.ones(2, "f4")},
        lambda n: [n.out("identity", n["x"]), n.out("unary", n["x"], "UnaryOperation.NEG")],
    ),
)
