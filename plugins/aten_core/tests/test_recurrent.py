"""Recurrent modules compile whole: sequences of any length, one loop for each layer."""

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.testing import run_compiled

LENGTHS = torchtrt.Input(min_shape=(1, 1, 4), opt_shape=(2, 5, 4), max_shape=(3, 9, 4))


@pytest.mark.parametrize("module", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_module_takes_sequences_of_any_length(module, version):
    """Exporting keeps the length symbolic, although PyTorch alone would fix it."""
    torch.manual_seed(0)
    model = module(4, 6, 2, batch_first=True, bidirectional=True).eval()
    compiled = torchtrt.compile(model, [LENGTHS], require_full_compilation=True, min_block_size=1)
    for batch, length in ((1, 1), (2, 9), (3, 4)):
        x = torch.randn(batch, length, 4)
        with torch.no_grad():
            expected = model(x)
        torch.testing.assert_close(run_compiled(compiled, x), expected, rtol=1e-5, atol=1e-5)


def test_exporting_leaves_pytorch_as_it_was():
    """After a compilation PyTorch computes recurrent layers again, on the meta device too."""
    model = nn.GRU(4, 6).eval()
    torchtrt.compile(model, [torch.randn(5, 2, 4)], min_block_size=1)
    expected = torch.ops.aten.gru.input.py_kernels
    assert not any("recurrent_sizes" in kernel.__module__ for kernel in expected.values())


def test_the_number_of_layers_does_not_grow_with_the_length():
    """A loop is built once, however many steps it runs."""

    def count(length):
        model = nn.LSTM(4, 6).eval()
        inputs = [torch.randn(length, 2, 4)]
        report = torchtrt.compile(model, inputs, min_block_size=1).report
        return sum(block.layers for block in report.blocks)

    assert 0 < count(3) == count(300)
