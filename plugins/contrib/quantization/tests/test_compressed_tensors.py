"""Checkpoints of transformers that compressed-tensors has quantized, with small random weights."""

import re
import warnings

import pytest
import torch

import torchtrt
import torchtrt_rtx
from torchtrt.errors import InputError, UnsupportedProgramError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    from compressed_tensors.quantization import (
        QuantizationArgs,
        QuantizationConfig,
        apply_quantization_config,
        preset_name_to_scheme,
    )
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

from torchtrt_converters_quantization.checkpoints import packed, packed_checkpoints
from torchtrt_converters_quantization.checkpoints.layers import unpacked

pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.arange(8)[None]
SIZES = {
    "vocab_size": 64, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": False,
    "use_cache": False,
}  # fmt: skip
SCHEMES = {
    "W4A16": ({"dequantize_int4": 1}, 0.5),
    "W4A16_ASYM": ({"dequantize_int4": 1}, 0.5),
    "W3A16": ({"dequantize_int4": 1}, 0.5),
    "W6A16": ({"dequantize_int8": 1}, 1),
    "W8A16": ({"dequantize_int8": 1}, 1),
    "FP8": ({"dequantize_fp8": 1, "fake_quantize_fp8": 1}, 1),
    "NVFP4A16": ({"dequantize_fp4": 1, "dequantize_fp8": 1}, 0.5),
    "MXFP4A16": ({"dequantize_fp4": 1, "dequantize_fp8": 1}, 0.5),
    "MXFP8A16": ({"dequantize_fp8": 1}, 1),
    "W8A8": ({"dequantize_int8": 1, "fake_quantize_int8": 1}, 1),
    "W4A8": ({"dequantize_int4": 1, "fake_quantize_int8": 1}, 0.5),
    "W4AFP8": ({"dequantize_int4": 1, "fake_quantize_fp8": 1}, 0.5),
    "FP8_DYNAMIC": ({"dequantize_fp8": 1, "fake_quantize_fp8": 1}, 1),
    "FP8_BLOCK": ({"dequantize_fp8": 1, "fake_quantize_fp8": 1}, 1),
}
"""For a scheme the ops of a layer's network, and the bytes of a weight."""
CHECKPOINTS = ("W4A16_ASYM", "NVFP4A16", "FP8_DYNAMIC")
DTYPES = {torch.float32: ("float32", 2e-6), torch.bfloat16: ("bfloat16", 8e-3)}
"""For a dtype its name, and what its rounding may change, relatively."""


def set_scales(module, weights):
    """Sets the scales and zero points of a layer by the magnitudes of its weight."""
    weight, options = module.weight, {}
    if hasattr(module, "weight_global_scale"):
        module.weight_global_scale.data.copy_(generate_gparam(weight.min(), weight.max()))
        options["global_scale"] = module.weight_global_scale
    if weights.strategy == "tensor":
        least, most = weight.min(), weight.max()
    elif weights.strategy == "block":
        blocks = weight.unflatten(-1, (-1, 128)).unflatten(0, (-1, 128))
        least, most = blocks.amin((1, 3)), blocks.amax((1, 3))
    else:
        size = weights.group_size
        rows = weight.unflatten(-1, (-1, size)) if size else weight
        least, most = rows.amin(-1, keepdim=not size), rows.amax(-1, keepdim=not size)
    scale, zero = calculate_qparams(least, most, weights, **options)
    module.weight_scale.data.copy_(scale.reshape(module.weight_scale.shape))
    if not weights.symmetric:
        module.weight_zero_point.data.copy_(zero)
    if getattr(module, "input_scale", None) is not None:
        module.input_scale.data.fill_(0.02)


def quantize(model, scheme):
    """Quantizes the linear layers of a model by a scheme of compressed-tensors, in place."""
    groups = {"group": preset_name_to_scheme(scheme, ["Linear"])}
    config = QuantizationConfig(
        config_groups=groups, ignore=["lm_head"], quantization_status="frozen"
    )
    apply_quantization_config(model, config)
    for module in model.modules():
        if getattr(module, "quantization_scheme", None) is not None:
            set_scales(module, module.quantization_scheme.weights)


def layer_of(scheme, dtype=torch.float32):
    """Returns a packed layer, an input, and what the layer returned before its weights were packed."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 384)).eval().to(dtype).requires_grad_(False)
    quantize(model, scheme)
    x = torch.randn(2, 5, 256).to(dtype)
    expected = model(x)
    ModelCompressor.from_pretrained_model(model).compress_model(model)
    return packed(model), x, expected


def checkpoint(scheme, folder):
    """Writes a checkpoint, and returns the results of the model before its weights were packed."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()
    quantize(model, scheme)
    with torch.no_grad():
        expected = model(IDS).logits
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    return expected


def compiled_for(version, model, x):
    """Returns the model in one engine of the reference."""
    with torchtrt.use_tensorrt(f"reference@{version}"):
        return torchtrt.compile(model, [x], require_full_compilation=True)


def quantizing(compiled):
    """Returns how many of the pack's ops there are of each kind."""
    rows = (row for row in compiled.report.converted if "torchtrt_quantization" in row.op)
    return {row.op.split(".")[1]: row.count for row in rows}


@pytest.mark.parametrize(
    ("scheme", "dtype"),
    [
        *((scheme, torch.float32) for scheme in SCHEMES),
        *(
            (scheme, torch.bfloat16)
            for scheme in ("W4A16_ASYM", "W8A8", "FP8_DYNAMIC", "FP8_BLOCK")
        ),
    ],
    ids=lambda dtype_id: dtype_id if isinstance(dtype_id, str) else DTYPES[dtype_id][0],
)
def test_a_layer_computes_what_compressed_tensors_computes(scheme, dtype):
    """Within the rounding of its dtype, with the weights packed in the plan."""
    model, x, expected = layer_of(scheme, dtype)

    compiled = compiled_for("11.4.0", model, x)

    ops, size = SCHEMES[scheme]
    assert ops == quantizing(compiled)
    for result in (model(x), compiled(x)):
        assert (result - expected).norm() <= DTYPES[dtype][1] * expected.norm()
    plan = sum(len(module.plan) for module in compiled.modules() if hasattr(module, "plan"))
    assert plan < 256 * 384 * size * 1.2 + 16_000


@pytest.mark.skipif(not torchtrt_rtx.VERSIONS, reason="TensorRT for RTX is not installed")
@pytest.mark.parametrize("scheme", ["W4A16_ASYM", "W4AFP8", "W8A8", "FP8_BLOCK", "MXFP4A16"])
def test_nvidias_builder_accepts_a_layer(scheme):
    """For a GPU that has all formats."""
    model, x, _ = layer_of(scheme, torch.bfloat16)

    with torchtrt.use_tensorrt("rtx"):
        compiled = torchtrt.compile(
            model, [x], require_full_compilation=True, target_compute_capabilities="12.0"
        )

    assert SCHEMES[scheme][0] == quantizing(compiled)


@pytest.mark.parametrize("scheme", CHECKPOINTS)
def test_a_checkpoint_computes_what_it_did(scheme, tmp_path):
    """Where a value lies between two of FP8, either may be the nearer one."""
    expected = checkpoint(scheme, tmp_path)
    with packed_checkpoints():
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()

    compiled = compiled_for("11.4.0", model.requires_grad_(False), IDS)

    assert {name: 7 * count for name, count in SCHEMES[scheme][0].items()} == quantizing(compiled)
    assert (compiled(IDS).logits - expected).norm() < 2e-2 * expected.norm()


def test_a_model_that_was_loaded_otherwise_can_be_packed(tmp_path):
    """Before its first call, which would unpack it."""
    expected = checkpoint("W4A16", tmp_path)
    model = packed(transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval())

    assert (model(IDS).logits - expected).norm() < 1e-5 * expected.norm()


def test_int8_of_each_token_runs_in_tensorrt_8():
    """Which has Quantize and Dequantize layers with known scales only."""
    model, x, expected = layer_of("W8A8")

    compiled = compiled_for("8.6.0", model, x)

    assert SCHEMES["W8A8"][0] == quantizing(compiled)
    assert (compiled(x) - expected).norm() < 2e-6 * expected.norm()


@pytest.mark.parametrize("scheme", ["W8A8", "FP8_DYNAMIC"])
def test_small_inputs_of_float16_do_not_overflow(scheme):
    """Before its scale, a product of rounded values may exceed float16."""
    model, x, _ = layer_of(scheme, torch.float16)
    model[0].data.fill_(100)
    model[0].scale.fill_(8)
    x = (x.abs() + 1) / 8192

    compiled = compiled_for("11.4.0", model, x)

    expected = x.float().sum(-1, keepdim=True) * 800 + model[0].bias.float()
    assert (compiled(x).float() - expected).norm() < 0.05 * expected.norm()


def test_columns_in_the_order_of_their_groups():
    """As GPTQ orders them: the layer reads its inputs in this order."""
    _, x, _ = layer_of("W4A16")
    torch.manual_seed(0)
    other = torch.nn.Sequential(torch.nn.Linear(256, 384)).eval().requires_grad_(False)
    order = torch.randperm(256)
    other[0].weight.data = other[0].weight[:, order].contiguous()
    quantize(other, "W4A16")
    ModelCompressor.from_pretrained_model(other).compress_model(other)
    values = unpacked(other[0].weight_packed, 4, 256)
    shuffled = torch.empty_like(values).index_copy_(1, order, values)
    other[0].weight_packed.data = pack_to_int32((shuffled - 8).to(torch.int8), 4)
    groups = torch.empty(256, dtype=torch.int32)
    groups[order] = torch.arange(256, dtype=torch.int32) // 128
    other[0].register_buffer("weight_g_idx", groups)
    scale = other[0].weight_scale.repeat_interleave(128, 1)
    weight = torch.empty(384, 256).index_copy_(1, order, (values - 8) * scale)
    expected = torch.nn.functional.linear(x, weight, other[0].bias)

    compiled = compiled_for("11.4.0", packed(other), x)

    assert (compiled(x) - expected).norm() < 2e-6 * expected.norm()


@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        ("MXFP8", "inputs of 8 bits (float) with scales of other types"),
        ("W4A4", "inputs of 4 bits (int)"),
    ],
)
def test_what_tensorrt_has_no_layers_for_is_refused(scheme, reason):
    """With the name of the layer."""
    with pytest.raises(UnsupportedProgramError, match=rf"'0' has {re.escape(reason)}"):
        layer_of(scheme)


WRONG = {
    "no scale": ({"weight_scale": None}, "KeyError"),
    "rows of the scale": ({"weight_scale": torch.ones(15, 1)}, "the scale is"),
    "one dimension": ({"weight_scale": torch.ones(16)}, "the scale is"),
    "groups that do not divide": ({"weight_scale": torch.ones(16, 5)}, "the scale is"),
    "an integer scale": ({"weight_scale": torch.ones(16, 1, dtype=torch.int32)}, "the scale is"),
    "FP8 as INT8": ({"weight": torch.ones(16, 64).to(torch.float8_e4m3fn)}, "the weight of INT8"),
    "words of fewer columns": (
        {
            "weight_packed": torch.ones(16, 6, dtype=torch.int32),
            "weight_shape": torch.tensor([16, 64]),
        },
        "words for",
    ),
    "a short bias": ({"bias": torch.ones(15)}, "the bias is"),
}


@pytest.mark.parametrize("case", WRONG)
def test_tensors_that_contradict_the_scheme_are_refused(case):
    """A damaged checkpoint, or one whose configuration is of another: the engine would have other values."""
    tensors, reason = WRONG[case]
    layer = torch.nn.Linear(64, 16, bias=False)
    layer.quantization_scheme = preset_name_to_scheme("W8A16", ["Linear"])
    del layer.weight, layer.bias
    weight = torch.ones(16, 64, dtype=torch.int8)
    tensors_ = {"weight": weight, "weight_scale": torch.ones(16, 1), "bias": None, **tensors}
    for name, value in tensors_.items():
        layer.register_buffer(name, value)
    model = torch.nn.Sequential(layer)

    message = rf"'0' has tensors that do not belong to its scheme \(.*{reason}"
    with pytest.raises(UnsupportedProgramError, match=message):
        packed(model)
    assert model[0] is layer


def test_a_layer_with_a_known_scale_compiles_alone():
    """Its buffers that are None come before the scale of its inputs."""
    model, x, expected = layer_of("FP8")

    compiled = compiled_for("11.4.0", model[0], x)

    assert SCHEMES["FP8"][0] == quantizing(compiled)
    assert (compiled(x) - expected).norm() < 2e-6 * expected.norm()


def test_packed_takes_models_and_layers():
    """A layer alone is returned, and one that a model has twice is replaced twice."""
    with pytest.raises(InputError, match=r"packed\(\) takes a model, and not a NoneType"):
        packed(None)
    torch.manual_seed(0)
    layer = torch.nn.Linear(256, 256).eval().requires_grad_(False)
    model, x = torch.nn.Sequential(layer, layer), torch.randn(3, 256)
    quantize(model, "W8A16")
    expected = model(x)
    ModelCompressor.from_pretrained_model(model).compress_model(model)

    alone = packed(model[0])
    assert packed(model)[0] is model[1]

    assert isinstance(alone, torch.nn.Module)
    assert alone is not layer
    torch.testing.assert_close(alone(alone(x)), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("scheme", "count"),
    [
        ({"type": "float"}, {"fake_quantize_fp8": 2}),
        ({"type": "int", "strategy": "attn_head", "symmetric": False}, {}),
    ],
    ids=["FP8", "INT8 with zero points"],
)
def test_keys_and_values_are_quantized_in_the_engine(scheme, count):
    """The whole model is one, as in a call without a cache. INT8 is computed with ordinary layers."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()
    groups = {"group": preset_name_to_scheme("W8A16", ["Linear"])}
    cache = QuantizationArgs(**{"num_bits": 8, "strategy": "tensor", **scheme})
    config = QuantizationConfig(
        config_groups=groups,
        ignore=["lm_head"],
        kv_cache_scheme=cache,
        quantization_status="frozen",
    )
    apply_quantization_config(model.requires_grad_(False), config)
    for module in model.modules():
        if getattr(module, "kv_cache", None) is not None:
            module.k_scale.data.fill_(0.02), module.v_scale.data.fill_(0.03)
        elif getattr(module, "quantization_scheme", None) is not None:
            set_scales(module, module.quantization_scheme.weights)
    expected = model(IDS).logits
    with pytest.raises(
        UnsupportedProgramError, match=r"q_proj' is not compressed\. Compress the mod"
    ):
        packed(model)
    ModelCompressor.from_pretrained_model(model).compress_model(model)

    compiled = compiled_for("11.4.0", packed(model), IDS)

    assert {"dequantize_int8": 7, **count} == quantizing(compiled)
    assert (compiled(IDS).logits - expected).norm() < 1e-5 * expected.norm()
    model.model.layers[0].self_attn.quantization_enabled = False
    assert (model(IDS).logits - expected).norm() > 1e-3 * expected.norm()


@pytest.mark.slow  # eight seconds: it compiles a step of generation
def test_texts_of_a_checkpoint_are_eagers():
    """With zero points, over the cache of compiled generation."""
    generation = pytest.importorskip("torchtrt_converters_transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES | {"use_cache": True, "eos_token_id": None})
    model = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    quantize(model, "W4A16_ASYM")
    ModelCompressor.from_pretrained_model(model).compress_model(model)
    options = {"max_new_tokens": 12, "do_sample": False}

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = generation.compile_for_generation(
            packed(model), max_length=32, prefill_engine=False, require_full_compilation=True
        )
        texts = compiled.generate(IDS, **options)

    assert torch.equal(texts, model.generate(IDS, **options))
