"""Fake quantization gives PyTorch's values, or stays in PyTorch with the reason."""

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt_reference import VERSIONS

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


@pytest.mark.parametrize("version", VERSIONS)
def test_symmetric_int8_runs_in_tensorrt_with_pytorchs_values(version):
    """Rounding to even and saturation are the same, halves and outliers included."""
    torch.manual_seed(0)
    model = Quantized().eval()
    x = torch.cat([torch.randn(3, 6) * 5, (torch.arange(6) + 0.5)[None] * 0.05])
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, (x,), require_full_compilation=True)

    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


def converters_of(compiled):
    """Returns which function converted each op."""
    return {row.op: row.converter.split(":")[-1] for row in compiled.report.converted}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", [{"zero_point": 3}, {"minimum": 0, "maximum": 255}], ids=str)
def test_what_is_not_tensorrts_int8_is_computed_by_ordinary_layers(options, version):
    """Zero points and other ranges give PyTorch's values too, in the engine."""
    torch.manual_seed(0)
    model = Quantized(**options).eval()
    x = torch.randn(4, 6) * 5

    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, (x,), require_full_compilation=True)

    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
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


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("zero_point", [0, 5])
def test_channels_have_scales_of_their_own(zero_point, version):
    """Symmetric ones are TensorRT's own layers; others are ordinary layers."""
    torch.manual_seed(0)
    model, x = PerChannel(zero_point).eval(), torch.randn(2, 3, 4) * 8

    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, (x,), require_full_compilation=True)

    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    op = "aten.fake_quantize_per_channel_affine.default"
    assert (op in converters_of(compiled)) == (zero_point == 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_scales_known_only_at_run_time_are_computed_with(version):
    """The overload whose scale and zero point are tensors."""

    class Observed(nn.Module):
        def forward(self, x, scale, zero_point):
            return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, -128, 127)

    inputs = (torch.randn(2, 6) * 8, torch.tensor(0.05), torch.tensor(3, dtype=torch.int32))
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(Observed().eval(), inputs, require_full_compilation=True)

    torch.testing.assert_close(compiled(*inputs), Observed()(*inputs), rtol=1e-5, atol=1e-5)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        """Calls the function."""
        return self.function(*inputs)


per_tensor, per_channel = (
    torch.fake_quantize_per_tensor_affine,
    torch.fake_quantize_per_channel_affine,
)
SCALE, SCALES = torch.tensor(0.05), torch.tensor([0.1, 0.02, 0.3])
NOT_NUMBERS = torch.tensor([torch.nan, torch.inf, -torch.inf])
CORNERS = [
    ("int8-nan", lambda x: per_tensor(x, 0.05, 0, -128, 127), NOT_NUMBERS),
    ("nan", lambda x: per_tensor(x, 0.05, 3, 0, 255), NOT_NUMBERS),
    ("many-steps", lambda x: per_tensor(x, 0.003, 3, -32768, 32767), torch.randn(4, 3) * 9),
    ("empty", lambda x: per_tensor(x, 0.05, 3, 0, 255), torch.randn(0, 3)),
    ("int8-empty", lambda x: per_tensor(x, 0.05, 0, -128, 127), torch.randn(0, 3)),
    ("scalar", lambda x: per_tensor(x, 0.05, 0, -128, 127), torch.tensor(1.3)),
    (
        "scalar-by-a-vector",
        lambda x: per_tensor(x, SCALE.reshape(1), torch.ones(1, dtype=torch.int32), 0, 255),
        torch.tensor(1.3),
    ),
    (
        "tensor",
        lambda x: per_tensor(x, SCALE, torch.tensor(2, dtype=torch.int32), 0, 255),
        torch.randn(4, 3) * 9,
    ),
    (
        "channels",
        lambda x: per_channel(x, SCALES, torch.zeros(3, dtype=torch.int32), 1, -128, 127),
        torch.randn(4, 3) * 9,
    ),
    (
        "channels-with-fractions",
        lambda x: per_channel(x, SCALES, torch.tensor([0.3, 1.5, 2.7]), 1, 0, 127),
        torch.randn(4, 3) * 9,
    ),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "half"])
@pytest.mark.parametrize(
    ("function", "x"), [row[1:] for row in CORNERS], ids=[row[0] for row in CORNERS]
)
def test_corners_have_pytorchs_values(function, x, dtype, version):
    """Elements that are no numbers, none at all, no dimensions, and steps that half precision does not tell apart."""
    model, inputs = Function(function).eval(), (x.to(dtype),)
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, inputs, require_full_compilation=True)

    torch.testing.assert_close(compiled(*inputs), model(*inputs))
