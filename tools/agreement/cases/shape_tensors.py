"""Shape tensors: arithmetic on shapes as outputs and as sizes, shape inputs, profiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Dynamic, Given, Network, ShapeValues, dynamic

GRID = np.arange(12, dtype=np.float32).reshape(3, 4)
OPERATIONS = (
    *("SUM", "PROD", "MAX", "MIN", "SUB", "DIV", "POW", "FLOOR_DIV"),
    *("AND", "OR", "XOR", "EQUAL", "GREATER", "LESS"),
)


def on_shape(name: str, build: Any, x: Given | None = None) -> Case:
    """A case of one dynamic input; ``build`` gets its shape."""
    input_ = dynamic(GRID) if x is None else x
    return Case(f"shape_tensors/{name}", {"x": input_}, lambda n: build(n, n.shape(n["x"])))


def arithmetic(operation: str) -> Any:
    """Arithmetic of a shape with (2, 5)."""
    return lambda n, s: n.layer("elementwise", s, n.ints(2, 5), f"ElementWiseOperation.{operation}")


def computed(operation: str, *numbers: int) -> Any:
    """A linspace as long as a computed size."""

    def build(n: Network, shape: Any) -> Any:
        size = n.out("elementwise", shape, n.ints(*numbers), f"ElementWiseOperation.{operation}")
        first = n.out("slice", size, (0,), (1,), (1,))
        layer = n.layer("fill", (1,), "FillOperation.LINSPACE")
        layer.set_input(0, first)
        layer.set_input(1, n.scalar(0.0, np.float32))
        layer.set_input(2, n.constant([1.0]))
        return layer

    return build


def reshaped_to(make: Any) -> Any:
    """A reshape of x to a computed shape."""

    def build(n: Network, shape: Any) -> Any:
        layer = n.layer("shuffle", n["x"])
        layer.set_input(1, make(n, shape))
        return layer

    return build


def profiled(
    name: str, value: np.ndarray, low: Any, best: Any, high: Any, declared: Any = (-1, 4)
) -> Case:
    """An identity of an input with a given profile."""
    input_ = Dynamic(value, low, high, declared, best)
    return Case(
        f"shape_tensors/profile/{name}", {"x": input_}, lambda n: n.layer("identity", n["x"])
    )


def shape_input(name: str, value: Any, build: Any, low: int = 0, high: int = 8) -> Case:
    """A case of a shape input."""
    array = np.array(value, np.int32)
    shape_values = ShapeValues(array, (low,) * array.size, (high,) * array.size)
    return Case(f"shape_tensors/input/{name}", {"s": shape_values}, build)


def linspace(n: Network, size: Any) -> Any:
    """0, 1, ... as a float32 vector of a size."""
    layer = n.layer("fill", (1,), "FillOperation.LINSPACE")
    layer.set_input(0, size)
    layer.set_input(1, n.scalar(0.0, np.float32))
    layer.set_input(2, n.constant([1.0]))
    return layer


def last_first(n: Network, shape: Any) -> Any:
    """The shape backwards, by a gather."""
    return n.out("gather", shape, n.ints(1, 0), 0)


def concatenated(n: Network, shape: Any) -> Any:
    """(1, rows, columns)."""
    return n.out("concatenation", [n.ints(1), shape], axis=0)


def product_first(n: Network, shape: Any) -> Any:
    """(rows * columns, 1)."""
    return n.out(
        "concatenation",
        [n.out("reduce", shape, "ReduceOperation.PROD", 1, True), n.ints(1)],
        axis=0,
    )


def sliced(n: Network, shape: Any) -> Any:
    """(columns, -1)."""
    return n.out("concatenation", [n.out("slice", shape, (1,), (1,), (1,)), n.ints(-1)], axis=0)


def selected(n: Network, shape: Any) -> Any:
    """The shape where it is above 3, else -1."""
    above = n.out("elementwise", shape, n.ints(3, 3), "ElementWiseOperation.GREATER")
    return n.out("select", above, shape, n.ints(-1, -1))


def cast_twice(n: Network, shape: Any) -> Any:
    """The shape through float32."""
    return n.out("cast", n.out("cast", shape, "DataType.FLOAT"), "DataType.INT32")


def absolute(n: Network, shape: Any) -> Any:
    """The absolute shape."""
    return n.out("unary", shape, "UnaryOperation.ABS")


def through_scatter(n: Network, shape: Any) -> Any:
    """The shape with its first element replaced by Scatter."""
    return n.out("scatter", shape, n.ints(0), n.ints(-1), "ScatterMode.ELEMENT", axis=0)


def through_matrix(n: Network, shape: Any) -> Any:
    """The shape as a matrix and back."""
    return n.out("shuffle", n.out("shuffle", shape, reshape_dims=(1, 2)), reshape_dims=(2,))


SHAPES = (
    last_first,
    concatenated,
    product_first,
    sliced,
    selected,
    cast_twice,
    absolute,
    through_scatter,
    through_matrix,
)

CASES = (
    *(on_shape(f"output {operation}", arithmetic(operation)) for operation in OPERATIONS),
    *(
        on_shape(f"output {op} static", arithmetic(op), GRID)
        for op in ("SUM", "FLOOR_DIV", "EQUAL")
    ),
    *(
        on_shape(f"size {op}", computed(op, 2, 2))
        for op in ("SUM", "SUB", "PROD", "DIV", "FLOOR_DIV", "MAX", "MIN")
    ),
    on_shape("size negative", computed("SUB", 5, 2)),
    on_shape("size 0", computed("SUB", 3, 2)),
    *(on_shape(f"reshape {make.__name__.replace('_', ' ')}", reshaped_to(make)) for make in SHAPES),
    *(on_shape(f"output {make.__name__.replace('_', ' ')}", make) for make in SHAPES),
    *(
        on_shape(
            f"output reduce {op}",
            lambda n, s, op=op: n.layer("reduce", s, f"ReduceOperation.{op}", 1, False),
        )
        for op in ("SUM", "PROD", "MAX", "MIN", "AVG")
    ),
    *(
        on_shape(
            f"output unary {op}", lambda n, s, op=op: n.layer("unary", s, f"UnaryOperation.{op}")
        )
        for op in ("ABS", "SIGN", "NEG", "NOT", "EXP")
    ),
    on_shape("output as float", lambda n, s: n.layer("cast", s, "DataType.FLOAT")),
    on_shape(
        "output topk",
        lambda n, s: n.layer(
            "topk",
            n.out("shuffle", n.out("cast", s, "DataType.FLOAT"), reshape_dims=(1, 2)),
            "TopKOperation.MAX",
            1,
            2,
        ),
    ),
    profiled("in range", GRID, (1, 4), (3, 4), (5, 4)),
    profiled("below", GRID[:1], (2, 4), (3, 4), (5, 4)),
    profiled("above", GRID, (1, 4), (1, 4), (2, 4)),
    profiled("from 0", GRID, (0, 4), (3, 4), (5, 4)),
    profiled("nothing from 0", GRID[:0], (0, 4), (3, 4), (5, 4)),
    profiled("fixed", GRID, (3, 4), (3, 4), (3, 4)),
    profiled("crossed", GRID, (5, 4), (3, 4), (1, 4)),
    profiled("best outside", GRID, (1, 4), (9, 4), (5, 4)),
    profiled("wrong static size", GRID, (1, 5), (3, 5), (5, 5)),
    profiled("wrong rank", GRID, (1,), (3,), (5,)),
    profiled("negative", GRID, (-1, 4), (3, 4), (5, 4)),
    shape_input("linspace", [4], lambda n: linspace(n, n["s"])),
    shape_input("linspace of 0", [0], lambda n: linspace(n, n["s"])),
    shape_input(
        "linspace of the sum",
        [4],
        lambda n: linspace(n, n.out("elementwise", n["s"], n.ints(2), "ElementWiseOperation.SUM")),
    ),
    shape_input(
        "as output", [4], lambda n: [linspace(n, n["s"]).get_output(0), n.out("identity", n["s"])]
    ),
    shape_input("scalar", 4, lambda n: linspace(n, n.out("shuffle", n["s"], reshape_dims=(1,)))),
    shape_input("outside", [9], lambda n: linspace(n, n["s"]), high=8),
)
