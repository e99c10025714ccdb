"""What computes behind a float16 layer, whose results a weakly typed network calls Float."""

import math

import pytest
import torch
from torch.nn import functional

import torchtrt
from torchtrt.testing import run_compiled
from torchtrt_blocks import scatter

from .test_pack import compile_everything

TABLE = torch.linspace(-1.0009, 2.0009, 8)
"""float32, with more digits than float16 has."""


class Residual(torch.nn.Module):
    """Convolutions, and what surrounds them."""

    def __init__(self):
        super().__init__()
        self.convolutions = torch.nn.ModuleList(
            torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)
        )
        self.norm = torch.nn.BatchNorm2d(4)
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        first, second, third = self.convolutions
        x = functional.max_pool2d(first(x).relu(), 2)
        x = (self.norm(second(x)) + x).relu()
        x = torch.cat([third(x) * 0.5, x.clamp(min=0.25)], -1)
        return self.linear(x.mean((2, 3))).softmax(-1)


def test_what_is_float16_is_not_cast_to_it(version, layers):
    """TensorRT computes a convolution, a sum and an activation in one kernel, if there is no cast between them."""
    torch.manual_seed(0)
    model, x = Residual().eval().half(), torch.randn(2, 4, 8, 8).half()
    compiled = compile_everything(model, x)
    assert "CAST" not in {layer.type.name for layer in layers}
    torch.testing.assert_close(compiled(x), model(x), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("groups", [None, 2], ids=["batch", "groups"])
def test_a_normalization_scales_channels_by_weights_of_one_type(version, groups, dtype):
    """TensorRT 10 and 11 refuse a Scale layer whose power is Float beside a factor of Half, even if it is empty."""
    if dtype is torch.bfloat16 and version == "reference@8.6.0":
        pytest.skip("TensorRT 8.6 has no bfloat16")
    torch.manual_seed(0)
    norm = torch.nn.GroupNorm(groups, 4) if groups else torch.nn.BatchNorm2d(4)
    torch.nn.init.uniform_(norm.weight)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), norm, torch.nn.ReLU()).eval().to(dtype)
    x = torch.randn(2, 3, 8, 8, dtype=dtype)

    actual = run_compiled(compile_everything(model, x), x)

    torch.testing.assert_close(actual, model(x), rtol=2e-2, atol=2e-2)


def test_what_has_no_deconvolution_of_bfloat16_computes_it_in_float32(layers):
    """TensorRT for RTX 1.7 has none: PyTorch rounds the same sums once."""
    lacks = {"disabled_capabilities": ["BFLOAT16_DECONVOLUTION"]}
    torch.manual_seed(0)
    model = torch.nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1).bfloat16()
    x = torch.randn(2, 3, 5, 5, dtype=torch.bfloat16)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        actual = torchtrt.compile(model.eval(), [x], require_full_compilation=True, **lacks)(x)

    (layer,) = (layer for layer in layers if layer.type.name == "DECONVOLUTION")
    assert layer.get_output(0).dtype.name == "FLOAT"
    torch.testing.assert_close(actual, model(x), rtol=2e-2, atol=2e-2)


class AddsRows(torch.nn.Module):
    """Rows that are added to those of another tensor."""

    def forward(self, x, index, rows):
        return x.index_add(0, index, rows)


def test_half_precision_is_scattered_without_a_loop_where_float32_is(version, layers):
    """It computes in float32, and a cast keeps what is known of sizes that vary."""
    rows, columns = torch.export.Dim("rows", max=8), torch.export.Dim("columns", max=8)
    x, source = torch.randn(5, 3).half(), torch.randn(4, 3).half()
    inputs = (x, torch.tensor([0, 2, 2, 4]), source)
    sizes = ({1: columns}, {0: rows}, {0: rows, 1: columns})
    exported = torch.export.export(AddsRows(), inputs, dynamic_shapes=sizes)

    compiled = torchtrt.compile(exported, require_full_compilation=True)

    assert "ITERATOR" not in {layer.type.name for layer in layers}
    torch.testing.assert_close(run_compiled(compiled, *inputs), AddsRows()(*inputs))


def test_no_reshape_reads_an_iterator_of_a_loop_over_sources(version, layers, monkeypatch):
    """TensorRT for RTX 1.7 builds none of an iterator whose tensor is cast, as half precision is."""
    monkeypatch.setattr(scatter, "DENSE_LIMIT", 0)
    x, rows = torch.randn(5, 3).half(), torch.randn(4, 3).half()
    inputs = (x, torch.tensor([0, 2, 2, 4]), rows)
    compiled = compile_everything(AddsRows().eval(), *inputs)

    elements = {layer.get_output(0).name for layer in layers if layer.type.name == "ITERATOR"}
    reshaped = {layer.get_input(0).name for layer in layers if layer.type.name == "SHUFFLE"}
    assert elements
    assert not elements & reshaped
    torch.testing.assert_close(run_compiled(compiled, *inputs), x.index_add(0, *inputs[1:]))


def test_a_loop_over_sources_takes_the_most_dimensions(version, monkeypatch):
    """TensorRT has eight, so that none can be added in front of the loop."""
    monkeypatch.setattr(scatter, "DENSE_LIMIT", 0)
    x, rows = (torch.randn(size, *[1] * 6, 3).half() for size in (5, 4))
    inputs = (x, torch.tensor([0, 2, 2, 4]), rows)
    compiled = compile_everything(AddsRows().eval(), *inputs)

    torch.testing.assert_close(run_compiled(compiled, *inputs), x.index_add(0, *inputs[1:]))


class Behind(torch.nn.Module):
    """A function of what a linear layer copies, so that all that is inexact is the function's."""

    def __init__(self, function):
        super().__init__()
        self.copy = torch.nn.Linear(8, 8)
        torch.nn.init.eye_(self.copy.weight)
        torch.nn.init.zeros_(self.copy.bias)
        self.half().requires_grad_(False)
        self.function = function

    def forward(self, x):
        return self.function(self.copy(x))


def check(function, x, **tolerances):
    """Compiles a function behind a float16 layer, and compares its results with PyTorch's."""
    model = Behind(function).eval()
    compiled = compile_everything(model, x)
    torch.testing.assert_close(compiled(x), model(x), equal_nan=True, **tolerances)


@pytest.mark.parametrize(
    "function",
    [
        lambda v: v + TABLE,
        lambda v: v * (TABLE * 1000),
        lambda v: torch.where(v > 0, v, TABLE),
        lambda v: torch.cat([v, TABLE[None]]),
        lambda v: torch.stack([v[0], TABLE]),
        lambda v: torch.maximum(v, TABLE),
        lambda v: torch.atan2(v, TABLE),
        lambda v: v > TABLE,
        lambda v: v.float() * v.float() == math.inf,
    ],
)
def test_what_pytorch_promotes_to_float32_is_computed_in_it(version, function):
    """Of an operand in float16 and one in float32, and what checks only float32."""
    torch.manual_seed(0)
    check(function, (torch.randn(4, 8) * 1000).half(), rtol=2e-6, atol=2e-6)


def _conditional(v):
    return torch.cond(
        v.sum() > 0,
        lambda v, w: v * 1.0009 + TABLE,
        lambda v, w: w - TABLE,
        (v.float(), v.float() * v.float()),
    )


def _loop(v):
    return torch.while_loop(
        lambda i, x, total: i < 5,
        lambda i, x, total: (i + 1, x * 0.9, total + x.float() * x.float()),
        (torch.tensor(0), v, v.float() * 0),
    )


@pytest.mark.parametrize("control", [_conditional, _loop])
def test_branches_and_loops_keep_both(version, control):
    """What is float32 in them keeps its digits beside what is float16."""
    torch.manual_seed(0)
    x = (torch.randn(4, 8) * 1000).half()
    model = Behind(control).eval()
    compiled = torchtrt.compile(model, [x], min_block_size=1)
    torch.testing.assert_close(compiled(x), model(x), rtol=2e-6, atol=2e-6)


def _overflowing_loop(v):
    return torch.while_loop(
        lambda i, x, beyond: i < 2,
        lambda i, x, beyond: (i + 1, x * 1.0, beyond | torch.isinf(x.abs() * x)),
        (torch.tensor(0), v, v > math.inf),
    )


def _square_of_looped(v):
    _, looped = torch.while_loop(
        lambda i, x: i < 2, lambda i, x: (i + 1, x * 1.0), (torch.tensor(0), v)
    )
    return torch.isinf(looped * looped)


@pytest.mark.parametrize("control", [_overflowing_loop, _square_of_looped])
def test_what_comes_around_a_loop_is_float16_in_it_and_behind_it(version, control):
    """Beyond its range it is infinite, although a weakly typed network carries it as float32."""
    torch.manual_seed(0)
    x = (torch.randn(4, 8) * 300).half()
    model = Behind(control).eval()
    compiled = torchtrt.compile(model, [x], min_block_size=1)
    torch.testing.assert_close(compiled(x), model(x), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "function",
    [
        lambda v: torch.div(v, 0.003, rounding_mode="floor"),
        lambda v: torch.div(v, 0.03, rounding_mode="trunc"),
        lambda v: torch.fmod(v * 64, 0.003),
        lambda v: torch.remainder(v, 0.003),
        lambda v: torch.round(v, decimals=2),
        lambda v: v * 1e-3 * 1e5,
        lambda v: v / 1e-8 * 0,
        lambda v: (v * 100000.0).clamp(max=1000.0),
        lambda v: functional.max_pool2d(
            v.reshape(1, 2, 4, 4).masked_fill(v.reshape(1, 2, 4, 4) < 9, -math.inf), 2
        ),
        lambda v: v.scatter_reduce(0, torch.zeros(4, 8).long(), v * 1000, "mean"),
        lambda v: v.index_add(0, torch.zeros(4).long(), v * 1000),
        lambda v: torch.logcumsumexp(v * 4000, 0),
        lambda v: torch.linalg.vector_norm(v.gather(0, torch.zeros(4, 8).long()) * 300, dim=-1),
    ],
)
def test_float16_is_computed_in_float32_where_pytorch_does(version, function):
    """Quotients that are rounded, numbers beyond float16, sums."""
    torch.manual_seed(0)
    check(function, torch.randn(4, 8).half(), rtol=2e-3, atol=2e-3)
