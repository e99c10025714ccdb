"""Libraries that the pack recognizes by the name of one op, or not at all."""

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import DequantizedWeightsWarning

_quanto = torch.library.Library("quanto", "FRAGMENT")
if not hasattr(torch.ops.quanto, "qbytes_mm"):
    _quanto.define("qbytes_mm(Tensor A, Tensor B, Tensor scales) -> Tensor")
    _quanto.impl(
        "qbytes_mm",
        lambda x, weight, scales: x @ (weight.to(scales.dtype) * scales).t(),
        "CompositeExplicitAutograd",
    )


class Bytes(nn.Module):
    """A layer of quanto, as ``torch.export`` writes it."""

    def __init__(self, dtype, weight):
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale", torch.rand(len(weight), 1).to(dtype) / 64 + 0.01)

    def forward(self, x):
        """``(n, in)`` to ``(n, out)``."""
        return torch.ops.quanto.qbytes_mm(x, self.weight, self.scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("form", ["int8", "fp8"])
def test_weights_of_8_bits_of_quanto_stay_packed(form, dtype):
    """As INT8, or as FP8."""
    torch.manual_seed(0)
    weight = torch.randint(-127, 128, (96, 128), dtype=torch.int8)
    if form == "fp8":
        weight = weight.float().to(torch.float8_e4m3fn)
    model, x = Bytes(dtype, weight).eval(), torch.randn(3, 128).to(dtype)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [x], require_full_compilation=True)

    ops = {row.op for row in compiled.report.converted}
    assert f"torchtrt_quantization.dequantize_{form}.default" in ops
    error = (compiled(x).float() - model(x).float()).norm() / model(x).float().norm()
    assert error < {torch.float32: 1e-6, torch.float16: 1e-3}[dtype]
    assert (
        sum(len(module.plan) for module in compiled.modules() if hasattr(module, "plan")) < 20_000
    )


class Nibbles(nn.Module):
    """A weight of four bits in a packing of its own, as HQQ and others write it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("words", torch.randint(0, 256, (32, 128), dtype=torch.uint8))

    def forward(self, x):
        """``(n, 128)`` to ``(n, 64)``."""
        values = torch.cat([self.words & 15, self.words >> 4]).to(x.dtype)
        return nn.functional.linear(x, (values - 8) * 0.1)


def test_unknown_packings_become_floating_point_with_a_warning():
    """Unless the setting allows it."""
    torch.manual_seed(0)
    model, x = Nibbles().eval(), torch.randn(3, 128)
    message = "No pack supports the format of 1 packed weights. The first is 'words'.*32768 bytes"

    with torchtrt.use_tensorrt("reference@11.4.0"):
        with pytest.warns(DequantizedWeightsWarning, match=message):
            compiled = torchtrt.compile(model, [x], min_block_size=1)
        accepted = torchtrt.compile(model, [x], min_block_size=1, allow_dequantized_weights=True)

    for module in (compiled, accepted):
        torch.testing.assert_close(module(x), model(x), rtol=1e-5, atol=1e-5)
