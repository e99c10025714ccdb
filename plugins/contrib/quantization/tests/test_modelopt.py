"""Models that NVIDIA's ModelOpt has quantized, on a CPU."""

import pytest
import torch
from torch import nn

import torchtrt
import torchtrt_rtx
from tests.support.later import later, needs
from torchtrt.errors import FullCompilationError
from torchtrt.registry import export_contexts
from torchtrt_reference import VERSIONS

mtq = later("modelopt.torch.quantization")
qtensor = later("modelopt.torch.quantization.qtensor")

NEWER = [number for number in VERSIONS if number != "8.6.0"]
pytestmark = [needs("modelopt"), pytest.mark.filterwarnings("ignore")]
FORMATS = {
    "INT8_DEFAULT_CFG": ({"fake_quantize_int8": 3, "dequantize_int8": 3}, 1),
    "INT8_SMOOTHQUANT_CFG": ({"fake_quantize_int8": 3, "dequantize_int8": 3}, 1),
    "INT8_WEIGHT_ONLY_CFG": ({"dequantize_int8": 3}, 1),
    "FP8_DEFAULT_CFG": ({"fake_quantize_fp8": 3, "dequantize_fp8": 3}, 1),
    "INT4_AWQ_CFG": ({"dequantize_int4": 3}, 0.5),
    "INT4_BLOCKWISE_WEIGHT_ONLY_CFG": ({"dequantize_int4": 3}, 0.5),
    "W4A8_AWQ_BETA_CFG": ({"fake_quantize_fp8": 6, "dequantize_int4": 3}, 0.5),
}
"""For a configuration the ops of its network, and the bytes of a weight."""
BLOCKS = {
    "NVFP4_DEFAULT_CFG": (
        {"fake_quantize_nvfp4": 3, "dequantize_fp4": 3, "dequantize_fp8": 3},
        0.5,
    ),
    "W4A16_NVFP4_CFG": ({"dequantize_fp4": 3, "dequantize_fp8": 3}, 0.5),
    "MXFP8_DEFAULT_CFG": ({"fake_quantize_mxfp8": 3, "dequantize_fp8": 3}, 1),
}
"""Likewise, for those whose last step ModelOpt computes on a GPU only."""
X = torch.randn(4, 320, generator=torch.Generator().manual_seed(1))


class Model(nn.Module):
    """Linear layers with a bias and without, one with a width that blocks of 128 do not divide."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(320, 512)
        self.second = nn.Linear(512, 256, bias=False)
        self.third = nn.Linear(256, 64)

    def forward(self, x):
        """``(n, 320)`` to ``(n, 64)``."""
        return self.third(torch.tanh(self.second(torch.relu(self.first(x)))))


def quantized(config, seed=0):
    """Returns a model that ModelOpt has calibrated."""
    torch.manual_seed(seed)
    model = Model().eval()
    return mtq.quantize(model, getattr(mtq, config), lambda model: model(X))


def compiled_for(tensorrt, model, x=X, **settings):
    """Returns the model in one engine."""
    with torchtrt.use_tensorrt(tensorrt):
        return torchtrt.compile(model, [x], require_full_compilation=True, **settings)


def quantizing(compiled):
    """Returns how many of the pack's ops there are of each kind."""
    rows = (row for row in compiled.report.converted if "torchtrt_quantization" in row.op)
    return {row.op.split(".")[1]: row.count for row in rows}


def plan_size(compiled):
    """Returns the bytes of all plans."""
    return sum(len(module.plan) for module in compiled.modules() if hasattr(module, "plan"))


@pytest.mark.parametrize("version", NEWER)
@pytest.mark.parametrize("config", FORMATS)
def test_a_model_computes_what_modelopt_computes_with_packed_weights(config, version):
    """The plan has the weights' own bits, their scales and little more."""
    model = quantized(config)
    expected = model(X)

    compiled = compiled_for(f"reference@{version}", model)

    wanted, size = FORMATS[config]
    assert wanted == quantizing(compiled)
    assert 2e-6 > (compiled(X) - expected).norm() / expected.norm()
    count = sum(layer.weight.numel() for layer in (model.first, model.second, model.third))
    assert count * size < plan_size(compiled) < count * size * 1.15 + 12_000


@pytest.mark.parametrize("config", ["INT8_DEFAULT_CFG", "INT8_SMOOTHQUANT_CFG"])
def test_int8_runs_in_tensorrt_8_too(config):
    """Which has no other format."""
    model = quantized(config)
    expected = model(X)

    compiled = compiled_for("reference@8.6.0", model)

    assert FORMATS[config][0] == quantizing(compiled)
    assert 2e-6 > (compiled(X) - expected).norm() / expected.norm()


@pytest.mark.parametrize(
    ("config", "form", "version"),
    [("FP8_DEFAULT_CFG", "FP8", "10.0"), ("INT4_AWQ_CFG", "INT4", "10.0")],
)
def test_what_tensorrt_lacks_stays_in_pytorch_with_its_name(config, form, version):
    """Never in float32 in silence."""
    model = quantized(config)
    expected = model(X)

    with torchtrt.use_tensorrt("reference@8.6.0"):
        compiled = torchtrt.compile(model, [X], min_block_size=1)

    reasons = " ".join(row.reason for row in compiled.report.in_torch)
    assert f"The format {form} needs" in reasons
    assert f"TensorRT has from version {version} on" in reasons
    assert "allow_dequantized_weights=True" in reasons
    assert not quantizing(compiled)
    assert 2e-6 > (compiled(X) - expected).norm() / expected.norm()


def test_weights_become_floating_point_where_a_setting_allows_it():
    """With the values that they have in their format."""
    model = quantized("INT4_AWQ_CFG")
    expected = model(X)

    compiled = compiled_for("reference@8.6.0", model, allow_dequantized_weights=True)

    assert 2e-6 > (compiled(X) - expected).norm() / expected.norm()
    assert plan_size(compiled) > 4 * model.first.weight.numel()


def fake_quantized_nvfp4(weight, amax):
    """Returns a weight as ModelOpt stores and reads it."""
    double = amax.float() / (6 * 448)
    packed, scales, double = qtensor.NVFP4QTensor.quantize(weight, 16, None, double)
    return packed.dequantize(weight.dtype, scale=scales, double_scale=double, block_sizes={-1: 16})


def fake_quantized_mxfp8(weight):
    """Likewise."""
    packed, scales = qtensor.MXFP8QTensor.quantize(weight)
    return packed.dequantize(weight.dtype, scale=scales, block_sizes={-1: 32})


@pytest.mark.parametrize("version", NEWER)
@pytest.mark.parametrize("config", BLOCKS)
def test_blocks_with_scales_of_their_own_are_modelopts(config, version):
    """ModelOpt calibrates NVFP4 and MXFP8 on a CPU, and stores weights there, but computes on a GPU only."""
    model = quantized_blocks(config)
    plain = Model().eval()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if "quantizer" not in k})
    quantizers = [
        (product, getattr(model, name))
        for name, product in plain.named_children()
        if name != "quantizer"
    ]
    with torch.no_grad():
        for layer, original in quantizers:
            amax = getattr(original.weight_quantizer, "_amax", None)
            convert = fake_quantized_mxfp8 if amax is None else fake_quantized_nvfp4
            arguments = (layer.weight.detach(),) if amax is None else (layer.weight.detach(), amax)
            layer.weight.copy_(convert(*arguments))
            if original.input_quantizer.is_enabled:
                scale = getattr(original.input_quantizer, "_amax", None)
                layer.register_forward_pre_hook(input_hook(convert, scale))
    expected = plain(X)

    compiled = compiled_for(f"reference@{version}", model)

    wanted, size = BLOCKS[config]
    assert wanted == quantizing(compiled)
    assert 3e-6 > (compiled(X) - expected).norm() / expected.norm()
    count = sum(product.weight.numel() for product in (model.first, model.second, model.third))
    assert count * size < plan_size(compiled) < count * size * 1.15 + 12_000


def input_hook(convert, amax):
    """Returns a hook that quantizes and dequantizes what comes in."""
    arguments = () if amax is None else (amax,)
    return lambda _, inputs: convert(inputs[0].clone(), *arguments)


def quantized_blocks(config):
    """Returns a model with the largest magnitudes that a calibration on a GPU finds."""
    torch.manual_seed(0)
    model = mtq.quantize(Model().eval(), getattr(mtq, config), None)
    if config != "MXFP8_DEFAULT_CFG":
        for name, module in model.named_modules():
            if name.endswith("weight_quantizer"):
                module.amax = model.get_submodule(name.rpartition(".")[0]).weight.abs().max()
            elif name.endswith("input_quantizer") and module.is_enabled:
                module.amax = torch.tensor(3.0)
    return model


@pytest.mark.skipif(not torchtrt_rtx.VERSIONS, reason="TensorRT for RTX is not installed")
@pytest.mark.parametrize(
    ("config", "capability"),
    [
        ("INT8_DEFAULT_CFG", "8.9"),
        ("FP8_DEFAULT_CFG", "8.9"),
        ("INT4_AWQ_CFG", "8.9"),
        ("W4A8_AWQ_BETA_CFG", "8.9"),
        ("NVFP4_DEFAULT_CFG", "12.0"),
        ("MXFP8_DEFAULT_CFG", "12.0"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_nvidias_builder_accepts_the_networks(config, capability, dtype):
    """For GPUs that have the format."""
    model = quantized_blocks(config) if config in BLOCKS else quantized(config)

    compiled = compiled_for(
        "rtx", model.to(dtype), X.to(dtype), target_compute_capabilities=capability
    )

    assert (BLOCKS | FORMATS)[config][0] == quantizing(compiled)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float16, 5e-4), (torch.bfloat16, 4e-3)])
def test_nvfp4_in_half_precision_has_the_steps_of_float32(dtype, bound):
    """The factor of the scales is too small for float16, and bfloat16 would round it."""

    class Rounded(torch.nn.Module):
        """Values as NVFP4 holds them."""

        def forward(self, x):
            """Returns them."""
            factor = torch.tensor(0.01 / 2688)
            return torch.ops.torchtrt_quantization.fake_quantize_nvfp4(x, factor)

    torch.manual_seed(0)
    x = (torch.randn(64, 256) * 0.0025).to(dtype)

    result = compiled_for("reference@11.4.0", Rounded().eval(), x)(x)

    expected = Rounded()(x).float()
    assert (result.float() - expected).norm() < bound * expected.norm()


class Attention(nn.Module):
    """Reads the weight of one of its layers itself, as ``nn.MultiheadAttention`` does."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.last = nn.Linear(64, 64)

    def forward(self, x):
        """``(n, length, 64)`` to the same."""
        return self.last(self.attention(x, x, x, need_weights=False)[0])


@pytest.mark.parametrize("config", ["INT8_DEFAULT_CFG", "FP8_DEFAULT_CFG", "INT4_AWQ_CFG"])
def test_weights_are_quantized_where_eager_pytorch_does(config):
    """In its mode for exporting, ModelOpt quantizes every weight that is read, such as the one of ``out_proj``."""
    torch.manual_seed(0)
    model, x = Attention().eval().requires_grad_(False), torch.randn(2, 5, 64)
    model = mtq.quantize(model, getattr(mtq, config), lambda model: model(x))

    compiled = compiled_for("reference@11.4.0", model, x)

    assert 2e-6 > (compiled(x) - model(x)).norm() / model(x).norm()


@pytest.mark.parametrize(("bits", "op"), [((4, 3), "fake_quantize_fp8"), (8, "fake_quantize_int8")])
@pytest.mark.parametrize("kind", ["token", "tensor"])
def test_magnitudes_that_the_model_computes_are_computed_in_the_engine(bits, op, kind):
    """Of each token, or of all values; those of zeros are 1."""
    inputs = {"num_bits": bits, "type": "dynamic"}
    inputs |= {"block_sizes": {-1: None}} if kind == "token" else {"axis": None}
    config = {
        "quant_cfg": [
            {"quantizer_name": "*", "enable": False},
            {"quantizer_name": "*input_quantizer", "cfg": inputs},
        ],
        "algorithm": "max",
    }
    torch.manual_seed(0)
    model = mtq.quantize(Model().eval(), config, lambda model: model(X))
    x = torch.cat([X, torch.zeros(1, 320)])

    compiled = compiled_for("reference@11.4.0", model, x)

    assert {op: 3} == quantizing(compiled)
    assert 2e-6 > (compiled(x) - model(x)).norm() / model(x).norm()


def test_replaced_weights_are_packed_again():
    """By the formulas that packed the first ones."""
    model, other = quantized("INT4_AWQ_CFG"), quantized("INT4_AWQ_CFG", seed=3)
    expected = other(X)
    compiled = compiled_for("reference@11.4.0", model, immutable_weights=False)
    size = plan_size(compiled)
    with export_contexts():
        program = torch.export.export(other, (X,), strict=False)

    refitted = torchtrt.refit_module_weights(compiled, program)

    assert 2e-6 > (refitted(X) - expected).norm() / expected.norm()
    assert size == plan_size(refitted)


def test_a_saved_model_keeps_its_packed_weights(tmp_path):
    """In a file of about their size."""
    model = quantized("INT4_AWQ_CFG")
    compiled = compiled_for("reference@11.4.0", model)
    path = tmp_path / "model.pt2"

    torchtrt.save(compiled, path)

    assert torch.equal(torchtrt.load(path)(X), compiled(X))
    assert path.stat().st_size < plan_size(compiled) + 30_000


def test_modelopt_still_computes_as_it_did():
    """After a model was exported, and where amax is wrong."""
    model = quantized("INT8_DEFAULT_CFG")
    before = model(X)
    compiled_for("reference@11.4.0", model)
    assert torch.equal(before, model(X))
    model.first.input_quantizer._amax.fill_(-1.0)
    with pytest.raises(ValueError, match="Negative"):
        model(X)


def test_errors_name_the_format_in_full_compilation():
    """As the report does."""
    with pytest.raises(FullCompilationError, match="The format FP8 needs"):
        compiled_for("reference@8.6.0", quantized("FP8_DEFAULT_CFG"))
