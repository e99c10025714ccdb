"""Fake quantization gives PyTorch's values, or stays in PyTorch with the reason."""

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import RefitError
from torchtrt.testing import (
    PackConformance,
    cases_of,
    run_compiled,
    tensorrts,
)

OP = "aten.fake_quantize_per_tensor_affine.default"


class Quantized(nn.Module):
    """A linear layer between two fake quantizations."""

    def __init__(self, scale=0.05, zero_point=0, minimum=-128, maximum=127):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.options = scale, zero_point, minimum, maximum

    def forward(self, x):
        """Quantizes, multiplies, quantizes."""
        y = self.linear(torch.fake_quantize_per_tensor_affine(x, *self.options))
        return torch.fake_quantize_per_tensor_affine(y, *self.options)


class ByChannel(nn.Module):
    """A linear layer whose weight has a scale and a zero point for each row."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.scales = nn.Buffer(torch.rand(6) + 0.01)
        self.zero_points = nn.Buffer(torch.zeros(6, dtype=torch.int32))

    def forward(self, x):
        weight = torch.fake_quantize_per_channel_affine(
            self.linear.weight, self.scales, self.zero_points, 0, -128, 127
        )
        return nn.functional.linear(x, weight, self.linear.bias)


@pytest.mark.parametrize("tensorrt", tensorrts())
def test_weights_with_a_scale_for_each_channel_take_others(tensorrt):
    """Scales too, while the zero points stay 0."""
    old, new, x = ByChannel().eval(), ByChannel().eval(), torch.randn(3, 6)
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(old, [x], min_block_size=1, immutable_weights=False)
        assert "aten.fake_quantize_per_channel_affine.default" in {
            row.op for row in compiled.report.converted
        }
        refitted = torchtrt.refit_module_weights(compiled, new)
        torch.testing.assert_close(refitted(x), new(x), rtol=1e-4, atol=1e-4)

        new.zero_points[2] = 1
        with pytest.raises(RefitError, match="Values that follow from 'zero_points'"):
            torchtrt.refit_module_weights(compiled, new)


@pytest.mark.parametrize("tensorrt", tensorrts())
def test_symmetric_int8_runs_in_tensorrt_with_pytorchs_values(tensorrt):
    """Rounding to even and saturation are the same, halves and outliers included."""
    torch.manual_seed(0)
    model = Quantized().eval()
    x = torch.cat([torch.randn(3, 6) * 5, (torch.arange(6) + 0.5)[None] * 0.05])
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(model, (x,), require_full_compilation=True)

    torch.testing.assert_close(run_compiled(compiled, x), model(x), rtol=1e-5, atol=1e-5)


def converters_of(compiled):
    """Returns which function converted each op."""
    return {row.op: row.converter.split(":")[-1] for row in compiled.report.converted}


@pytest.mark.parametrize("tensorrt", tensorrts())
@pytest.mark.parametrize("options", [{"zero_point": 3}, {"minimum": 0, "maximum": 255}], ids=str)
def test_what_is_not_tensorrts_int8_is_computed_by_ordinary_layers(options, tensorrt):
    """Zero points and other ranges give PyTorch's values too, in the engine."""
    torch.manual_seed(0)
    model = Quantized(**options).eval()
    x = torch.randn(4, 6) * 5

    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(model, (x,), require_full_compilation=True)

    torch.testing.assert_close(run_compiled(compiled, x), model(x), rtol=1e-5, atol=1e-5)
    assert OP not in converters_of(compiled)


class PerChannel(nn.Module):
    """Fake quantization with a scale for each channel."""

    def __init__(self, zero_point):
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.1, 0.02, 0.3]))
        self.register_buffer("zero_point", torch.full((3,), zero_point, dtype=torch.int32))

    def forward(self, x):
        """Quantizes dimension 1."""
        scale, zero_point = self.scale, self.zero_point
        return torch.fake_quantize_per_channel_affine(x, scale, zero_point, 1, -128, 127)


@pytest.mark.parametrize("tensorrt", tensorrts())
@pytest.mark.parametrize("zero_point", [0, 5])
def test_channels_have_scales_of_their_own(zero_point, tensorrt):
    """Symmetric ones are TensorRT's own layers; others are ordinary layers."""
    torch.manual_seed(0)
    model, x = PerChannel(zero_point).eval(), torch.randn(2, 3, 4) * 8

    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(model, (x,), require_full_compilation=True)

    torch.testing.assert_close(run_compiled(compiled, x), model(x), rtol=1e-5, atol=1e-5)
    op = "aten.fake_quantize_per_channel_affine.default"
    assert (op in converters_of(compiled)) == (zero_point == 0)


class BesideHalf(torch.nn.Module):
    """Quantizes float32 and multiplies it, beside a layer in float16."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wide = torch.nn.Linear(8, 8)
        self.narrow = torch.nn.Linear(8, 8, dtype=torch.float16)

    def forward(self, x):
        rows = torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)
        scales, zeros = torch.full((8,), 0.01), torch.zeros(8, dtype=torch.int32)
        weight = torch.fake_quantize_per_channel_affine(
            self.wide.weight, scales, zeros, 0, -128, 127
        )
        product = torch.nn.functional.linear(rows, weight, self.wide.bias)
        return rows * 1.0009, torch.softmax(product, -1), product * 1e5, self.narrow(x.half())


@pytest.mark.parametrize("tensorrt", tensorrts())
def test_what_follows_int8_is_float32_beside_float16(tensorrt):
    """Of what is dequantized to float32, nothing loses digits to float16 or is beyond it."""
    model, x = BesideHalf().eval(), torch.randn(4, 8)
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(model, (x,), require_full_compilation=True)
    expected = model(x)
    for index, result in enumerate(run_compiled(compiled, x)[:3]):
        torch.testing.assert_close(result, expected[index], rtol=1e-5, atol=1e-5)


class TestQuantization(PackConformance):
    """What is TensorRT's int8 becomes its layers, and the rest ordinary ones; corners have PyTorch's values."""

    pack = "quantization"
    imports = ("torch.ao.quantization.fx._decomposed",)
    without_case = dict.fromkeys(
        (
            "aten.fake_quantize_per_tensor_affine_cachemask.default",
            "aten.fake_quantize_per_channel_affine_cachemask.default",
            *(
                f"quantized_decomposed.{verb}quantize_per_{kind}"
                for verb in ("", "de")
                for kind in ("tensor.default", "tensor.tensor", "channel.default")
            ),
        ),
        "test_quantize.py compares it with PyTorch",
    ) | dict.fromkeys(
        (
            f"torchtrt_quantization.{op}.default"
            for op in (
                *(f"dequantize_{form}" for form in ("int8", "int4", "fp8", "fp4")),
                *(f"fake_quantize_{form}" for form in ("int8", "fp8", "nvfp4", "mxfp8")),
            )
        ),
        "test_modelopt.py and test_torchao.py compare it with the libraries",
    )
    sizes = ("fixed sizes",)  # PyTorch's fake kernels of these ops take no others
    cases = cases_of("quantization")


class SumOfQuantized(nn.Module):
    """What TensorRT adds in int8, with a view between."""

    def forward(self, x, y):
        first = torch.fake_quantize_per_tensor_affine(x * 2, 0.05, 0, -128, 127)
        second = torch.fake_quantize_per_tensor_affine(y.relu(), 0.05, 0, -128, 127)
        return first.reshape(-1) + second.reshape(-1)


def test_what_is_quantized_in_float16_has_no_more_layers_than_in_float32():
    """A cast between a Dequantize layer and its reader would keep a weakly typed TensorRT from computing in int8."""
    inputs, counts = (torch.randn(3, 6), torch.randn(3, 6)), []
    model = SumOfQuantized().eval()
    with torchtrt.use_tensorrt("reference@8.6.0"):
        for dtype in (torch.float32, torch.float16):
            operands = [value.to(dtype) for value in inputs]
            compiled = torchtrt.compile(model, operands, require_full_compilation=True)
            torch.testing.assert_close(run_compiled(compiled, *operands), model(*operands))
            counts.append(compiled.report.blocks[0].layers)
    assert len(set(counts)) == 1
