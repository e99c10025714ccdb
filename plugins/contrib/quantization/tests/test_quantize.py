"""Quantize and Dequantize as PyTorch's export flow writes them: int8 layers, or ordinary ones with the same values."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines the ops
from torch import nn
from torch.nn import functional as F

import torchtrt
from torchtrt_reference import VERSIONS
from torchtrt_testing.faults import watched_tensorrt

ops = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)
NARROW = (-127, 127, torch.int8)


def converters_of(compiled):
    """Returns which function converted each op."""
    return {row.op.split(".")[1]: row.converter.split(":")[-1] for row in compiled.report.converted}


def compile_whole(model, inputs, version, dynamic_shapes=None):
    """Returns the model compiled with nothing left in PyTorch."""
    program = torch.export.export(model.eval(), inputs, dynamic_shapes=dynamic_shapes)
    with torchtrt.use_tensorrt(f"reference@{version}"):
        return torchtrt.compile(program, require_full_compilation=True)


def activation(x, scale=0.05, minimum=-128):
    """An activation that is quantized and back."""
    return ops.dequantize_per_tensor(
        ops.quantize_per_tensor(x, scale, 0, minimum, 127, torch.int8), scale, 0, *INT8
    ).to(x.dtype)


class Weight(nn.Module):
    """A weight as int8 with a scale for each channel: quantized beforehand, or each time."""

    def __init__(self, weight, stored):
        super().__init__()
        scales = weight.abs().flatten(1).amax(1) / 127
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", torch.zeros_like(scales, dtype=torch.int64))
        options = (scales, self.zeros, 0, *NARROW)
        self.stored = stored
        self.register_buffer(
            "value", ops.quantize_per_channel(weight, *options) if stored else weight
        )

    def forward(self):
        """The weight, with what int8 leaves of it."""
        options = (self.scales, self.zeros, 0, *NARROW)
        value = self.value if self.stored else ops.quantize_per_channel(self.value, *options)
        return ops.dequantize_per_channel(value, *options)


class Network(nn.Module):
    """A convolution, attention and a linear layer, all between Dequantize and Quantize."""

    def __init__(self, stored):
        super().__init__()
        torch.manual_seed(0)
        self.kernel = Weight(torch.randn(8, 3, 3, 3) / 4, stored)
        self.inner = Weight(torch.randn(24, 8) / 3, stored)
        self.outer = Weight(torch.randn(5, 8) / 3, stored)
        self.register_buffer("bias", torch.randn(8))

    def forward(self, x):
        """``(n, 3, 8, 8)`` to ``(n, 64, 5)``."""
        y = F.relu(F.conv2d(activation(x), self.kernel(), self.bias, padding=1))
        y = activation(y.flatten(2).transpose(1, 2))
        query, key, value = F.linear(y, self.inner()).chunk(3, -1)
        scores = activation(query, 0.08) @ activation(key, 0.08).transpose(1, 2) / 8**0.5
        y = activation(scores.softmax(-1), 1 / 127) @ activation(value, 0.08)
        return F.linear(activation(y, 0.04), self.outer())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("varies", [False, True], ids=["fixed", "varying"])
@pytest.mark.parametrize("stored", [True, False], ids=["int8-weights", "float-weights"])
def test_a_quantized_network_keeps_its_layers_and_its_values(stored, varies, version):
    """Each Quantize and Dequantize is a layer, those of weights too, and results are within 1 %."""
    model, x = Network(stored), torch.randn(2, 3, 8, 8)
    shapes = ({0: torch.export.Dim("n", min=1, max=6)},) if varies else None
    compiled = compile_whole(model, (x,), version, shapes)

    used = converters_of(compiled)
    assert "dequantize_channels" == used["dequantize_per_channel"]
    assert ("quantize", "dequantize") == (
        used["quantize_per_tensor"],
        used["dequantize_per_tensor"],
    )
    assert stored == ("quantize_per_channel" not in used)
    counts = {row.op: row.count for row in compiled.report.converted}
    assert 3 == counts["quantized_decomposed.dequantize_per_channel.default"]
    for batch in (2, 5) if varies else (2,):
        x = torch.randn(batch, 3, 8, 8)
        expected = model(x)
        error = (compiled(x) - expected).norm() / expected.norm()
        assert 0.01 > error


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("scale", torch.tensor([0.05]))
        self.register_buffer("zero", torch.tensor([0]))
        self.register_buffer("offset", torch.tensor([7]))
        self.register_buffer("scales", torch.tensor([0.1, 0.02, 0.3]))
        self.register_buffer("zeros", torch.zeros(3, dtype=torch.int64))
        self.register_buffer("offsets", torch.tensor([1, -3, 0]))

    def forward(self, *inputs):
        """Calls the function."""
        return self.function(self, *inputs)


def round_trip(quantize, dequantize, *options):
    """Returns a function that quantizes and dequantizes."""

    def function(model, x):
        parameters = [
            getattr(model, option) if isinstance(option, str) else option for option in options
        ]
        return dequantize(quantize(x, *parameters), *parameters)

    return function


TENSOR = ops.quantize_per_tensor, ops.dequantize_per_tensor
CHANNEL = ops.quantize_per_channel, ops.dequantize_per_channel
HALVES = (torch.arange(12.0) - 6 + 0.5).reshape(4, 3) * 0.25
WIDE = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)) * 20
LAYERS = {
    "int8": (round_trip(*TENSOR, 0.05, 0, *INT8), WIDE),
    "narrow": (round_trip(*TENSOR, 0.05, 0, *NARROW), WIDE),
    "halves": (round_trip(*TENSOR, 0.25, 0, *INT8), HALVES),
    "narrow-halves": (round_trip(*TENSOR, 0.25, 0, *NARROW), HALVES * 100),
    "tensor": (round_trip(*TENSOR, "scale", "zero", *INT8), WIDE),
}
ORDINARY = {
    "uint8": (round_trip(*TENSOR, 0.05, 128, 0, 255, torch.uint8), WIDE),
    "offset": (round_trip(*TENSOR, 0.05, 5, *INT8), WIDE),
    "offset-halves": (round_trip(*TENSOR, 0.25, 5, *NARROW), HALVES * 100),
    "int16": (round_trip(*TENSOR, 0.05, 0, -128, 127, torch.int32), WIDE),
    "seven-bits": (round_trip(*TENSOR, 0.05, 0, -64, 63, torch.int8), WIDE),
    "tensor-offset": (round_trip(*TENSOR, "scale", "offset", *INT8), WIDE),
    "channels": (round_trip(*CHANNEL, "scales", "zeros", 1, *INT8), WIDE),
    "channels-offset": (round_trip(*CHANNEL, "scales", "offsets", -1, *INT8), WIDE),
    "empty": (round_trip(*TENSOR, 0.05, 5, *INT8), WIDE[:0]),
    "scalar": (round_trip(*TENSOR, 0.05, 0, *INT8), torch.tensor(1.3)),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "half"])
@pytest.mark.parametrize("name", LAYERS)
def test_symmetric_int8_is_layers_with_pytorchs_values(name, dtype, version):
    """Halves go to even, and what is beyond the range is cut, at -127 where it ends there."""
    function, x = LAYERS[name]
    model, x = Function(function), x.to(dtype)

    compiled = compile_whole(model, (x,), version)

    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert ["dequantize", "quantize"] == sorted(converters_of(compiled).values())[:2]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "half"])
@pytest.mark.parametrize("name", ORDINARY)
def test_what_is_not_tensorrts_int8_is_computed_by_ordinary_layers(name, dtype, version):
    """Zero points, other ranges and dtypes, channels of activations: PyTorch's values, in the engine."""
    function, x = ORDINARY[name]
    model, x = Function(function), x.to(dtype)

    compiled = compile_whole(model, (x,), version)

    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert not set(converters_of(compiled)) & {"quantize_per_tensor", "quantize_per_channel"}


@pytest.mark.parametrize("version", VERSIONS)
def test_scales_that_are_computed_are_computed_with(version):
    """Dynamic quantization, whose scale depends on the values."""

    def function(model, x):
        scale = x.abs().max() / 127
        zero = torch.zeros(1, dtype=torch.int64)
        return round_trip(*TENSOR, scale, zero, *INT8)(model, x)

    model = Function(function)

    compiled = compile_whole(model, (WIDE,), version)

    torch.testing.assert_close(compiled(WIDE), model(WIDE), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("version", VERSIONS)
def test_results_may_have_another_dtype(version):
    """``out_dtype`` of Dequantize."""

    def function(model, x):
        quantized = ops.quantize_per_tensor(x, 0.05, 0, *INT8)
        return ops.dequantize_per_tensor(quantized, 0.05, 0, *INT8, out_dtype=torch.float16)

    model = Function(function)

    compiled = compile_whole(model, (WIDE,), version)

    assert torch.float16 is compiled(WIDE).dtype
    torch.testing.assert_close(compiled(WIDE), model(WIDE), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("version", VERSIONS)
def test_products_of_int8_have_no_casts_for_sums_in_float32(version):
    """Between a Dequantize layer and a product, they would keep TensorRT from computing in int8."""

    def function(model, x):
        quantized = ops.quantize_per_tensor(x, 0.05, 0, *INT8)
        kept = {"out_dtype": torch.float16}
        left = ops.dequantize_per_tensor(quantized, 0.05, 0, *INT8, **kept)
        return left @ left.transpose(0, 1)

    with torchtrt.use_tensorrt(f"reference@{version}"), watched_tensorrt() as tensorrt:
        torchtrt.compile(Function(function).eval(), [WIDE], min_block_size=1, use_fp32_acc=True)

    (build,) = tensorrt.builds
    kinds = {layer.type.name for layer in build.network}
    assert "MATRIX_MULTIPLY" in kinds
    assert "CAST" not in kinds


@pytest.mark.parametrize("version", [number for number in VERSIONS if number != "8.6.0"])
def test_int8_that_no_layer_made_is_not_taken_for_it(version):
    """An input of int8 is numbers, not what Quantize makes; TensorRT 8.6 takes no int8 input at all."""
    x = torch.arange(-6, 6, dtype=torch.int8).reshape(4, 3)
    model = Function(lambda model, x: ops.dequantize_per_tensor(x, 0.05, 0, *INT8))

    compiled = compile_whole(model, (x,), version)

    torch.testing.assert_close(compiled(x), model(x))
    assert "dequantize_per_tensor" not in converters_of(compiled)


@pytest.mark.parametrize("version", VERSIONS)
def test_fake_quantized_weights_keep_their_layers(version):
    """As in models that were trained for int8."""

    class Trained(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 4)
            self.register_buffer("scales", torch.full((4,), 0.01))
            self.register_buffer("zeros", torch.zeros(4, dtype=torch.int32))

        def forward(self, x):
            x = torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)
            weight = torch.fake_quantize_per_channel_affine(
                self.linear.weight, self.scales, self.zeros, 0, -128, 127
            )
            return F.linear(x, weight, self.linear.bias)

    torch.manual_seed(0)
    model, x = Trained().requires_grad_(False), torch.randn(3, 6)

    compiled = compile_whole(model, (x,), version)

    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    ops_converted = {row.op for row in compiled.report.converted}
    assert "aten.fake_quantize_per_channel_affine.default" in ops_converted


@pytest.mark.parametrize("options", [(0, -128, 127), (3, 0, 255)], ids=["int8", "uint8"])
def test_through_torch_compile(options):
    """Which makes values and a mask of fake quantization."""

    def quantized(x, scales, zeros):
        y = torch.fake_quantize_per_tensor_affine(x, 0.05, *options)
        return torch.fake_quantize_per_channel_affine(y, scales, zeros, 1, *options[1:]) * 2

    inputs = torch.randn(4, 3) * 5, torch.tensor([0.1, 0.2, 0.05]), torch.zeros(3).int()
    compiled = torch.compile(
        quantized, backend="torchtrt", options={"require_full_compilation": True}
    )

    torch.testing.assert_close(compiled(*inputs), quantized(*inputs), rtol=1e-5, atol=1e-5)


def test_the_mask_of_automatic_differentiation_is_computed():
    """Where it is read."""
    mask = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask
    model, x = Function(lambda model, x: tuple(mask(x, 0.05, 3, 0, 255))), WIDE

    compiled = compile_whole(model, (x,), VERSIONS[-1])

    torch.testing.assert_close(compiled(x), model(x))


class Packed(nn.Module):
    """Multiplies with a weight of INT4, which is in bytes."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale", torch.full((4, 1), 0.5))

    def forward(self, x):
        weight = torch.ops.torchtrt_quantization.dequantize_int4(
            self.weight, self.scale, torch.float32
        )
        return F.linear(x, weight)


def test_weights_that_four_bits_do_not_hold_stay_as_they_are():
    """A damaged checkpoint: the low four bits of 100 are 4."""
    weight = torch.zeros(4, 8, dtype=torch.int8)
    weight[0, 0] = 100
    model, x = Packed(weight).eval(), torch.rand(2, 8)
    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [x], min_block_size=1)
        torch.testing.assert_close(compiled(x), model(x))
        fitting = torchtrt.compile(Packed(weight.clamp(-8, 7)).eval(), [x], min_block_size=1)
    assert {row.op for row in fitting.report.converted} >= {
        "torchtrt_quantization.dequantize_int4.default"
    }


@pytest.mark.parametrize("version", ["8.6.0", "11.4.0"])
def test_each_int8_of_a_weight_stays_what_it_is(version):
    """TensorRT 8.6 gets the numbers and a Quantize layer, which rounds them back to the same int8."""
    values = torch.arange(-128, 128, dtype=torch.int8).repeat(64, 1)
    scales = torch.rand(64, generator=torch.Generator().manual_seed(0)).mul(20).sub(18).exp2()

    def function(model, x):
        zeros = torch.zeros_like(scales, dtype=torch.int64)
        return x + ops.dequantize_per_channel(values, scales, zeros, 0, *INT8)

    x = torch.zeros(1, 256)
    compiled = compile_whole(Function(function), (x,), version)

    torch.testing.assert_close(compiled(x), values * scales[:, None], rtol=0, atol=0)


def test_an_infinite_scale_is_computed_by_ordinary_layers():
    """A Quantize layer would divide infinity by infinity."""
    values = torch.arange(-3, 3, dtype=torch.int8).reshape(2, 3)
    scales = torch.tensor([0.5, float("inf"), 2.0])

    def function(model, x):
        zeros = torch.zeros_like(scales, dtype=torch.int64)
        return x + ops.dequantize_per_channel(values, scales, zeros, 1, *INT8)

    model, x = Function(function), torch.zeros(2, 3)
    compiled = compile_whole(model, (x,), "8.6.0")

    torch.testing.assert_close(compiled(x), model(x), equal_nan=True)
