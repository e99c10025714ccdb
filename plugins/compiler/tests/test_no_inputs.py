"""Models whose ``forward`` takes no arguments."""

import copy

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import InputError


class Prompt(nn.Module):
    """Computes from weights alone."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(4, 8))
        self.linear = nn.Linear(8, 3)

    def forward(self):
        return {"prompt": torch.relu(self.linear(self.tokens)), "tokens": self.tokens}


class Counter(nn.Module):
    """Computes from a buffer that each call changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.linear = nn.Linear(3, 3)

    def forward(self, scale=2.0):
        self.count.add_(1)
        return torch.relu(self.linear(self.count)) * scale


@pytest.mark.parametrize("settings", [{}, {"immutable_weights": False}])
def test_what_follows_from_weights_is_a_constant(every_tensorrt, settings, tmp_path):
    """Also in a file. Results are new memory."""
    model = Prompt().eval()
    compiled = torchtrt.compile(model, **settings)
    torchtrt.save(compiled, tmp_path / "model.pt2")
    for module in (compiled, torchtrt.load(tmp_path / "model.pt2")):
        torch.testing.assert_close(module(), model())
        module()["tokens"].zero_()
        torch.testing.assert_close(module(), model())
    with pytest.raises(InputError, match="Too many positional"):
        compiled(torch.rand(2))


def test_what_follows_from_a_written_buffer_is_an_engine(every_tensorrt, tmp_path):
    """Its input is the buffer, which each call changes."""
    model = Counter().eval()
    expected, loaded = copy.deepcopy(model), copy.deepcopy(model)
    compiled = torchtrt.compile(model, require_full_compilation=True, verify="reference")
    torchtrt.save(compiled, tmp_path / "model.pt2")
    assert 1 == len(compiled.report.blocks)
    for _ in range(3):
        torch.testing.assert_close(compiled(), expected())
    torch.testing.assert_close(model.count, expected.count)
    again = torchtrt.load(tmp_path / "model.pt2")
    torch.testing.assert_close(again(), loaded())


def test_random_numbers_without_inputs_are_new_in_each_call():
    """PyTorch draws them, so a seed gives those of eager PyTorch."""

    class Noise(nn.Module):
        def forward(self):
            return torch.relu(torch.randn(64))

    model = Noise().eval()
    compiled = torchtrt.compile(model)
    torch.manual_seed(1)
    expected = model()
    torch.manual_seed(1)
    torch.testing.assert_close(compiled(), expected)
    assert not torch.equal(compiled(), compiled())


def test_torch_compile_compiles_a_function_without_inputs():
    """Of weights alone."""
    model = Prompt().eval()
    with torch.no_grad():
        compiled = torch.compile(model, backend="torchtrt")
        torch.testing.assert_close(compiled(), model())
