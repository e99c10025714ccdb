"""Small networks that TensorRT 8.6.0 was watched with, and the comparison with what it did.

What is expected is ``REFUSED`` (the build fails), ``NONE`` (``add_*`` returns None), ``NO_CONTEXT`` or the outputs'
shapes, types and values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
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


def with_attributes(layer: Any, **attributes: Any) -> Any:
    """Returns a layer after setting its attributes in this order, those that are None excepted."""
    for name, value in attributes.items():
        if value is not None:
            setattr(layer, name, value)
    return layer


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
    return lambda n: with_attributes(
        n.net.add_activation(
            n.input(floats(-3, -1, 0, 0.5, 1, 3)), getattr(n.trt.ActivationType, kind)
        ),
        alpha=alpha,
        beta=beta,
    )


def cast(x: torch.Tensor, target: str) -> Any:
    """A case of a cast."""
    return lambda n: n.net.add_cast(n.input(x), getattr(n.trt.DataType, target))


def gather(
    x: torch.Tensor, index: Any, mode: str = "DEFAULT", axis: int = 0, shape: Any = None
) -> Any:
    """A case of a gather."""
    return lambda n: with_attributes(
        n.net.add_gather_v2(
            n.input(x, shape), n.const(index, np.int32), getattr(n.trt.GatherMode, mode)
        ),
        axis=None if mode == "ND" else axis,
    )


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
    return lambda n: with_attributes(n.net.add_softmax(n.input(x)), axes=axes)


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
    return lambda n: with_attributes(
        n.net.add_shuffle(n.input(x)),
        zero_is_placeholder=not zero_is_length,
        first_transpose=first,
        reshape_dims=dims,
    )


def scatter(
    x: torch.Tensor, index: Any, updates: torch.Tensor, mode: str = "ELEMENT", axis: int = 0
) -> Any:
    """A case of Scatter."""
    return lambda n: with_attributes(
        n.net.add_scatter(
            n.input(x), n.const(index, np.int32), n.input(updates), getattr(n.trt.ScatterMode, mode)
        ),
        axis=axis,
    )


def concat(*pieces: torch.Tensor, axis: int = 0) -> Any:
    """A case of Concatenation."""
    return lambda n: with_attributes(
        n.net.add_concatenation([n.input(piece) for piece in pieces]), axis=axis
    )


def select(condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
    """A case of Select."""
    return lambda n: n.net.add_select(n.input(condition), n.input(a), n.input(b))


def normalization(x: torch.Tensor, scale: torch.Tensor, axes: int, groups: int = 1) -> Any:
    """A case of Normalization with zero bias."""
    return lambda n: with_attributes(
        n.net.add_normalization(n.input(x), n.const(scale), n.const(torch.zeros_like(scale)), axes),
        num_groups=groups,
    )


def resize(
    mode: str, transformation: str | None, x: torch.Tensor, shape: Any = None, scales: Any = None
) -> Any:
    """A case of Resize."""
    return lambda n: with_attributes(
        n.net.add_resize(n.input(x)),
        resize_mode=getattr(n.trt.InterpolationMode, mode),
        coordinate_transformation=transformation
        and getattr(n.trt.ResizeCoordinateTransformation, transformation),
        shape=shape,
        scales=scales,
    )


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
    """One row repeated by the value of a shape tensor."""
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
    """Rows of a matrix, as many as the value of a shape tensor."""

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


def reversed_rows(n: Any) -> Any:
    """Two rows, of which the first two and all three elements are reversed."""
    layer = n.net.add_reverse_sequence(n.input(arange(2, 3)), n.input(ints(2, 3)))
    layer.batch_axis, layer.sequence_axis = 0, 1
    return layer


def assert_observed(bench: Any, name: str, make: Any, expected: Any) -> None:
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
