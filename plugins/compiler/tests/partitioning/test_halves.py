"""On TensorRT 8.6, an engine without convolutions reads and writes few float16 tensors."""

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt_compiler.partitioning.division import MOST_HALVES

WIDTH, PLACES = 16, 8


class Step(nn.Module):
    """Layers that attend to a cache each, and return what is new in it."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(layers))

    def prepared(self, caches):
        return caches

    def forward(self, x, *caches):
        new = []
        for layer, cache in zip(self.layers, self.prepared(caches), strict=True):
            query, key, value = layer(x).chunk(3, -1)
            scores = torch.softmax(query @ torch.cat((cache, key), 1).transpose(1, 2), -1)
            x = torch.tanh(x + scores @ torch.cat((cache, value), 1))
            new.append(key)
        return x, *new


class PreparedFirst(Step):
    """Reads all caches before the first layer."""

    def prepared(self, caches):
        return [cache * 2 for cache in caches]


class WithConvolution(Step):
    """Has a convolution before the layers."""

    def __init__(self, layers):
        super().__init__(layers)
        self.convolution = nn.Conv1d(1, 1, 3, padding=1)

    def forward(self, x, *caches):
        return super().forward(self.convolution(x), *caches)


class Joined(nn.Module):
    """Reads many tensors and multiplies nothing."""

    def forward(self, *parts):
        return torch.cat([part + 1 for part in parts], 1)


def engines(make, count, version="8.6.0", dtype=torch.float16):
    """Returns the half inputs and outputs of each engine of a model with so many caches, which equals eager."""
    torch.manual_seed(0)
    model = make(count).eval().to(dtype)
    inputs = [torch.rand(1, 1, WIDTH, dtype=dtype)]
    inputs += [torch.rand(1, PLACES, WIDTH, dtype=dtype) for _ in range(count)]
    with torchtrt.use_tensorrt(f"reference@{version}"), torch.no_grad():
        compiled = torchtrt.compile(model, inputs, require_full_compilation=True)
        torch.testing.assert_close(compiled(*inputs), model(*inputs), atol=2e-2, rtol=2e-2)
    modules = [getattr(compiled.graph_module, block.name) for block in compiled.report.blocks]
    return [
        (
            sum(spec.dtype == dtype for spec in module.inputs),
            sum(output == dtype for output in module.outputs.values()),
        )
        for module in modules
    ]


@pytest.mark.parametrize("layers", [8, 9, 24])
def test_a_step_of_many_layers_becomes_several_engines(layers):
    """One tensor goes from engine to engine: they are cut between layers."""
    engines_built = engines(Step, layers)

    if 2 * layers + 2 <= MOST_HALVES:
        assert [(layers + 1, layers + 1)] == engines_built
    else:
        assert all(sum(halves) <= MOST_HALVES for halves in engines_built)
        assert layers + len(engines_built) == sum(inputs for inputs, _ in engines_built)
        assert layers + len(engines_built) == sum(outputs for _, outputs in engines_built)
        assert len(engines_built) <= -(-(2 * layers) // (MOST_HALVES - 4))


@pytest.mark.parametrize(
    ("version", "dtype"), [("11.4.0", torch.float16), ("8.6.0", torch.float32)]
)
def test_only_weak_types_and_float16_divide(version, dtype):
    """With strong types, inputs have the types of the network."""
    assert [(25, 25)] == engines(Step, 24, version, dtype)


@pytest.mark.parametrize("make", [PreparedFirst, WithConvolution])
def test_where_a_division_does_not_help_there_is_one_engine(make):
    """What is before the first product is no Transformer, and convolutions have types of their own."""
    assert 1 == len(engines(make, 24))


def test_what_multiplies_nothing_is_not_divided():
    """A join of many tensors stays one engine."""
    assert [(30, 1)] == engines(lambda _: Joined(), 29)
