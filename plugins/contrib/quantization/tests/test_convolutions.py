"""Convolutions with weights in blocks."""

import warnings

import pytest
import torch
from torch import nn

import torchtrt
import torchtrt_rtx
from torchtrt_converters_quantization.ops import DEQUANTIZE

pytestmark = pytest.mark.filterwarnings("ignore")
BLOCKS = {
    "filters": (128, 2, 1, 1),
    "channels": (128, 2, 3, 3),
    "rows": (128, 64, 3, 1),
}
"""The sizes of the scale of a weight of 128 × 64 × 3 × 3."""


class Convolution(nn.Module):
    """A convolution whose weight is dequantized."""

    def __init__(self, form, blocks):
        super().__init__()
        torch.manual_seed(0)
        self.form = form
        data = torch.randint(-8, 8, (128, 64, 3, 3), dtype=torch.int8)
        self.register_buffer("data", data.to(torch.float8_e4m3fn) if form == "FP8" else data)
        self.register_buffer("scale", torch.rand(blocks) + 0.1)

    def forward(self, x):
        """``(n, 64, h, w)`` to ``(n, 128, h, w)``."""
        weight = DEQUANTIZE[self.form](self.data, self.scale, x.dtype)
        return torch.conv2d(x, weight, padding=1)


def compiled_for(tensorrt, model, x, **settings):
    """Returns the model in one engine."""
    with torchtrt.use_tensorrt(tensorrt):
        return torchtrt.compile(model, [x], require_full_compilation=True, **settings)


def plan_size(compiled):
    """Returns the bytes of all plans."""
    return sum(len(module.plan) for module in compiled.modules() if hasattr(module, "plan"))


@pytest.mark.parametrize(
    ("form", "blocks", "version"),
    [
        ("INT4", "filters", "10.16.1"),
        ("INT4", "filters", "11.4.0"),
        ("INT4", "channels", "11.4.0"),
        ("INT4", "rows", "11.4.0"),
        ("INT8", "filters", "11.4.0"),
        ("FP8", "channels", "11.4.0"),
    ],
)
def test_blocks_of_a_filter_stay_packed(form, blocks, version):
    """As blocks of a matrix, which becomes a filter again behind the Dequantize layer."""
    model, x = Convolution(form, BLOCKS[blocks]), torch.randn(2, 64, 8, 8)

    compiled = compiled_for(f"reference@{version}", model, x)

    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-4)
    count = 128 * 64 * 9 // (2 if form == "INT4" else 1)
    assert plan_size(compiled) < count + model.scale.numel() * 4 + 4_000


@pytest.mark.skipif(not torchtrt_rtx.VERSIONS, reason="TensorRT for RTX is not installed")
@pytest.mark.parametrize("blocks", ["filters", "rows"])
def test_nvidias_builder_accepts_blocks_of_a_filter(blocks):
    """For GPUs of compute capability 8.9."""
    model, x = Convolution("INT4", BLOCKS[blocks]), torch.randn(2, 64, 8, 8)

    compiled = compiled_for("rtx", model.half(), x.half(), target_compute_capabilities="8.9")

    assert compiled.report.converted


def test_other_blocks_stay_in_pytorch():
    """With the reason."""
    model, x = Convolution("INT4", (128, 2, 3, 1)), torch.randn(2, 64, 8, 8)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [x], min_block_size=1)

    reasons = {row.op.split(".")[1]: row.reason for row in compiled.report.in_torch}
    assert "blocks along one dimension" in reasons["dequantize_int4"]
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-4)


def test_convolutions_of_torchao_in_int4():
    """In groups of input channels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torchao = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(64, 128, 3, padding=1)).eval().requires_grad_(False)
    config = torchao.IntxWeightOnlyConfig(torch.int4, torchao.PerGroup(32))
    torchao.quantize_(model, config, filter_fn=lambda module, _: isinstance(module, nn.Conv2d))
    x = torch.randn(2, 64, 8, 8)

    compiled = compiled_for("reference@11.4.0", model, x)

    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert plan_size(compiled) < 128 * 64 * 9 * 0.7


@pytest.mark.parametrize("config", ["INT4_BLOCKWISE_WEIGHT_ONLY_CFG", "INT8_DEFAULT_CFG"])
def test_convolutions_of_modelopt(config):
    """ModelOpt's blocks of a convolution are the rows of its filters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mtq = pytest.importorskip("modelopt.torch.quantization")
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(64, 128, 3, padding=1)).eval(), torch.randn(2, 64, 8, 8)
    model = mtq.quantize(model, getattr(mtq, config), lambda model: model(x))

    compiled = compiled_for("reference@11.4.0", model.requires_grad_(False), x)

    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
