"""Layers of ModelOpt that compute their weights where they read them are quantized, or refused."""

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.later import later, needs
from torchtrt.errors import UnsupportedProgramError

mtq = later("modelopt.torch.quantization")

pytestmark = [needs("modelopt"), pytest.mark.filterwarnings("ignore")]


class Recurrent(nn.Module):
    """A recurrent layer in front of a linear one."""

    def __init__(self, layer):
        super().__init__()
        self.recurrent = layer(8, 16, batch_first=True)
        self.last = nn.Linear(16, 4)

    def forward(self, x):
        """What the linear layer makes of all steps."""
        return self.last(self.recurrent(x)[0])


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("form", ["INT8_DEFAULT_CFG", "FP8_DEFAULT_CFG"])
def test_a_recurrent_layer_is_quantized_as_in_eager_pytorch(layer, form):
    """The result is the quantized model's, and not that of a model with these quantizers disabled."""
    torch.manual_seed(0)
    x = torch.rand(2, 5, 8)
    model = mtq.quantize(Recurrent(layer).eval(), getattr(mtq, form), lambda model_: model_(x))
    expected = model(x)
    compiled = torchtrt.compile(model, [x], min_block_size=1)

    torch.testing.assert_close(compiled(x), expected, atol=1e-6, rtol=1e-5)
    mtq.disable_quantizer(model, "*recurrent*")
    assert (model(x) - expected).abs().max() > 1e-4


def test_an_enabled_quantizer_that_exporting_drops_is_an_error():
    """The message names it, and says how to disable it."""
    x = torch.rand(2, 8)
    model = mtq.quantize(
        nn.Sequential(nn.Linear(8, 8)), mtq.INT8_DEFAULT_CFG, lambda model_: model_(x)
    )
    whole = nn.Sequential(Skipped(model[0])).eval()
    with pytest.raises(UnsupportedProgramError, match=r"quantizer .*do not run.*disable_quantizer"):
        torchtrt.compile(whole, [x], min_block_size=1)
    mtq.disable_quantizer(whole, "*")
    torch.testing.assert_close(torchtrt.compile(whole, [x], min_block_size=1)(x), whole(x))


class Skipped(nn.Module):
    """A layer that has the quantizers of another one, and runs them in eager PyTorch only."""

    def __init__(self, linear):
        super().__init__()
        self.input_quantizer, self.weight_quantizer = (
            linear.input_quantizer,
            linear.weight_quantizer,
        )
        self.weight = nn.Parameter(linear.weight.detach())

    def forward(self, x):
        """The product of quantized factors, or of plain ones while it is exported."""
        if torch.compiler.is_exporting():
            return x @ self.weight.T
        return self.input_quantizer(x) @ self.weight_quantizer(self.weight).T
