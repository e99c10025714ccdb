"""Fake quantization gives PyTorch's values, or stays in PyTorch with the reason."""

import pytest
import torch
from torch import nn

import torchtrt

OP = "aten.fake_quantize_per_tensor_affine.default"


class Quantized(nn.Module):
    """A linear layer between two fake quantizations."""

    def __init__(self, scale=0.05, zero_point=0, least=-128, greatest=127):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.options = scale, zero_point, least, greatest

    def forward(self, x):
        """Quantizes, multiplies, quantizes."""
        y = self.linear(torch.fake_quantize_per_tensor_affine(x, *self.options))
        return torch.fake_quantize_per_tensor_affine(y, *self.options)


@pytest.mark.parametrize("version", ["8.6.0", "10.16.1", "11.4.0"])
def test_symmetric_int8_runs_in_tensorrt_with_pytorchs_values(version):
    """Rounding to even and saturation are the same, halves and outliers included."""
    torch.manual_seed(0)
    model = Quantized().eval()
    x = torch.cat([torch.randn(3, 6) * 5, (torch.arange(6) + 0.5)[None] * 0.05])
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, (x,), require_full_compilation=True)

    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"zero_point": 3}, "zero point 3"),
        ({"least": 0, "greatest": 255}, "the range 0 to 255"),
    ],
    ids=str,
)
def test_what_is_not_tensorrts_int8_stays_in_pytorch(options, reason):
    """The report says which rule is broken, and the result is PyTorch's."""
    model = Quantized(**options).eval()
    x = torch.randn(4, 6)

    compiled = torchtrt.compile(model, (x,), min_block_size=1)

    torch.testing.assert_close(compiled(x), model(x))
    reasons = [entry.reason for entry in compiled.report.in_torch if entry.op == OP]
    assert 2 == len(reasons)
    assert all(reason in text for text in reasons)
