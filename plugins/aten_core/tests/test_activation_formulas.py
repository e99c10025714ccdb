"""What models write out as a formula is converted as the op that it is."""

import math

import pytest
import torch

import torchtrt
from tests.support.modules import Function
from torchtrt.testing import run_compiled

SCALE = math.sqrt(2 / math.pi)


def as_published(x):
    """The formula as models of ``transformers`` have it, by the name of gelu_new."""
    return 0.5 * x * (1.0 + torch.tanh(SCALE * (x + 0.044715 * torch.pow(x, 3.0))))


def as_products(x):
    """The same in another order, with products for the power."""
    return (torch.tanh((x * x * x * 0.044715 + x) * 0.79788) + 1) * x * 0.5


UNLIKE = {
    "another factor of the cube": lambda x: (
        0.5 * x * (1.0 + torch.tanh(SCALE * (x + 0.0447 * x**3)))
    ),
    "another scale": lambda x: 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.044715 * x**3))),
    "a square": lambda x: 0.5 * x * (1.0 + torch.tanh(SCALE * (x + 0.044715 * x**2))),
    "twice as much": lambda x: x * (1.0 + torch.tanh(SCALE * (x + 0.044715 * x**3))),
    "less one": lambda x: 0.5 * x * (torch.tanh(SCALE * (x + 0.044715 * x**3)) - 1.0),
    "of two tensors": lambda x: 0.5 * x.flip(0) * (1.0 + torch.tanh(SCALE * (x + 0.044715 * x**3))),
    "a scaled sum": lambda x: (
        0.5 * x * (1.0 + torch.tanh(SCALE * torch.add(x, 0.044715 * x**3, alpha=2)))
    ),
    "of complex numbers": lambda x: torch.view_as_real(torch.tanh(x) * (x * 1j * 0.5)),
    "a curve that is read again": lambda x: (
        (curve := torch.tanh(SCALE * (x + 0.044715 * x**3))) + 0.5 * x * (1.0 + curve)
    ),
    "a wider factor": lambda x: (
        (0.5 * x.half().float()) * (1.0 + torch.tanh(SCALE * (x.half() + 0.044715 * x.half() ** 3)))
    ),
}


def compiled_alone(function, x, **settings):
    """Returns a function compiled into an engine, however small."""
    return torchtrt.compile(Function(function).eval(), [x], min_block_size=1, **settings)


def ops_of(function, x):
    """Returns the ops that are converted."""
    dry = compiled_alone(function, x, dryrun=True)
    (block,) = (m for m in dry.graph_module.children() if isinstance(m, torch.fx.GraphModule))
    return [n.target for n in block.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("function", [as_published, as_products])
def test_the_formula_of_gelu_is_gelu(function, dtype):
    """One op, with the formula's values, on every TensorRT."""
    x = torch.linspace(-6, 6, 101, dtype=dtype)
    assert ops_of(function, x) == [torch.ops.aten.gelu.default]
    for version in ("8.6.0", "10.16.1", "11.4.0"):
        with torchtrt.use_tensorrt(f"reference@{version}"):
            result = run_compiled(compiled_alone(function, x), x)
        tolerance = 3e-3 if dtype is torch.float16 else 2e-5
        torch.testing.assert_close(result, function(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", UNLIKE)
def test_what_is_like_it_is_not(name):
    """Another number, another tensor, or a part that something else reads."""
    x = torch.linspace(-6, 6, 101)
    assert torch.ops.aten.gelu.default not in ops_of(UNLIKE[name], x)
    result = run_compiled(compiled_alone(UNLIKE[name], x), x)
    torch.testing.assert_close(result, UNLIKE[name](x), rtol=2e-3, atol=2e-3)


def test_a_long_product_is_looked_at_in_no_time():
    """However many factors it has, it is none of the formula's."""

    def long(x):
        y = torch.tanh(x)
        for _ in range(1500):
            y = y * x
        return y

    assert len(ops_of(long, torch.rand(3))) == 1501
