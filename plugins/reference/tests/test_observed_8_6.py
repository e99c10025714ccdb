"""What TensorRT 8.6.0 was seen to do, row by row: the reference must do the same.

Each case builds one small network. What is expected is ``REFUSED`` (the build fails), ``NONE`` (``add_*`` returns
None), ``NO_CONTEXT`` or the outputs' shapes, types and values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

REFUSED, NONE, NO_CONTEXT = "the build fails", "add_* returns None", "no context"
NAN, INF = float("nan"), float("inf")
I32 = torch.int32


def ints(*values: int) -> torch.Tensor:
    """An int32 tensor."""
    return torch.tensor(values, dtype=I32)


def floats(*values: float) -> torch.Tensor:
    """A float32 tensor."""
    return torch.tensor(values, dtype=torch.float32)


def arange(*shape: int) -> torch.Tensor:
    """0, 1, 2, ... in float32."""
    return torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape)


def bools(*values: bool) -> torch.Tensor:
    """A bool tensor."""
    return torch.tensor(values, dtype=torch.bool)


def elementwise(op: str, a: torch.Tensor, b: torch.Tensor) -> Any:
    """A case of two operands."""
    return lambda n: n.net.add_elementwise(
        n.input(a), n.input(b), getattr(n.trt.ElementWiseOperation, op)
    )


def unary(op: str, x: torch.Tensor) -> Any:
    """A case of one operand."""
    return lambda n: n.net.add_unary(n.input(x), getattr(n.trt.UnaryOperation, op))


def reduce(op: str, x: torch.Tensor, axes: int = 1, keep: bool = False) -> Any:
    """A case of a reduction."""
    return lambda n: n.net.add_reduce(n.input(x), getattr(n.trt.ReduceOperation, op), axes, keep)


def activation(kind: str, alpha: float | None = None, beta: float | None = None) -> Any:
    """An activation of -3, -1, 0, 0.5, 1 and 3."""

    def make(n: Any) -> Any:
        layer = n.net.add_activation(
            n.input(floats(-3, -1, 0, 0.5, 1, 3)), getattr(n.trt.ActivationType, kind)
        )
        if alpha is not None:
            layer.alpha = alpha
        if beta is not None:
            layer.beta = beta
        return layer

    return make


def cast(x: torch.Tensor, target: str) -> Any:
    """A case of a cast."""
    return lambda n: n.net.add_cast(n.input(x), getattr(n.trt.DataType, target))


def gather(
    x: torch.Tensor, index: Any, mode: str = "DEFAULT", axis: int = 0, shape: Any = None
) -> Any:
    """A case of a gather."""

    def make(n: Any) -> Any:
        layer = n.net.add_gather_v2(
            n.input(x, shape), n.const(index, np.int32), getattr(n.trt.GatherMode, mode)
        )
        if mode != "ND":
            layer.axis = axis
        return layer

    return make


def sliced(
    x: torch.Tensor,
    start: Any,
    size: Any,
    stride: Any,
    mode: str = "STRICT_BOUNDS",
    fill: Any = None,
) -> Any:
    """A case of a slice."""

    def make(n: Any) -> Any:
        layer = n.net.add_slice(n.input(x), start, size, stride)
        layer.mode = getattr(n.trt.SampleMode, mode)
        if fill is not None:
            layer.set_input(4, n.const(fill))
        return layer

    return make


def topk(x: torch.Tensor, k: int, axes: int, op: str = "MAX") -> Any:
    """A case of TopK."""
    return lambda n: n.net.add_topk(n.input(x), getattr(n.trt.TopKOperation, op), k, axes)


def fill(shape: Any, alpha: Any = None, beta: Any = None, dtype: str | None = None) -> Any:
    """A case of a LINSPACE fill."""

    def make(n: Any) -> Any:
        layer = n.net.add_fill(shape, n.trt.FillOperation.LINSPACE)
        if alpha is not None:
            layer.alpha, layer.beta = alpha, beta
        if dtype is not None:
            layer.set_output_type(0, getattr(n.trt.DataType, dtype))
        return layer

    return make


def softmax(x: torch.Tensor, axes: int) -> Any:
    """A case of SoftMax."""

    def make(n: Any) -> Any:
        layer = n.net.add_softmax(n.input(x))
        layer.axes = axes
        return layer

    return make


def matmul(a: torch.Tensor, b: torch.Tensor, op0: str = "NONE", op1: str = "NONE") -> Any:
    """A case of a matrix product."""
    return lambda n: n.net.add_matrix_multiply(
        n.input(a),
        getattr(n.trt.MatrixOperation, op0),
        n.input(b),
        getattr(n.trt.MatrixOperation, op1),
    )


def einsum(equation: str, *operands: torch.Tensor) -> Any:
    """A case of Einsum."""
    return lambda n: n.net.add_einsum([n.input(x) for x in operands], equation)


def pooling(kind: str, x: torch.Tensor, **attributes: Any) -> Any:
    """A case of 2 x 2 pooling."""

    def make(n: Any) -> Any:
        layer = n.net.add_pooling_nd(n.input(x), getattr(n.trt.PoolingType, kind), (2, 2))
        for name, value in attributes.items():
            setattr(
                layer, name, getattr(n.trt.PaddingMode, value) if name == "padding_mode" else value
            )
        return layer

    return make


def shuffle(
    x: torch.Tensor, dims: Any = None, first: Any = None, zero_is_length: bool = False
) -> Any:
    """A case of Shuffle."""

    def make(n: Any) -> Any:
        layer = n.net.add_shuffle(n.input(x))
        layer.zero_is_placeholder = not zero_is_length
        if first is not None:
            layer.first_transpose = first
        if dims is not None:
            layer.reshape_dims = dims
        return layer

    return make


def scatter(
    x: torch.Tensor, index: Any, updates: torch.Tensor, mode: str = "ELEMENT", axis: int = 0
) -> Any:
    """A case of Scatter."""

    def make(n: Any) -> Any:
        layer = n.net.add_scatter(
            n.input(x), n.const(index, np.int32), n.input(updates), getattr(n.trt.ScatterMode, mode)
        )
        layer.axis = axis
        return layer

    return make


def concat(*pieces: torch.Tensor, axis: int = 0) -> Any:
    """A case of Concatenation."""

    def make(n: Any) -> Any:
        layer = n.net.add_concatenation([n.input(piece) for piece in pieces])
        layer.axis = axis
        return layer

    return make


def select(condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
    """A case of Select."""
    return lambda n: n.net.add_select(n.input(condition), n.input(a), n.input(b))


def normalization(x: torch.Tensor, scale: torch.Tensor, axes: int, groups: int = 1) -> Any:
    """A case of Normalization with zero bias."""

    def make(n: Any) -> Any:
        layer = n.net.add_normalization(
            n.input(x), n.const(scale), n.const(torch.zeros_like(scale)), axes
        )
        layer.num_groups = groups
        return layer

    return make


def resize(
    mode: str, transformation: str | None, x: torch.Tensor, shape: Any = None, scales: Any = None
) -> Any:
    """A case of Resize."""

    def make(n: Any) -> Any:
        layer = n.net.add_resize(n.input(x))
        layer.resize_mode = getattr(n.trt.InterpolationMode, mode)
        if transformation is not None:
            layer.coordinate_transformation = getattr(
                n.trt.ResizeCoordinateTransformation, transformation
            )
        if shape is not None:
            layer.shape = shape
        if scales is not None:
            layer.scales = scales
        return layer

    return make


def grid_sample(mode: str, align: bool, sample: str = "FILL") -> Any:
    """A case of GridSample over 0..8 at a corner, inside, and beyond the opposite corner."""

    def make(n: Any) -> Any:
        grid = torch.tensor([[[[-1.0, -1.0], [0.5, 0.0], [1.2, 1.2]]]])
        layer = n.net.add_grid_sample(n.input(arange(1, 1, 3, 3)), n.input(grid))
        layer.interpolation_mode = getattr(n.trt.InterpolationMode, mode)
        layer.align_corners = align
        layer.sample_mode = getattr(n.trt.SampleMode, sample)
        return layer

    return make


def loop(kind: str, trips: int, adds: bool = True) -> Any:
    """A loop that starts at (1, 2) and adds that in every iteration."""

    def make(n: Any) -> Any:
        start = n.input(floats(1, 2))
        made = n.net.add_loop()
        made.add_trip_limit(n.const(trips, np.int32), n.trt.TripLimit.COUNT)
        carried = made.add_recurrence(start)
        following = n.net.add_elementwise(
            carried.get_output(0), start, n.trt.ElementWiseOperation.SUM
        )
        carried.set_input(1, following.get_output(0))
        tensor = (carried if kind == "LAST_VALUE" else following).get_output(0)
        result = made.add_loop_output(tensor, getattr(n.trt.LoopOutput, kind), 0)
        if kind != "LAST_VALUE":
            result.set_input(1, n.const(trips, np.int32))
        return result

    return make


def cumulative_sum(shape: Any) -> Any:
    """A running sum by a loop over rows; with a dynamic shape the trip count is the number of rows."""

    def make(n: Any) -> Any:
        x = n.input(arange(3, 2), shape)
        rows = n.net.add_gather(
            n.net.add_shape(x).get_output(0), n.const(0, np.int32), 0
        ).get_output(0)
        made = n.net.add_loop()
        made.add_trip_limit(rows, n.trt.TripLimit.COUNT)
        row = made.add_iterator(x).get_output(0)
        carried = made.add_recurrence(n.const([0.0, 0.0]))
        following = n.net.add_elementwise(
            carried.get_output(0), row, n.trt.ElementWiseOperation.SUM
        ).get_output(0)
        carried.set_input(1, following)
        result = made.add_loop_output(following, n.trt.LoopOutput.CONCATENATE, 0)
        result.set_input(1, rows)
        return result

    return make


def conditional(condition: bool) -> Any:
    """EXP if true, the input if false."""

    def make(n: Any) -> Any:
        x = n.input(floats(1, 2))
        made = n.net.add_if_conditional()
        made.set_condition(n.input(torch.tensor(condition)))
        inside = made.add_input(x).get_output(0)
        return made.add_output(
            n.net.add_unary(inside, n.trt.UnaryOperation.EXP).get_output(0), inside
        )

    return make


def expanded(n: Any) -> Any:
    """One row repeated as often as a shape tensor says."""
    x, like = n.input(torch.ones(1, 2)), n.input(torch.zeros(3, 2), (-1, 2))
    layer = n.net.add_slice(x, (0, 0), (0, 0), (0, 1))
    layer.set_input(2, n.net.add_shape(like).get_output(0))
    return layer


def flattened(n: Any) -> Any:
    """A reshape to the product of a dynamic shape."""
    x = n.input(arange(3, 2), (-1, 2))
    count = n.net.add_reduce(n.net.add_shape(x).get_output(0), n.trt.ReduceOperation.PROD, 1, True)
    layer = n.net.add_shuffle(x)
    layer.set_input(1, count.get_output(0))
    return layer


def counted(n: Any) -> Any:
    """An int32 range as long as a dynamic dimension."""
    x = n.input(torch.zeros(4), (-1,))
    layer = n.net.add_fill((0,), n.trt.FillOperation.LINSPACE)
    layer.set_input(0, n.net.add_shape(x).get_output(0))
    layer.set_input(1, n.const(0, np.int32))
    layer.set_input(2, n.const([1], np.int32))
    return layer


def topk_sum(n: Any) -> Any:
    """The sum of the 3840 largest of 5000 ones."""
    values = topk(torch.ones(1, 5000), 3840, 2)(n).get_output(0)
    return n.net.add_reduce(values, n.trt.ReduceOperation.SUM, 2, False)


def half_constant(n: Any) -> Any:
    """A constant of float16 weights added to itself."""
    constant = n.const([1.0, 2.0], np.float16)
    return n.net.add_elementwise(constant, constant, n.trt.ElementWiseOperation.SUM)


def positions(transposed: bool) -> Any:
    """The positions of what is not zero, transposed, or what is there."""

    def make(n: Any) -> Any:
        x = n.input(torch.diag(floats(1, 2)), (-1, 2))
        layer = n.net.add_shuffle(n.net.add_non_zero(x).get_output(0))
        layer.first_transpose = (1, 0)
        if transposed:
            return layer
        return n.net.add_gather_v2(x, layer.get_output(0), n.trt.GatherMode.ND)

    return make


def suppressed(n: Any) -> Any:
    """NMS over static inputs."""
    boxes = n.input(torch.tensor([[[0.0, 0, 1, 1]]]))
    return n.net.add_nms(boxes, n.input(torch.ones(1, 1, 1)), n.const(1, np.int32))


def quantize_dequantize(n: Any) -> Any:
    """A round trip through int8 with scale 0.5."""
    n.config.set_flag(n.trt.BuilderFlag.INT8)
    scale = n.const(0.5)
    quantized = n.net.add_quantize(n.input(floats(0.1, 0.75, 1.2, 99, -99)), scale).get_output(0)
    return n.net.add_dequantize(quantized, scale)


def deconvolution(pre: Any, post: Any) -> Any:
    """A 3 x 3 deconvolution of ones with stride 2 over a 2 x 2 image of ones."""

    def make(n: Any) -> Any:
        kernel = np.ones((1, 1, 3, 3), np.float32)
        layer = n.net.add_deconvolution_nd(
            n.input(torch.ones(1, 1, 2, 2)), 1, (3, 3), n.trt.Weights(kernel)
        )
        layer.stride_nd = (2, 2)
        layer.pre_padding, layer.post_padding = pre, post
        return layer

    return make


def convolution(x: torch.Tensor, size: Any) -> Any:
    """A convolution of ones."""

    def make(n: Any) -> Any:
        kernel = np.ones((1, 1, *size), np.float32)
        return n.net.add_convolution_nd(n.input(x), 1, size, n.trt.Weights(kernel))

    return make


def typed(make: Any, dtype: str) -> Any:
    """A case whose output has a type set."""

    def typed_make(n: Any) -> Any:
        layer = make(n)
        layer.get_output(0).dtype = getattr(n.trt.DataType, dtype)
        return layer

    return typed_make


def one_hot(n: Any) -> Any:
    """Indices 0, -1, 2 and 5 ... of depth 3."""
    return n.net.add_one_hot(
        n.input(ints(0, 5, 2, -1)), n.const([0.0, 1.0]), n.const(3, np.int32), -1
    )


def of_shape(op: str) -> Any:
    """Arithmetic on the shape of a dynamic tensor with the constant (2, 2)."""

    def make(n: Any) -> Any:
        shape = n.net.add_shape(n.input(torch.ones(3, 2), (-1, 2))).get_output(0)
        return n.net.add_elementwise(
            shape, n.const([2, 2], np.int32), getattr(n.trt.ElementWiseOperation, op)
        )

    return make


def dynamic_slice(count: int) -> Any:
    """Rows of a matrix, as many as a shape tensor says."""

    def make(n: Any) -> Any:
        x = n.input(arange(4, 2), (-1, 2))
        other = n.input(torch.zeros(count, 2), (-1, 2))
        layer = n.net.add_slice(x, (1, 0), (0, 0), (1, 1))
        layer.set_input(2, n.net.add_shape(other).get_output(0))
        return layer

    return make


def nonzero(x: torch.Tensor, shape: Any = None) -> Any:
    """A case of NonZero."""
    return lambda n: n.net.add_non_zero(n.input(x, shape))


CASES: list[tuple[str, Any, Any]] = [
    (
        "int32 DIV truncates",
        elementwise("DIV", ints(7, -7, 7, -7, 1), ints(2, 2, -2, -2, 3)),
        ints(3, -3, -3, 3, 0),
    ),
    (
        "int32 FLOOR_DIV floors",
        elementwise("FLOOR_DIV", ints(7, -7, 7, -7, 1), ints(2, 2, -2, -2, 3)),
        ints(3, -4, -4, 3, 0),
    ),
    ("int32 POW", elementwise("POW", ints(2), ints(3)), REFUSED),
    (
        "int32 MAX",
        elementwise("MAX", ints(7, -7, 7, -7, 1), ints(2, 2, -2, -2, 3)),
        ints(7, 2, 7, -2, 3),
    ),
    (
        "int32 SUB",
        elementwise("SUB", ints(7, -7, 7, -7, 1), ints(2, 2, -2, -2, 3)),
        ints(5, -9, 9, -5, -2),
    ),
    ("int32 EQUAL", elementwise("EQUAL", ints(7, -7), ints(2, 2)), bools(False, False)),
    ("int32 LESS", elementwise("LESS", ints(7, -7), ints(2, 2)), bools(False, True)),
    ("int32 AND", elementwise("AND", ints(1), ints(1)), REFUSED),
    (
        "bool EQUAL",
        elementwise("EQUAL", bools(True, False, True), bools(True, True, False)),
        bools(True, False, False),
    ),
    ("bool GREATER", elementwise("GREATER", bools(True), bools(True)), REFUSED),
    (
        "bool XOR",
        elementwise("XOR", bools(True, False, True), bools(True, True, False)),
        bools(False, True, True),
    ),
    ("bool SUM", elementwise("SUM", bools(True), bools(True)), REFUSED),
    ("float and int32 SUM", elementwise("SUM", floats(1), ints(1)), REFUSED),
    ("rank mismatch SUM", elementwise("SUM", torch.ones(2, 3), torch.ones(3)), REFUSED),
    ("int32 NEG", unary("NEG", ints(1)), REFUSED),
    ("int32 ABS", unary("ABS", ints(-2, 0, 3)), ints(2, 0, 3)),
    ("int32 SIGN", unary("SIGN", ints(-2, 0, 3)), ints(-1, 0, 1)),
    ("int32 EXP", unary("EXP", ints(1)), REFUSED),
    ("int32 NOT", unary("NOT", ints(1)), REFUSED),
    ("int32 ROUND", unary("ROUND", ints(1)), REFUSED),
    (
        "ROUND takes ties to even",
        unary("ROUND", floats(0.5, 1.5, 2.5, -0.5)),
        floats(0, 2, 2, -0.0),
    ),
    ("SIGN of NaN is NaN", unary("SIGN", floats(NAN, -2, 0)), floats(NAN, -1, 0)),
    ("ISINF", unary("ISINF", floats(INF, -INF, NAN, 1)), bools(True, True, False, False)),
    ("scalar EXP", unary("EXP", torch.tensor(1.0)), torch.tensor(2.71828)),
    (
        "int32 RELU",
        lambda n: n.net.add_activation(n.input(ints(1)), n.trt.ActivationType.RELU),
        REFUSED,
    ),
    ("THRESHOLDED_RELU", activation("THRESHOLDED_RELU", 1.0), floats(0, 0, 0, 0, 0, 3)),
    ("CLIP with crossed bounds", activation("CLIP", 2.0, 1.0), floats(2, 2, 2, 2, 2, 2)),
    (
        "SOFTPLUS",
        activation("SOFTPLUS", 1.0, 1.0),
        floats(0.0486, 0.3133, 0.6931, 0.9741, 1.3133, 3.0486),
    ),
    ("HARD_SIGMOID", activation("HARD_SIGMOID", 0.2, 0.5), floats(0, 0.3, 0.5, 0.6, 0.7, 1)),
    ("SELU", activation("SELU", 1.67, 1.05), floats(-1.6662, -1.1084, 0, 0.525, 1.05, 3.15)),
    ("CLIP without bounds", activation("CLIP"), floats(-3, -1, 0, 0.5, 1, 3)),
    ("LEAKY_RELU without alpha", activation("LEAKY_RELU"), floats(-0.03, -0.01, 0, 0.5, 1, 3)),
    ("ELU without alpha", activation("ELU"), floats(-0.9502, -0.6321, 0, 0.5, 1, 3)),
    ("reduce with mask 0", reduce("SUM", floats(1, 2), 0), REFUSED),
    ("int32 AVG truncates", reduce("AVG", ints(1, -2)), ints(0)[0]),
    ("int32 MAX through float32", reduce("MAX", ints(16777217, 2)), ints(16777216)[0]),
    ("int32 PROD through float32", reduce("PROD", ints(4097, 4099)), ints(16793604)[0]),
    ("int32 SUM beyond the range", reduce("SUM", ints(2147483647, 1)), ints(-2147483648)[0]),
    ("bool SUM over a dimension", reduce("SUM", bools(True)), REFUSED),
    ("reduce a scalar", reduce("SUM", torch.tensor(1.0)), REFUSED),
    ("reduce beyond the rank", reduce("SUM", floats(1), 2), REFUSED),
    (
        "bool constant",
        lambda n: n.net.add_identity(n.const([True, False], bool)),
        bools(True, False),
    ),
    ("gather negative", gather(floats(10, 20, 30), [-1, 0]), floats(30, 10)),
    ("gather out of range", gather(floats(10, 20, 30), [3, 7]), floats(0, 0)),
    ("gather negative, dynamic", gather(floats(10, 20, 30), [-1, 0], shape=(-1,)), floats(30, 10)),
    ("gather by a scalar", gather(floats(10, 20, 30), 1), torch.tensor(20.0)),
    ("gather bool", gather(bools(True, False), [0, 1]), bools(True, False)),
    (
        "gather ELEMENT smaller",
        gather(arange(2, 3), [[1, 1]], "ELEMENT", 0),
        torch.tensor([[3.0, 4.0]]),
    ),
    (
        "gather ELEMENT negative",
        gather(arange(1, 2), [[-1, 0]], "ELEMENT", 1),
        torch.tensor([[1.0, 0.0]]),
    ),
    ("gather ND", gather(arange(2, 3), [[1, 2], [0, 0]], "ND"), floats(5, 0)),
    ("slice out of bounds", sliced(floats(1, 2, 3), (1,), (3,), (1,)), REFUSED),
    ("slice to nothing beyond the end", sliced(floats(1, 2, 3), (4,), (0,), (1,)), REFUSED),
    ("slice to nothing", sliced(floats(1, 2, 3), (1,), (0,), (1,)), floats()),
    ("slice backwards", sliced(floats(1, 2, 3), (2,), (3,), (-1,)), floats(3, 2, 1)),
    ("slice with stride 0", sliced(floats(1, 2, 3), (1,), (4,), (0,)), floats(2, 2, 2, 2)),
    ("slice WRAP", sliced(floats(1, 2, 3), (-1,), (5,), (1,), "WRAP"), floats(3, 1, 2, 3, 1)),
    ("slice CLAMP", sliced(floats(1, 2, 3), (-2,), (6,), (1,), "CLAMP"), floats(1, 1, 1, 2, 3, 3)),
    (
        "slice REFLECT",
        sliced(floats(1, 2, 3), (-2,), (7,), (1,), "REFLECT"),
        floats(3, 2, 1, 2, 3, 2, 1),
    ),
    (
        "slice FILL default",
        sliced(floats(1, 2, 3), (-1,), (5,), (1,), "FILL"),
        floats(0, 1, 2, 3, 0),
    ),
    (
        "slice FILL 9",
        sliced(floats(1, 2, 3), (-1,), (5,), (1,), "FILL", 9.0),
        floats(9, 1, 2, 3, 9),
    ),
    ("slice FILL int32", sliced(ints(1, 2, 3), (-1,), (5,), (1,), "FILL"), ints(0, 1, 2, 3, 0)),
    ("slice bool", sliced(bools(True, False, True), (1,), (2,), (1,)), bools(False, True)),
    ("slice WRAP int32", sliced(ints(1, 2, 3), (-1,), (5,), (1,), "WRAP"), ints(3, 1, 2, 3, 1)),
    ("topk of rank 1", topk(floats(1, 2), 1, 1), REFUSED),
    ("topk ties", topk(torch.ones(1, 4), 4, 2), (torch.ones(1, 4), ints(0, 1, 2, 3)[None])),
    ("topk int32", topk(ints(1, 2)[None], 1, 2), REFUSED),
    ("topk with k > 3840", topk(torch.ones(1, 5000), 3841, 2), REFUSED),
    ("topk with k > dimension", topk(torch.ones(1, 4), 5, 2), REFUSED),
    ("topk NaN", topk(floats(1, NAN, 3)[None], 2, 2), (floats(3, 1)[None], ints(2, 0)[None])),
    ("linspace", fill((4,), 1.0, 2.0), floats(1, 3, 5, 7)),
    ("linspace int32", fill((4,), 1.0, 2.0, "INT32"), ints(1, 3, 5, 7)),
    ("linspace default", fill((4,)), floats(0, 1, 2, 3)),
    ("linspace of rank 2", fill((2, 2), 1.0, 2.0), REFUSED),
    (
        "float to int32",
        typed(cast(floats(1.9, -1.9, 2.5, INF, NAN), "INT32"), "INT32"),
        ints(1, -1, 2, 2147483647, 0),
    ),
    (
        "float to bool",
        typed(cast(floats(0.5, -1, 0, NAN), "BOOL"), "BOOL"),
        bools(True, True, False, True),
    ),
    ("int32 to bool", typed(cast(ints(2, 0, -1), "BOOL"), "BOOL"), bools(True, False, True)),
    ("bool to float", typed(cast(bools(True, False), "FLOAT"), "FLOAT"), floats(1, 0)),
    ("softmax of rank 1", softmax(floats(1, 2), 1), REFUSED),
    ("softmax of -inf", softmax(floats(-INF, -INF, -INF)[None], 2), floats(NAN, NAN, NAN)[None]),
    ("matmul rank mismatch", matmul(torch.ones(1, 2, 3), torch.ones(3, 4)), REFUSED),
    (
        "matmul batch broadcast",
        matmul(torch.ones(2, 2, 3), torch.ones(1, 3, 4)),
        torch.full((2, 2, 4), 3.0),
    ),
    ("matmul vector", matmul(torch.ones(3), torch.ones(3, 4), "VECTOR"), torch.full((4,), 3.0)),
    ("matmul int32", matmul(torch.ones(2, 3, dtype=I32), torch.ones(3, 4, dtype=I32)), REFUSED),
    # TensorRT 8.6 builds this and reads other elements; its documentation rules it out.
    ("einsum diagonal", einsum("ii->i", torch.diag(floats(0, 1))), REFUSED),
    ("einsum ellipsis", einsum("...i->...", torch.ones(2, 2)), REFUSED),
    ("einsum of three", einsum("ij,jk,kl->il", *[torch.ones(2, 2)] * 3), NONE),
    ("einsum broadcast", einsum("ij,ij->ij", torch.ones(2, 2), torch.ones(1, 2)), torch.ones(2, 2)),
    (
        "einsum product",
        einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 2)),
        torch.full((2, 2), 3.0),
    ),
    ("1-D convolution", convolution(torch.ones(1, 1, 5), (3,)), NONE),
    ("2-D convolution of rank 3", convolution(torch.ones(1, 5, 5), (3, 3)), REFUSED),
    (
        "pooling default stride",
        pooling("MAX", arange(1, 1, 4, 4)),
        floats(5, 6, 7, 9, 10, 11, 13, 14, 15).view(1, 1, 3, 3),
    ),
    (
        "average pooling excludes padding",
        pooling("AVERAGE", arange(1, 1, 4, 4), stride_nd=(2, 2), padding_nd=(1, 1)),
        floats(0, 1.5, 3, 6, 7.5, 9, 12, 13.5, 15).view(1, 1, 3, 3),
    ),
    (
        "average pooling includes padding",
        pooling(
            "AVERAGE",
            arange(1, 1, 4, 4),
            stride_nd=(2, 2),
            padding_nd=(1, 1),
            average_count_excludes_padding=False,
        ),
        floats(0, 0.75, 0.75, 3, 7.5, 4.5, 3, 6.75, 3.75).view(1, 1, 3, 3),
    ),
    (
        "pooling rounds up",
        pooling(
            "MAX", arange(1, 1, 4, 4)[..., :], stride_nd=(2, 2), padding_mode="EXPLICIT_ROUND_UP"
        ),
        floats(5, 7, 13, 15).view(1, 1, 2, 2),
    ),
    ("pooling of rank 3", pooling("MAX", torch.ones(1, 4, 4)), REFUSED),
    ("pooling int32", pooling("MAX", torch.ones(1, 1, 4, 4, dtype=I32)), REFUSED),
    ("reshape to (0, -1)", shuffle(torch.ones(2, 3, 4), (0, -1)), torch.ones(2, 12)),
    ("reshape with two -1", shuffle(torch.ones(2, 3), (-1, -1)), REFUSED),
    ("reshape to another volume", shuffle(torch.ones(2, 3), (5,)), REFUSED),
    ("reshape to a scalar", shuffle(torch.ones(1), ()), torch.tensor(1.0)),
    ("reshape (0, 3) to (0, 0)", shuffle(torch.ones(0, 3), (0, 0), zero_is_length=True), REFUSED),
    ("transpose of (0, 3)", shuffle(torch.ones(0, 3), first=(1, 0)), torch.ones(3, 0)),
    ("transpose, then reshape", shuffle(arange(2, 3), (6,), (1, 0)), floats(0, 3, 1, 4, 2, 5)),
    (
        "scatter ND",
        scatter(torch.zeros(3, 2), [[0], [2]], torch.ones(2, 2), "ND"),
        torch.tensor([[1.0, 1], [0, 0], [1, 1]]),
    ),
    (
        "scatter ELEMENT",
        scatter(torch.zeros(2, 3), [[0, 0, 0]], torch.tensor([[0.0, 0, 1]])),
        torch.tensor([[0.0, 0, 1], [0, 0, 0]]),
    ),
    (
        "scatter ELEMENT negative",
        scatter(torch.zeros(2, 3), [[-2, -2, -2]], torch.tensor([[0.0, 0, 1]])),
        torch.tensor([[0.0, 0, 1], [0, 0, 0]]),
    ),
    ("scatter bool", scatter(bools(False, False), [1], bools(True)), bools(False, True)),
    ("scatter duplicates", scatter(torch.zeros(3), [0, 1, 0], floats(6, 5, 7)), floats(7, 5, 0)),
    (
        "scatter ELEMENT smaller",
        scatter(torch.zeros(3, 3), [[0], [2]], torch.ones(2, 1)),
        torch.tensor([[1.0, 0, 0], [0, 0, 0], [1, 0, 0]]),
    ),
    (
        "select bool",
        select(bools(True, False), bools(True, True), bools(False, False)),
        bools(True, False),
    ),
    ("select rank mismatch", select(bools(True), torch.ones(2, 2), torch.ones(2, 2)), REFUSED),
    (
        "select broadcast",
        select(bools(True, False)[:, None], torch.ones(2, 2), torch.zeros(1, 1)),
        torch.tensor([[1.0, 1], [0, 0]]),
    ),
    ("concat scalars", concat(torch.tensor(1.0), torch.tensor(2.0)), REFUSED),
    ("concat mixed types", concat(floats(1), ints(1)), REFUSED),
    ("concat bool", concat(bools(True), bools(False)), bools(True, False)),
    ("concat empty", concat(torch.ones(0, 2), torch.ones(1, 2)), torch.ones(1, 2)),
    (
        "layer norm",
        normalization(arange(2, 4), torch.ones(1, 4), 2),
        floats(-1.3416, -0.4472, 0.4472, 1.3416).repeat(2, 1),
    ),
    (
        "group norm with [1, G, 1, 1]",
        normalization(arange(1, 4, 2, 2), torch.ones(1, 2, 1, 1), 0b1100, 2),
        torch.nn.functional.group_norm(arange(1, 4, 2, 2), 2),
    ),
    (
        "group norm with [1, C, 1, 1]",
        normalization(arange(1, 4, 2, 2), torch.ones(1, 4, 1, 1), 0b1100, 2),
        REFUSED,
    ),
    ("normalization rank mismatch", normalization(arange(2, 4), torch.ones(4), 2), REFUSED),
    ("shape", lambda n: n.net.add_shape(n.input(torch.ones(2, 3))), ints(2, 3)),
    (
        "prelu int32",
        lambda n: n.net.add_parametric_relu(n.input(ints(1)), n.input(ints(1))),
        REFUSED,
    ),
    (
        "resize LINEAR unset",
        resize("LINEAR", None, arange(1, 1, 1, 4), (1, 1, 1, 6)),
        floats(0, 0.5, 1.1667, 1.8333, 2.5, 3),
    ),
    (
        "resize NEAREST unset",
        resize("NEAREST", None, arange(1, 1, 1, 4), (1, 1, 1, 6)),
        floats(0, 0, 1, 2, 2, 3),
    ),
    (
        "resize NEAREST of four dimensions",
        resize("NEAREST", None, torch.ones(1, 1, 1, 4), (2, 2, 2, 6)),
        torch.ones(2, 2, 2, 6),
    ),
    (
        "resize int32",
        resize("NEAREST", None, torch.ones(1, 1, 1, 4, dtype=I32), (1, 1, 1, 6)),
        REFUSED,
    ),
    (
        "resize by scales",
        resize("NEAREST", None, arange(1, 1, 1, 4), scales=(1.0, 1.0, 1.0, 1.5)),
        floats(0, 0, 1, 2, 2, 3),
    ),
    (
        "resize LINEAR 2-D",
        resize("LINEAR", "ASYMMETRIC", arange(1, 1, 2, 2), (1, 1, 3, 3)),
        floats(0, 0.6667, 1, 1.3333, 2, 2.3333, 2, 2.6667, 3).view(1, 1, 3, 3),
    ),
    ("nonzero, static, without a profile", nonzero(torch.tensor([[1.0, 0], [0, 2]])), NO_CONTEXT),
    (
        "nonzero, static",
        nonzero(torch.tensor([[1.0, 0], [0, 2]])),
        torch.tensor([[0, 1], [0, 1]], dtype=I32),
    ),
    (
        "nonzero, dynamic",
        nonzero(torch.tensor([[1.0, 0], [0, 2]]), (-1, 2)),
        torch.tensor([[0, 1], [0, 1]], dtype=I32),
    ),
    (
        "nonzero bool",
        nonzero(torch.tensor([[True, False]]), (-1, 2)),
        torch.tensor([[0], [0]], dtype=I32),
    ),
    ("nonzero of zeros", nonzero(torch.zeros(2, 2), (-1, 2)), torch.empty(2, 0, dtype=I32)),
    ("scalar constant", lambda n: n.net.add_identity(n.const(3.0)), torch.tensor(3.0)),
    ("one-hot", one_hot, torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 1]])),
    ("1 against 0", elementwise("SUM", torch.ones(1, 3), torch.ones(0, 3)), torch.ones(0, 3)),
    ("empty SUM", reduce("SUM", torch.ones(0, 3)), floats(0, 0, 0)),
    ("empty PROD", reduce("PROD", torch.ones(0, 3)), floats(1, 1, 1)),
    ("empty MAX", reduce("MAX", torch.ones(0, 3)), floats(-INF, -INF, -INF)),
    ("empty MIN", reduce("MIN", torch.ones(0, 3)), floats(INF, INF, INF)),
    ("empty AVG", reduce("AVG", torch.ones(0, 3)), floats(NAN, NAN, NAN)),
    ("big int32 SUM", reduce("SUM", ints(16777217, 2)), ints(16777218)[0]),
    ("big int32 PROD", reduce("PROD", ints(16777217, 2)), ints(33554432)[0]),
    ("big int32 MIN", reduce("MIN", ints(16777217, 2)), ints(2)[0]),
    ("big int32 AVG", reduce("AVG", ints(16777217, 2)), ints(8388609)[0]),
    ("reduce MAX ignores NaN", reduce("MAX", floats(NAN, 3)), torch.tensor(3.0)),
    ("elementwise MAX of NaN", elementwise("MAX", floats(1, NAN), floats(NAN, 2)), floats(NAN, 2)),
    (
        "POW of negatives",
        elementwise("POW", floats(-2, -2, 0, 0), floats(2, 0.5, 0, -1)),
        floats(4, NAN, 1, INF),
    ),
    (
        "float FLOOR_DIV",
        elementwise("FLOOR_DIV", floats(7, -7, 1), floats(2, 2, 0)),
        floats(3, -4, INF),
    ),
    ("int32 divided by 0", elementwise("DIV", ints(1, -1), ints(0, 0)), ints(-1, -1)),
    ("int32 SUM wraps", elementwise("SUM", ints(2147483647), ints(1)), ints(-2147483648)),
    (
        "int32 PROD is exact",
        elementwise("PROD", ints(131073, 16777217), ints(1, 3)),
        ints(131073, 50331651),
    ),
    ("int32 EQUAL is exact", elementwise("EQUAL", ints(16777217), ints(16777216)), bools(False)),
    ("matmul over nothing", matmul(torch.ones(2, 0), torch.ones(0, 4)), torch.zeros(2, 4)),
    (
        "half output",
        typed(elementwise("SUM", floats(1, 2).half(), floats(1, 2).half()), "HALF"),
        floats(2, 4).half(),
    ),
    (
        "half input, float output",
        elementwise("SUM", floats(1, 2).half(), floats(1, 2).half()),
        floats(2, 4),
    ),
    ("cast to half", typed(cast(floats(1, 1e6), "HALF"), "HALF"), floats(1, INF).half()),
    ("int32 output of a float", typed(elementwise("SUM", floats(1), floats(1)), "INT32"), REFUSED),
    (
        "cast to int8 saturates",
        # Fractions are truncated by some kernels and rounded by others.
        typed(cast(floats(1, 300, -5), "INT8"), "INT8"),
        torch.tensor([1, 127, -5], dtype=torch.int8),
    ),
    ("bool output", elementwise("GREATER", floats(1, 0), floats(0, 1)), bools(True, False)),
    ("dynamic slice", dynamic_slice(2), torch.tensor([[2.0, 3], [4, 5]])),
    ("dynamic slice to nothing", dynamic_slice(0), torch.empty(0, 2)),
    ("shape FLOOR_DIV", of_shape("FLOOR_DIV"), ints(1, 1)),
    ("shape DIV", of_shape("DIV"), ints(1, 1)),
    ("shape PROD", of_shape("PROD"), ints(6, 4)),
    ("shape MAX", of_shape("MAX"), ints(3, 2)),
    ("shape POW", of_shape("POW"), REFUSED),
    ("shape EQUAL", of_shape("EQUAL"), bools(False, True)),
    (
        "deconvolution",
        deconvolution((1, 1), (1, 1)),
        floats(1, 2, 1, 2, 4, 2, 1, 2, 1).view(1, 1, 3, 3),
    ),
    (
        "deconvolution with output padding",
        deconvolution((1, 1), (0, 0)),
        floats(1, 2, 1, 1, 2, 4, 2, 2, 1, 2, 1, 1, 1, 2, 1, 1).view(1, 1, 4, 4),
    ),
    (
        "softmax along axis 0",
        softmax(torch.tensor([[0.0, 0.0], [0.0, 2.0]]), 1),
        torch.tensor([[0.5, 0.1192], [0.5, 0.8808]]),
    ),
    ("softmax of rank 5", softmax(torch.zeros(1, 2, 1, 1, 2), 2), torch.full((1, 2, 1, 1, 2), 0.5)),
    ("topk along axis 0 of rank 5", topk(torch.ones(2, 1, 1, 1, 1), 1, 1), REFUSED),
    (
        "topk argmax of ties",
        topk(floats(1, 3, 3)[None], 1, 2),
        (torch.tensor([[3.0]]), ints(1)[None]),
    ),
    ("topk of 3840 from 5000", topk_sum, torch.tensor([3840.0])),
    ("expand by stride 0", expanded, torch.ones(3, 2)),
    ("reshape to the product of a shape", flattened, arange(6)),
    ("dynamic int32 range", counted, ints(0, 1, 2, 3)),
    ("nonzero, then transpose", positions(True), torch.tensor([[0, 0], [1, 1]], dtype=I32)),
    ("nonzero, then gather", positions(False), floats(1, 2)),
    ("nms, static, without a profile", suppressed, NO_CONTEXT),
    ("half weights in a constant", half_constant, floats(2, 4)),
    ("TANH", activation("TANH"), torch.tanh(floats(-3, -1, 0, 0.5, 1, 3))),
    (
        "identity of nothing",
        lambda n: n.net.add_identity(n.input(torch.ones(0, 3))),
        torch.ones(0, 3),
    ),
    ("gather nothing", gather(torch.ones(3, 2), np.zeros((0,), np.int32)), torch.ones(0, 2)),
    (
        "reverse sequence",
        lambda n: reversed_rows(n),
        torch.tensor([[1.0, 0, 2], [5, 4, 3]]),
    ),
    ("half ERF", typed(unary("ERF", floats(0.5, 1).half()), "HALF"), floats(0.5205, 0.8427).half()),
    ("SQRT at the edges", unary("SQRT", floats(-1, 0, 2, -0.5)), floats(NAN, 0, 1.4142, NAN)),
    ("LOG at the edges", unary("LOG", floats(-1, 0, 2, -0.5)), floats(NAN, -INF, 0.6931, NAN)),
    ("RECIP at the edges", unary("RECIP", floats(-1, 0, 2, -0.5)), floats(-1, INF, 0.5, -2)),
    ("ASIN at the edges", unary("ASIN", floats(-1, 0, 2, -0.5)), floats(-1.5708, 0, NAN, -0.5236)),
    ("FLOOR at the edges", unary("FLOOR", floats(-1, 0, 2, -0.5)), floats(-1, 0, 2, -1)),
    ("grid sample NEAREST", grid_sample("NEAREST", False), floats(0, 5, 0).view(1, 1, 1, 3)),
    ("grid sample NEAREST aligned", grid_sample("NEAREST", True), floats(0, 5, 8).view(1, 1, 1, 3)),
    ("grid sample LINEAR", grid_sample("LINEAR", False), floats(0, 4.75, 0.32).view(1, 1, 1, 3)),
    (
        "grid sample LINEAR aligned",
        grid_sample("LINEAR", True),
        floats(0, 4.5, 5.12).view(1, 1, 1, 3),
    ),
    (
        "grid sample CUBIC",
        grid_sample("CUBIC", False),
        floats(-0.1875, 5.3359, 0.2647).view(1, 1, 1, 3),
    ),
    (
        "grid sample CUBIC aligned",
        grid_sample("CUBIC", True),
        floats(0, 5.0625, 5.7482).view(1, 1, 1, 3),
    ),
    (
        "grid sample LINEAR CLAMP",
        grid_sample("LINEAR", False, "CLAMP"),
        floats(0, 4.75, 8).view(1, 1, 1, 3),
    ),
    (
        "grid sample LINEAR REFLECT",
        grid_sample("LINEAR", False, "REFLECT"),
        floats(0, 4.75, 8).view(1, 1, 1, 3),
    ),
    ("loop LAST_VALUE", loop("LAST_VALUE", 3), floats(4, 8)),
    ("loop CONCATENATE", loop("CONCATENATE", 3), torch.tensor([[2.0, 4], [3, 6], [4, 8]])),
    ("loop REVERSE", loop("REVERSE", 3), REFUSED),
    ("loop without trips", loop("LAST_VALUE", 0), floats(1, 2)),
    ("running sum by a loop", cumulative_sum(None), torch.tensor([[0.0, 1], [2, 4], [6, 9]])),
    (
        "running sum by a dynamic loop",
        cumulative_sum((-1, 2)),
        torch.tensor([[0.0, 1], [2, 4], [6, 9]]),
    ),
    ("conditional, true", conditional(True), floats(2.7183, 7.3891)),
    ("conditional, false", conditional(False), floats(1, 2)),
    ("quantize and dequantize", quantize_dequantize, floats(0, 1, 1, 63.5, -64)),
    (
        "lrn",
        lambda n: n.net.add_lrn(n.input(torch.ones(1, 4, 1, 1)), 3, 1.0, 0.75, 1.0),
        floats(0.6817, 0.5946, 0.5946, 0.6817).view(1, 4, 1, 1),
    ),
]
RESIZED = {
    ("NEAREST", "ASYMMETRIC"): ([0, 0, 1, 2, 2, 3], [0, 1, 2]),
    ("NEAREST", "HALF_PIXEL"): ([0, 0, 1, 1, 2, 3], [0, 1, 2]),
    ("NEAREST", "ALIGN_CORNERS"): ([0, 0, 1, 1, 2, 3], [0, 1, 3]),
    ("LINEAR", "ASYMMETRIC"): ([0, 0.6667, 1.3333, 2, 2.6667, 3], [0, 1.3333, 2.6667]),
    ("LINEAR", "HALF_PIXEL"): ([0, 0.5, 1.1667, 1.8333, 2.5, 3], [0.1667, 1.5, 2.8333]),
    ("LINEAR", "ALIGN_CORNERS"): ([0, 0.6, 1.2, 1.8, 2.4, 3], [0, 1.5, 3]),
    ("CUBIC", "ASYMMETRIC"): ([0, 0.5741, 1.3704, 2, 2.7407, 3.1111], [0, 1.3704, 2.7407]),
    ("CUBIC", "HALF_PIXEL"): (
        [-0.0868, 0.4063, 1.2130, 1.7870, 2.5938, 3.0868],
        [0.1262, 1.5, 2.8738],
    ),
    ("CUBIC", "ALIGN_CORNERS"): ([0, 0.504, 1.248, 1.752, 2.496, 3], [0, 1.5, 3]),
}
for (mode, transformation), (larger, smaller) in RESIZED.items():
    for values in (larger, smaller):
        CASES.append(
            (
                f"resize {mode} {transformation} to {len(values)}",
                resize(mode, transformation, arange(1, 1, 1, 4), (1, 1, 1, len(values))),
                floats(*values),
            )
        )


def reversed_rows(n: Any) -> Any:
    """Two rows, of which the first two and all three elements are reversed."""
    layer = n.net.add_reverse_sequence(n.input(arange(2, 3)), n.input(ints(2, 3)))
    layer.batch_axis, layer.sequence_axis = 0, 1
    return layer


@pytest.mark.parametrize(("name", "make", "expected"), CASES, ids=[case[0] for case in CASES])
def test_the_reference_does_what_tensorrt_8_6_was_seen_to_do(
    bench: Any, name: str, make: Any, expected: Any
) -> None:
    """Acceptance, shape, type and values of one small network agree with the observation."""
    n = bench("8.6.0")
    layer = make(n)
    if expected is NONE:
        assert layer is None
        assert n.errors
        return
    outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
    if expected is REFUSED:
        assert n.plan(*outputs) is None
        assert any(layer.name in message for message in n.errors)
        return
    if expected is NO_CONTEXT:
        outputs[0].name = "o0"
        n.net.mark_output(outputs[0])
        plan = n.builder.build_serialized_network(n.net, n.config)
        assert (
            n.trt.Runtime(n.logger).deserialize_cuda_engine(plan).create_execution_context() is None
        )
        return
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for got, want in zip(n.run(*outputs), wanted, strict=True):
        assert got.dtype == want.dtype
        want = want.view(1, 1, 1, -1) if name.startswith("resize") and want.dim() == 1 else want
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4, equal_nan=True)


def test_a_profile_serves_one_context_unless_it_may_be_shared(bench: Any) -> None:
    """A second context has no profile; the real one crashes where its shapes are set."""
    for shared in (False, True):
        n = bench("8.6.0")
        x = n.net.add_input("x", n.trt.DataType.FLOAT, (-1,))
        n.net.mark_output(n.net.add_unary(x, n.trt.UnaryOperation.NEG).get_output(0))
        config = n.builder.create_builder_config()
        profile = n.builder.create_optimization_profile()
        profile.set_shape("x", (1,), (2,), (4,))
        config.add_optimization_profile(profile)
        config.set_preview_feature(n.trt.PreviewFeature.PROFILE_SHARING_0806, shared)
        plan = n.builder.build_serialized_network(n.net, config)
        engine = n.trt.Runtime(n.logger).deserialize_cuda_engine(plan)
        first, second = engine.create_execution_context(), engine.create_execution_context()
        assert first.set_input_shape("x", (3,))
        assert second.active_optimization_profile == (0 if shared else -1)
        assert second.set_input_shape("x", (3,)) is shared
        del first
        assert engine.create_execution_context().active_optimization_profile == 0
