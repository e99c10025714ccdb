"""PyTorch's multi-head attention projects before it transposes, and slices what it projects as one."""

import pytest
import torch

import torchtrt
from torchtrt.testing import run_compiled

from .conftest import lowered_calls


class SelfAttention(torch.nn.Module):
    """PyTorch's multi-head attention of a tensor to itself, or to another."""

    def __init__(self, batch_first=True):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, 4, batch_first=batch_first)

    def forward(self, x, memory=None):
        memory = x if memory is None else memory
        return self.attention(x, memory, memory, need_weights=False)[0]


def ops_of(model, *inputs):
    """Returns the names of the ops that a model is lowered to."""
    return [str(node.target) for node in lowered_calls(model, inputs)]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("with_memory", [True, False])
def test_parts_are_slices(batch_first, with_memory):
    """Three of one product, or two where the query is of another tensor."""
    model = SelfAttention(batch_first).eval()
    inputs = (torch.randn(3, 5, 16), *((torch.randn(3, 5, 16),) if with_memory else ()))
    ops = ops_of(model, *inputs)
    assert "aten.select.int" not in ops
    assert ops.count("aten.slice.Tensor") == (2 if with_memory else 3)
    torch.testing.assert_close(run_compiled(model, *inputs), model(*inputs))


def test_a_transformer_layer_with_varying_sizes_is_the_same():
    """The batch and the length vary."""
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    shape = torchtrt.Input(min_shape=(1, 2, 16), opt_shape=(2, 5, 16), max_shape=(4, 9, 16))
    compiled = torchtrt.compile(layer, [shape], require_full_compilation=True)
    for batch, length in ((1, 2), (2, 5), (4, 9)):
        x = torch.randn(batch, length, 16)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-4, atol=1e-5)


def test_projecting_comes_before_transposing():
    """Only where the projected dimension stays the last, and other nodes that read the transposed tensor still do."""

    class Transposed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(5, 4)

        def forward(self, x):
            moved, last = x.transpose(0, -2), x.transpose(-1, 1)
            return self.linear(moved), moved + 1, self.linear(last[..., :5])

    model, x = Transposed().eval(), torch.randn(3, 6, 7, 5)
    ops = [op for op in ops_of(model, x) if "linear" in op or "transpose" in op]
    assert ops[2:4] == ["aten.linear.default", "aten.transpose.int"]
    results, expected = run_compiled(model, x), model(x)
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted)


def test_other_selections_stay():
    """From another dimension, or of more than one place split off."""

    class Others(torch.nn.Module):
        def forward(self, x):
            parts = x.unflatten(-1, (2, 2, 4)).unsqueeze(0).transpose(0, -2).squeeze(-2)
            moved = x.unflatten(-1, (4, 4)).unsqueeze(0).transpose(0, -3).squeeze(-3)
            return parts[1], moved[0], x.unflatten(-1, (4, 4))[0], x[1]

    model, x = Others().eval(), torch.randn(3, 5, 16)
    for result, expected in zip(run_compiled(model, x), model(x), strict=True):
        torch.testing.assert_close(result, expected)
