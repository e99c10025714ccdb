"""Attention under a mask is scaled where its query is projected, if nothing else comes of that."""

import math

import pytest
import torch
from torch.nn import functional as F

import torchtrt
from torchtrt.conversion import arguments_of, constant_of
from torchtrt.testing import run_compiled

from .conftest import lowered_calls

WIDTH, LENGTH, HEADS, BATCH = 16, 5, 2, 3
SCALE = 1 / math.sqrt(WIDTH // HEADS)


def heads(x):
    """Returns ``(batch, heads, length, width)`` of ``(batch, length, width)``."""
    return x.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)


def attend(query, key, value, **arguments):
    """Returns causal attention, its heads put side by side."""
    arguments = {"is_causal": True, **arguments}
    result = F.scaled_dot_product_attention(heads(query), heads(key), heads(value), **arguments)
    return result.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)


class Attention(torch.nn.Module):
    """Projections, and attention to what a function makes of them."""

    def __init__(self, function, dtype=torch.float16):
        super().__init__()
        self.function = function
        self.packed = torch.nn.Linear(WIDTH, 3 * WIDTH, dtype=dtype)
        self.query = torch.nn.Linear(WIDTH, WIDTH, dtype=dtype)
        self.bare = torch.nn.Linear(WIDTH, WIDTH, bias=False, dtype=dtype)
        mask = torch.rand(LENGTH, LENGTH) > 0.4
        self.register_buffer("mask", mask | torch.eye(LENGTH, dtype=torch.bool))

    def forward(self, x):
        return self.function(self, x)


def addmm(model, x, **arguments):
    """As transformers' GPT-2 has its projections, transposed and over two dimensions."""
    weight, bias = model.packed.weight.t().contiguous(), model.packed.bias
    rows = torch.addmm(bias, x.reshape(-1, WIDTH), weight, **arguments)
    return attend(*rows.view(BATCH, LENGTH, -1).split(WIDTH, 2))


def sliced(model, x):
    """The parts of a projection as slices, the query last."""
    y = model.packed(x)
    return attend(y[..., 2 * WIDTH :], y[..., :WIDTH], y[..., WIDTH : 2 * WIDTH])


SCALED = {
    "a projection of its own": lambda m, x: attend(m.query(x), m.bare(x), x),
    "without a bias": lambda m, x: attend(m.bare(x), m.query(x), x),
    "chunks": lambda m, x: attend(*m.packed(x).chunk(3, -1)),
    "parts of given sizes": lambda m, x: attend(*m.packed(x).split([WIDTH] * 3, -1)),
    "slices": sliced,
    "a product and a sum": addmm,
    "a mask": lambda m, x: attend(*m.packed(x).chunk(3, -1), is_causal=False, attn_mask=m.mask),
    "a scale of one": lambda m, x: attend(m.query(x), m.bare(x), x, scale=1.0),
    "a scale of its own": lambda m, x: attend(m.query(x), m.bare(x), x, scale=0.01),
}
LEFT = {
    "no mask": lambda m, x: attend(m.query(x), m.bare(x), x, is_causal=False),
    "a scale above one": lambda m, x: attend(m.query(x), m.bare(x), x, scale=3.0),
    "a negative scale": lambda m, x: attend(m.query(x), m.bare(x), x, scale=-0.5),
    "no scale": lambda m, x: attend(m.query(x), m.bare(x), x, scale=0.0),
    "a query that is the key": lambda m, x: attend(y := m.query(x), y, x),
    "a query that is read": lambda m, x: attend(y := m.query(x), m.bare(x), x) + y,
    "a query that is rotated": lambda m, x: attend(m.query(x) * x, m.bare(x), x),
    "an input": lambda m, x: attend(x, m.bare(x), m.query(x)),
    "a projection that is read": lambda m, x: (
        attend(*(y := m.packed(x)).chunk(3, -1)) + y[..., :WIDTH]
    ),
    "slices that overlap": lambda m, x: attend(
        (y := m.packed(x))[..., :WIDTH], y[..., 8 : 8 + WIDTH], y[..., 2 * WIDTH :]
    ),
    "parts of rows": lambda m, x: attend(
        *m.query(torch.cat([x, x, x], 1)).split(LENGTH, 1), is_causal=True
    ),
    "a weighted sum": lambda m, x: addmm(m, x, beta=0.5),
    "a weight that is computed": lambda m, x: attend(
        F.linear(x, m.query.weight * x.mean()), m.bare(x), x
    ),
}


def the_call(op, model, x, **settings):
    """Returns the arguments of the only call of an op that is converted."""
    calls = lowered_calls(model, [x], min_block_size=1, **settings)
    (node,) = (call for call in calls if call.target is op)
    return arguments_of(node)


def scale_of(model, x, **settings):
    """Returns the scale that attention is converted with; None is PyTorch's own."""
    return the_call(torch.ops.aten.scaled_dot_product_attention.default, model, x, **settings).scale


@pytest.fixture(autouse=True)
def weakly_typed():
    """The TensorRT that it is for."""
    with torchtrt.use_tensorrt("reference@8.6.0"):
        yield


def check_values(model, x, **settings):
    """Checks an engine against the model in float32."""
    compiled = torchtrt.compile(model, [x], min_block_size=1, **settings)
    with torch.no_grad():
        wanted = model.float()(x.float())
    difference = (run_compiled(compiled, x).float() - wanted).abs().max()
    assert difference < 4e-3 * max(1, wanted.abs().max())


@pytest.mark.parametrize("name", SCALED)
def test_the_scale_moves_into_the_projection(name):
    """What is left of it is more than one, and up to two: then it may come behind the product."""
    torch.manual_seed(0)
    model = Attention(SCALED[name]).eval()
    x = torch.randn(BATCH, LENGTH, WIDTH).half()
    scale = {"a scale of its own": 0.01, "a scale of one": 1.0}.get(name, SCALE)
    left = scale_of(model, x)
    assert 1 < left <= 2
    assert math.log2(left / scale) == pytest.approx(round(math.log2(left / scale)))
    check_values(model, x)


@pytest.mark.parametrize("name", LEFT)
def test_the_scale_stays(name):
    """Where something else would be scaled as well, or nothing is to be gained."""
    torch.manual_seed(0)
    model = Attention(LEFT[name]).eval()
    x = torch.randn(BATCH, LENGTH, WIDTH).half()
    arguments = {"a scale above one": 3.0, "a negative scale": -0.5, "no scale": 0.0}
    assert scale_of(model, x) == arguments.get(name)
    if arguments.get(name, 1) > 0:  # PyTorch's own kernels multiply what is hidden: NaN
        check_values(model, x)


def test_it_is_for_float16_on_a_weakly_typed_tensorrt():
    """With autocast to it, too."""
    model = Attention(SCALED["chunks"], torch.float32).eval()
    x = torch.randn(BATCH, LENGTH, WIDTH)
    assert scale_of(model, x) is None
    assert 1 < scale_of(model, x, autocast=torch.float16) <= 2
    check_values(model, x, autocast=torch.float16)
    with torchtrt.use_tensorrt("reference@10.16.1"):
        assert scale_of(Attention(SCALED["chunks"]).eval(), x.half()) is None


def test_scaled_weights_can_be_replaced():
    """The factor is part of how the engine's weights follow from the model's."""
    torch.manual_seed(0)
    model, other = (Attention(SCALED["chunks"]).eval() for _ in range(2))
    other.mask = model.mask
    x = torch.randn(BATCH, LENGTH, WIDTH).half()
    compiled = torchtrt.compile(model, [x], min_block_size=1, immutable_weights=False)
    refitted = torchtrt.refit_module_weights(compiled, other)
    with torch.no_grad():
        torch.testing.assert_close(run_compiled(refitted, x), other(x), rtol=4e-3, atol=4e-3)


def test_large_weights_are_scaled_before_the_engine_runs():
    """By the factor, in the rows of the query and no others, and without a digit lost."""

    class Large(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.packed = torch.nn.Linear(256, 768, dtype=torch.float16)

        def forward(self, x):
            heads = (part.view(2, 4, 4, 64).transpose(1, 2) for part in self.packed(x).chunk(3, -1))
            return F.scaled_dot_product_attention(*heads, is_causal=True)

    model, x = Large().eval(), torch.randn(2, 4, 256).half()
    linear = the_call(torch.ops.aten.linear.default, model, x)
    for name in ("weight", "bias"):
        scaled, original = constant_of(getattr(linear, name)), getattr(model.packed, name)
        assert torch.equal(scaled[:256], original[:256] / 16)
        assert torch.equal(scaled[256:], original[256:])
