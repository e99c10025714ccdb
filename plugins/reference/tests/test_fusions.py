"""A build makes fewer, faster layers of many, and the values stay."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch


def rand(*shape: int) -> torch.Tensor:
    """Reproducible random numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def built(n: Any, output: Any) -> tuple[list[str], torch.Tensor]:
    """The operations of the built graph, and the output's value."""
    context = n.context(output)
    engine = context.engine
    result = torch.empty(tuple(context.get_tensor_shape("o0")))
    context.set_tensor_address("o0", result.data_ptr())
    assert context.execute_async_v3(0), n.errors
    return [node.operation for node in engine._description.graph.nodes], result


def sum_of(n: Any, a: Any, b: Any) -> Any:
    """``a + b``."""
    return n.net.add_elementwise(a, b, n.trt.ElementWiseOperation.SUM).get_output(0)


def product_of(n: Any, a: Any, b: Any) -> Any:
    """``a * b``, element by element."""
    return n.net.add_elementwise(a, b, n.trt.ElementWiseOperation.PROD).get_output(0)


def matrix_product(n: Any, a: Any, b: Any, op1: str = "NONE") -> Any:
    """``a @ b``, with ``b`` transposed or not."""
    operation = n.trt.MatrixOperation
    return n.net.add_matrix_multiply(a, operation.NONE, b, getattr(operation, op1)).get_output(0)


@pytest.mark.parametrize("op1", ["NONE", "TRANSPOSE"])
def test_a_product_with_a_constant_and_a_bias_is_one_linear_layer(
    version: str, op1: str, bench: Any
) -> None:
    """Both layouts of the weight, with the leading dimensions that equal rank demands."""
    n = bench(version)
    x, weight, bias = rand(2, 5, 4), rand(1, 4, 3), rand(1, 1, 3)
    stored = weight if op1 == "NONE" else weight.mT.contiguous()
    product = matrix_product(n, n.input(x, (-1, 5, 4)), n.const(stored), op1)
    operations, result = built(n, sum_of(n, n.const(bias), product))
    assert operations == ["linear"]
    torch.testing.assert_close(result, x @ weight + bias)


def test_a_bias_along_another_dimension_stays_a_sum(version: str, bench: Any) -> None:
    """Only a row per output feature is a linear layer's bias."""
    n = bench(version)
    x, weight, bias = rand(3, 4), rand(4, 3), rand(3, 1)
    operations, result = built(
        n, sum_of(n, matrix_product(n, n.input(x), n.const(weight)), n.const(bias))
    )
    assert operations == ["linear", "elementwise"]
    torch.testing.assert_close(result, x @ weight + bias)


@pytest.mark.parametrize("where", ["query", "key", "scores", "nowhere"])
def test_product_softmax_product_is_one_attention(version: str, where: str, bench: Any) -> None:
    """The scale may be applied anywhere before the softmax."""
    n = bench(version)
    q, k, v = rand(2, 3, 5, 8), rand(2, 3, 6, 8), rand(2, 3, 6, 4)
    query, key, value = n.input(q), n.input(k), n.input(v)
    factor = n.const(np.full((1, 1, 1, 1), 0.25))
    query = product_of(n, query, factor) if where == "query" else query
    key = product_of(n, factor, key) if where == "key" else key
    scores = matrix_product(n, query, key, "TRANSPOSE")
    scores = product_of(n, scores, factor) if where == "scores" else scores
    softmax = n.net.add_softmax(scores)
    softmax.axes = 1 << 3
    operations, result = built(n, matrix_product(n, softmax.get_output(0), value))
    assert operations == ["scaled_dot_product"]
    scale = 1.0 if where == "nowhere" else 0.25
    torch.testing.assert_close(result, torch.softmax(q @ k.mT * scale, -1) @ v)


def attend(n: Any, query: Any, scores: Any) -> Any:
    """``softmax(scores) @ query``."""
    softmax = n.net.add_softmax(scores)
    softmax.axes = 1 << 3
    return matrix_product(n, softmax.get_output(0), query)


def scalar(n: Any, number: float) -> Any:
    """A constant that broadcasts against anything of rank 4."""
    return n.const(np.full((1, 1, 1, 1), number))


LOWEST = float(np.finfo(np.float32).min / 2)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("batch", [1, 2])
def test_an_attention_that_selects_by_a_mask_is_one_attention(
    version: str, keeps: bool, batch: int, bench: Any
) -> None:
    """Hidden scores become a huge negative number; a row that is hidden entirely stays uniform."""
    n = bench(version)
    q, mask = rand(1, 3, 5, 8), rand(batch, 1, 5, 5) > 0
    mask[0, 0, 1] = False
    x, condition = n.input(q), n.input(mask if keeps else ~mask)
    scores, lowest = matrix_product(n, x, x, "TRANSPOSE"), scalar(n, LOWEST)
    branches = (scores, lowest) if keeps else (lowest, scores)
    selected = n.net.add_select(condition, *branches).get_output(0)
    operations, result = built(n, attend(n, x, selected))
    assert operations == ["select", "scaled_dot_product"]
    torch.testing.assert_close(
        result, torch.softmax((q @ q.mT).where(mask, torch.tensor(LOWEST)), -1) @ q
    )
    torch.testing.assert_close(result[0, :, 1], q[0].mean(-2))


@pytest.mark.parametrize("number", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("kind", ["select", "add", "none"])
def test_an_attention_of_numbers_that_are_not_finite_is_that_of_its_layers(
    version: str, kind: str, number: float, bench: Any
) -> None:
    """A selection hides them, a sum does not, and a row with NaN is NaN."""
    n = bench(version)
    q, k, mask = rand(1, 1, 3, 4), rand(1, 1, 3, 4), torch.ones(3, 3).tril().bool()[None, None]
    k[0, 0, 2, 1] = number
    bias = torch.where(mask, 0.0, LOWEST)
    x = n.input(k)
    scores = matrix_product(n, n.input(q), x, "TRANSPOSE")
    expected = q @ k.mT
    if kind == "select":
        scores = n.net.add_select(n.input(mask), scores, scalar(n, LOWEST)).get_output(0)
        expected = expected.where(mask, torch.tensor(LOWEST))
    elif kind == "add":
        scores = sum_of(n, scores, n.const(bias))
        expected = expected + bias
    operations, result = built(n, attend(n, x, scores))
    assert "scaled_dot_product" in operations
    torch.testing.assert_close(result, torch.softmax(expected, -1) @ k, equal_nan=True)


def test_layers_with_one_mask_share_what_is_made_of_it(version: str, bench: Any) -> None:
    """Equal layers are computed once."""
    n = bench(version)
    q, mask = rand(2, 3, 5, 8), rand(2, 1, 5, 5) > 0
    x, condition = n.input(q), n.input(mask)
    output = x
    for _ in range(2):
        scores = matrix_product(n, output, output, "TRANSPOSE")
        selected = n.net.add_select(condition, scores, scalar(n, LOWEST)).get_output(0)
        output = attend(n, output, selected)
    operations, result = built(n, output)
    assert operations == ["select", "scaled_dot_product", "scaled_dot_product"]
    for _ in range(2):
        q = torch.softmax((q @ q.mT).where(mask, torch.tensor(LOWEST)), -1) @ q
    torch.testing.assert_close(result, q)


@pytest.mark.parametrize("number", [-1e4, -math.inf])
def test_a_mask_whose_number_is_no_floor_keeps_attention_apart(
    version: str, number: float, bench: Any
) -> None:
    """Scores show through a small number, and -inf makes NaN of a row that is hidden entirely, unless it is 8.6's."""
    n = bench(version)
    read = max(number, -1e38) if version.startswith("8.") else number
    q, mask = rand(1, 1, 2, 4), torch.tensor([[[[True, True], [False, False]]]])
    x = n.input(q)
    scores = matrix_product(n, x, x, "TRANSPOSE")
    selected = n.net.add_select(n.input(mask), scores, scalar(n, number)).get_output(0)
    operations, result = built(n, attend(n, x, selected))
    assert "scaled_dot_product" not in operations
    expected = torch.softmax((q @ q.mT).where(mask, torch.tensor(read)), -1) @ q
    torch.testing.assert_close(result, expected, equal_nan=True)


def test_a_mask_that_was_clamped_is_added_inside_the_attention(version: str, bench: Any) -> None:
    """A maximum with a number leaves no -inf."""
    n = bench(version)
    q, mask = rand(1, 2, 2, 4), torch.tensor([[[[0.0, 0.5], [-math.inf, -math.inf]]]])
    x, maximum = n.input(q), n.trt.ElementWiseOperation.MAX
    clamped = n.net.add_elementwise(n.input(mask), scalar(n, LOWEST), maximum).get_output(0)
    total = sum_of(n, clamped, matrix_product(n, x, x, "TRANSPOSE"))
    operations, result = built(n, attend(n, x, total))
    assert operations == ["elementwise", "scaled_dot_product"]
    torch.testing.assert_close(result, torch.softmax(q @ q.mT + mask.clamp(min=LOWEST), -1) @ q)


def test_a_mask_that_may_be_infinite_keeps_attention_apart(version: str, bench: Any) -> None:
    """A row that is masked entirely is NaN, as TensorRT's softmax makes it."""
    n = bench(version)
    q, mask = rand(1, 1, 2, 4), torch.tensor([[[[0.0, 0.0], [-math.inf, -math.inf]]]])
    x = n.input(q)
    total = sum_of(n, matrix_product(n, x, x, "TRANSPOSE"), n.input(mask))
    operations, result = built(n, attend(n, x, total))
    assert "scaled_dot_product" not in operations
    assert bool(result[0, 0, 1].isnan().all())


@pytest.mark.parametrize("two_dimensional", [True, False])
def test_a_scale_per_channel_disappears_in_its_convolution(
    version: str, two_dimensional: bool, bench: Any
) -> None:
    """Scale and shift become part of kernel and bias."""
    n = bench(version)
    size = (3, 3) if two_dimensional else (2, 2, 2)
    x, kernel, bias = rand(1, 2, *[5] * len(size)), rand(4, 2, *size), rand(4)
    scale, shift = rand(4).abs(), rand(4)
    weights = [n.trt.Weights(tensor.numpy()) for tensor in (kernel, bias, shift, scale)]
    layer = n.net.add_convolution_nd(n.input(x), 4, size, weights[0], weights[1])
    scaled = n.net.add_scale_nd(
        layer.get_output(0), n.trt.ScaleMode.CHANNEL, weights[2], weights[3], n.trt.Weights(), 1
    )
    operations, result = built(n, scaled.get_output(0))
    assert operations == ["convolution"]
    convolve = torch.nn.functional.conv2d if two_dimensional else torch.nn.functional.conv3d
    view = (1, 4, *[1] * len(size))
    expected = convolve(x, kernel, bias) * scale.view(view) + shift.view(view)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_a_tensor_with_another_reader_is_kept(version: str, bench: Any) -> None:
    """What is an output cannot be fused away."""
    n = bench(version)
    x, weight, bias = rand(2, 4), rand(4, 3), rand(1, 3)
    product = matrix_product(n, n.input(x), n.const(weight))
    first, second = n.run(product, sum_of(n, product, n.const(bias)))
    torch.testing.assert_close(first, x @ weight)
    torch.testing.assert_close(second, x @ weight + bias)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_graph_of_a_gelu_is_one_activation(version: str, order: int, bench: Any) -> None:
    """``0.5 * x * (1 + erf(x / sqrt(2)))`` in whichever order it is written."""
    n = bench(version)
    x = n.input(rand(3, 4))
    half, one, root = (n.const(np.full((1, 1), value)) for value in (0.5, 1.0, math.sqrt(0.5)))
    erf = n.net.add_unary(product_of(n, x, root), n.trt.UnaryOperation.ERF).get_output(0)
    shifted = sum_of(n, one, erf)
    if order == 0:
        output = product_of(n, product_of(n, x, half), shifted)
    elif order == 1:
        output = product_of(n, half, product_of(n, shifted, x))
    else:
        output = product_of(n, x, product_of(n, half, shifted))
    operations, result = built(n, output)
    assert operations == ["activation"]
    torch.testing.assert_close(result, torch.nn.functional.gelu(rand(3, 4)))


def test_the_graph_of_a_gelu_by_tanh_is_one_activation(version: str, bench: Any) -> None:
    """``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))``."""
    n = bench(version)
    x = n.input(rand(3, 4))
    half, one, bend, root = (
        n.const(np.full((1, 1), value)) for value in (0.5, 1.0, 0.044715, math.sqrt(2 / math.pi))
    )
    cube = product_of(n, product_of(n, x, x), x)
    inner = product_of(n, sum_of(n, x, product_of(n, cube, bend)), root)
    curve = n.net.add_activation(inner, n.trt.ActivationType.TANH).get_output(0)
    operations, result = built(n, product_of(n, product_of(n, x, half), sum_of(n, curve, one)))
    assert operations == ["activation"]
    expected = torch.nn.functional.gelu(rand(3, 4), approximate="tanh")
    torch.testing.assert_close(result, expected)


def test_random_numbers_are_drawn_for_each_layer(version: str, bench: Any) -> None:
    """Equal layers are merged only where equal inputs give equal outputs."""
    n = bench(version)
    draw = n.trt.FillOperation.RANDOM_UNIFORM
    first, second = (n.net.add_fill((64,), draw).get_output(0) for _ in range(2))
    one, other = n.run(first, second)
    assert not torch.equal(one, other)


def test_constant_arithmetic_is_folded(version: str, bench: Any) -> None:
    """What depends on constants alone is not in the engine."""
    n = bench(version)
    exp = n.trt.UnaryOperation.EXP
    constant = n.net.add_unary(n.const([[1.0, 2.0]]), exp).get_output(0)
    operations, result = built(n, sum_of(n, n.input(rand(1, 2)), constant))
    assert operations == ["elementwise"]
    torch.testing.assert_close(result, rand(1, 2) + torch.tensor([[1.0, 2.0]]).exp())
