"""Fill: linspace and random, static and dynamic shapes and parameters, types."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Network, ShapeValues, dynamic


def case(
    name: str,
    operation: str,
    shape: Any,
    dtype: str | None = None,
    alpha: Any = None,
    beta: Any = None,
    **more: Any,
) -> Case:
    """A case of static attributes."""

    def build(n: Network) -> Any:
        layer = n.layer("fill", shape, f"FillOperation.{operation}")
        if alpha is not None:
            layer.alpha = alpha
        if beta is not None:
            layer.beta = beta
        if dtype is not None:
            layer.set_output_type(0, getattr(n.trt.DataType, dtype))
        return layer

    return Case(f"fill/{operation}/{name}", {}, build, **more)


def with_tensors(
    name: str,
    operation: str,
    shape: Any = None,
    alpha: Any = None,
    beta: Any = None,
    scalar_type: Any = np.float32,
    dtype: str | None = None,
    dims: Any = (4,),
    **more: Any,
) -> Case:
    """A case whose shape, alpha or beta are constant tensors."""

    def build(n: Network) -> Any:
        layer = n.layer("fill", dims, f"FillOperation.{operation}")
        for index, value in enumerate((shape, alpha, beta)):
            if value is not None:
                layer.set_input(
                    index, n.constant(np.asarray(value), np.int32 if index == 0 else scalar_type)
                )
        if dtype is not None:
            layer.set_output_type(0, getattr(n.trt.DataType, dtype))
        return layer

    return Case(f"fill/{operation}/{name}", {}, build, **more)


def as_long_as(name: str, dtype: Any, input_: Any) -> Case:
    """A range as long as a dimension of the input, or as the value of the shape input."""

    def build(n: Network) -> Any:
        layer = n.layer("fill", (1,), "FillOperation.LINSPACE")
        layer.set_input(0, n.shape(n["x"]) if not isinstance(input_, ShapeValues) else n["x"])
        layer.set_input(1, n.scalar(1, dtype))
        layer.set_input(2, n.constant([2], dtype))
        if dtype is np.int32:
            layer.set_output_type(0, n.trt.DataType.INT32)
        return layer

    return Case(f"fill/LINSPACE/{name}", {"x": input_}, build)


def four(low: int = 0) -> ShapeValues:
    """The shape input (4,)."""
    return ShapeValues(np.array([4], np.int32), (low,), (8,))


CASES = (
    case("default", "LINSPACE", (4,)),
    case("alpha and beta", "LINSPACE", (4,), alpha=1.0, beta=2.0),
    case("fractional", "LINSPACE", (4,), alpha=0.5, beta=-0.25),
    case("alpha only", "LINSPACE", (4,), alpha=1.0),
    case("beta only", "LINSPACE", (4,), beta=2.0),
    case("int32", "LINSPACE", (4,), "INT32", 1.0, 2.0),
    case("int32 fractional", "LINSPACE", (4,), "INT32", 0.5, 0.75),
    case("float16", "LINSPACE", (4,), "HALF", 1.0, 2.0),
    case("bool", "LINSPACE", (4,), "BOOL", 1.0, 2.0),
    case("rank 2", "LINSPACE", (2, 2), alpha=1.0, beta=2.0),
    case("nothing", "LINSPACE", (0,)),
    case("scalar", "LINSPACE", ()),
    case("negative size", "LINSPACE", (-1,)),
    case("uniform default", "RANDOM_UNIFORM", (16,), within=(0, 1)),
    case("uniform bounds", "RANDOM_UNIFORM", (4, 4), alpha=-2.0, beta=3.0, within=(-2, 3)),
    case("uniform int32", "RANDOM_UNIFORM", (4,), "INT32", 0.0, 5.0, within=(0, 5)),
    case("uniform float16", "RANDOM_UNIFORM", (4,), "HALF", within=(0, 1)),
    case("uniform scalar", "RANDOM_UNIFORM", (), within=(0, 1)),
    case("uniform nothing", "RANDOM_UNIFORM", (0, 2), within=(0, 1)),
    case("uniform crossed bounds", "RANDOM_UNIFORM", (4,), alpha=3.0, beta=1.0, within=(1, 3)),
    case("normal default", "RANDOM_NORMAL", (16,), within=(-9, 9)),
    case(
        "normal mean and deviation",
        "RANDOM_NORMAL",
        (4, 4),
        alpha=100.0,
        beta=1.0,
        within=(90, 110),
    ),
    case("normal int32", "RANDOM_NORMAL", (4,), "INT32", within=(-9, 9)),
    with_tensors("constant shape", "LINSPACE", shape=[5]),
    with_tensors("constant shape, dims of other length", "LINSPACE", shape=[5], dims=(1, 1)),
    with_tensors("tensors", "LINSPACE", alpha=1, beta=[2]),
    with_tensors("all tensors", "LINSPACE", shape=[3], alpha=1, beta=[2]),
    with_tensors("tensors int32", "LINSPACE", alpha=1, beta=[2], scalar_type=np.int32),
    with_tensors(
        "tensors int32 declared", "LINSPACE", alpha=1, beta=[2], scalar_type=np.int32, dtype="INT32"
    ),
    with_tensors("rank 2 tensors", "LINSPACE", shape=[2, 3], alpha=1, beta=[10, 1], dims=(1, 1)),
    with_tensors("rank 2 static tensors", "LINSPACE", alpha=1, beta=[10, 1], dims=(2, 3)),
    with_tensors("beta of rank 0", "LINSPACE", alpha=1, beta=2),
    with_tensors("alpha tensor only", "LINSPACE", alpha=1),
    with_tensors("beta tensor only", "LINSPACE", beta=[2]),
    with_tensors("beta of wrong length", "LINSPACE", alpha=1, beta=[2, 2]),
    with_tensors("alpha of rank 1", "LINSPACE", alpha=[1], beta=[2]),
    with_tensors("uniform tensors", "RANDOM_UNIFORM", alpha=2.0, beta=3.0, within=(2, 3)),
    with_tensors("uniform constant shape", "RANDOM_UNIFORM", shape=[3], within=(0, 1)),
    with_tensors("normal tensors", "RANDOM_NORMAL", alpha=100.0, beta=1.0, within=(90, 110)),
    as_long_as("as long as an input, int32", np.int32, dynamic(np.ones(4, "f4"))),
    as_long_as("as long as an input, float32", np.float32, dynamic(np.ones(4, "f4"))),
    as_long_as("as long as a shape input, int32", np.int32, four()),
    as_long_as("as long as a shape input, float32", np.float32, four()),
    as_long_as("as long as a shape input, at least 1", np.float32, four(1)),
)
