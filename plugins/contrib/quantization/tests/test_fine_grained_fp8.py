"""Checkpoints of ``FineGrainedFP8Config`` of transformers, with small random weights, on a CPU."""

import json
import warnings

import pytest
import torch

import torchtrt
import torchtrt_rtx
from torchtrt.errors import UnsupportedProgramError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    fp8 = pytest.importorskip("transformers.integrations.finegrained_fp8")
    from safetensors.torch import save_file

from torchtrt_converters_quantization.checkpoints import packed, packed_checkpoints

pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.arange(8)[None]
SIZES = {
    "vocab_size": 64, "hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": False,
    "use_cache": False, "dtype": "float32",
}  # fmt: skip
BYTES = 256 * (256 + 128 + 128 + 256) + 3 * 256 * 384


class Method:
    """What ``Fp8Quantize`` of transformers reads."""

    def __init__(self, **options):
        self.quantization_config = transformers.FineGrainedFP8Config(**options)


def checkpoint(folder):
    """Writes a checkpoint whose weights transformers has quantized."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    method = Method()
    tensors = {}
    for name, value in model.state_dict().items():
        is_linear = name.endswith("proj.weight")
        made = fp8.Fp8Quantize(method).convert({name: value}) if is_linear else {name: value}
        tensors.update({key: result.clone().contiguous() for key, result in made.items()})
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = model.config.to_dict() | {
        "quantization_config": method.quantization_config.to_dict(),
        "architectures": ["LlamaForCausalLM"],
    }
    (folder / "config.json").write_text(json.dumps(config))


def rounded(x, block):
    """Returns an input as E4M3 holds it with a float32 scale for each block of the last dimension."""
    blocks = x.float().unflatten(-1, (-1, block))
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    return ((blocks / scale).to(torch.float8_e4m3fn).float() * scale).flatten(-2).to(x.dtype)


def layer(width=256, out=384, **options):
    """Returns a layer of transformers with a quantized weight, and the weight as transformers dequantizes it."""
    torch.manual_seed(0)
    options = {"block_size": (128, 128)} | options
    module = fp8.FP8Linear(width, out, has_bias=True, **options)
    scale_format = options.get("scale_fmt", "float")
    method = Method(weight_block_size=options["block_size"], scale_fmt=scale_format)
    weight = torch.randn(out, width) / 16 * torch.rand(out, 1)
    made = fp8.Fp8Quantize(method).convert({"weight": weight})
    scale = made["weight_scale_inv"].reshape(module.weight_scale_inv.shape)
    module.weight.data, module.weight_scale_inv.data = made["weight"], scale
    module.bias.data = torch.randn(out)
    dense = fp8.Fp8Dequantize(method)._dequantize_one(
        made["weight"], made["weight_scale_inv"], torch.float32
    )
    return torch.nn.Sequential(module).eval().requires_grad_(False), dense


def compiled_for(tensorrt, model, x, **settings):
    """Returns the model in one engine."""
    with torchtrt.use_tensorrt(tensorrt):
        return torchtrt.compile(model, [x], require_full_compilation=True, **settings)


def test_a_checkpoint_computes_in_its_blocks_without_a_gpu(tmp_path):
    """Where transformers itself would return a model of floating point, with which the test compares."""
    checkpoint(tmp_path)
    dense = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    for module in dense.model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs: rounded(inputs[0], 128))
    with torch.no_grad():
        expected = dense(IDS).logits
    with packed_checkpoints():
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()

    compiled = compiled_for("reference@11.4.0", model.requires_grad_(False), IDS)

    counts = {row.op.split(".")[1]: row.count for row in compiled.report.converted}
    assert counts["dequantize_fp8"] == counts["fake_quantize_fp8"] == 7
    assert (compiled(IDS).logits - expected).norm() < 2e-2 * expected.norm()
    plan = sum(len(module.plan) for module in compiled.modules() if hasattr(module, "plan"))
    assert plan < BYTES * 1.1 + 2 * 4 * 64 * 256 + 40_000


@pytest.mark.parametrize("version", ["10.16.1", "11.4.0"])
@pytest.mark.parametrize(
    ("options", "block"),
    [
        ({}, 128),
        ({"width": 192, "out": 200, "block_size": (8, 64)}, 64),
        ({"block_size": None}, 256),
        ({"scale_fmt": "ue8m0"}, 128),
    ],
    ids=["blocks", "small-blocks", "tensor", "powers-of-two"],
)
def test_a_layer_computes_with_its_weight_dequantized(options, block, version):
    """As transformers dequantizes it, and with its input in blocks of the same width."""
    model, dense = layer(**options)
    x = torch.randn(2, 3, model[0].in_features)
    bias = model[0].bias
    expected = torch.nn.functional.linear(rounded(x, block), dense, bias)

    compiled = compiled_for(f"reference@{version}", packed(model), x)

    assert (compiled(x) - expected).norm() < 2e-6 * expected.norm()


def test_a_static_scale_of_the_input_is_a_quantize_layer():
    """Known when the engine is built."""
    model, dense = layer(activation_scheme="static", block_size=None)
    model[0].activation_scale.data = torch.tensor(0.01)
    x = torch.randn(2, 3, 256)
    inputs = (x / 0.01).clamp(-448, 448).to(torch.float8_e4m3fn).float() * 0.01
    expected = torch.nn.functional.linear(inputs, dense, model[0].bias)

    compiled = compiled_for("reference@11.4.0", packed(model), x)

    assert (compiled(x) - expected).norm() < 2e-6 * expected.norm()


@pytest.mark.skipif(not torchtrt_rtx.VERSIONS, reason="TensorRT for RTX is not installed")
@pytest.mark.parametrize("options", [{}, {"block_size": None}], ids=["blocks", "tensor"])
def test_nvidias_builder_accepts_a_layer(options):
    """For GPUs of compute capability 8.9."""
    model, _ = layer(**options)
    x = torch.randn(2, 3, 256)

    compiled = compiled_for(
        "rtx", packed(model).bfloat16(), x.bfloat16(), target_compute_capabilities="8.9"
    )

    assert compiled.report.converted


def test_tensorrt_8_leaves_fp8_to_pytorch():
    """Or dequantizes nothing."""
    model, _ = layer()
    x = torch.randn(2, 3, 256)

    with torchtrt.use_tensorrt("reference@8.6.0"):
        compiled = torchtrt.compile(packed(model), [x], min_block_size=1)

    rows = {row.op.split(".")[1]: row.reason for row in compiled.report.in_torch}
    assert "The format FP8 needs" in rows["dequantize_fp8"]
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"width": 192}, "blocks of 128 inputs that do not divide its 192 inputs"),
        ({"block_size": (1, 32), "scale_fmt": "ue8m0"}, "blocks of 32 with powers of two"),
    ],
)
def test_what_the_library_does_not_define_is_refused(options, reason):
    """Or what no layer computes."""
    options = {"width": 256, "block_size": (128, 128)} | options
    width = options.pop("width")
    model = torch.nn.Sequential(fp8.FP8Linear(width, 128, **options))

    with pytest.raises(UnsupportedProgramError, match=f"'0' has {reason}"):
        packed(model)
