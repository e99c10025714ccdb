"""Checkpoints of transformers that compressed-tensors has quantized, with small random weights."""

import warnings

import pytest
import torch

import torchtrt
from torchtrt.errors import UnsupportedProgramError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (
        QuantizationConfig,
        apply_quantization_config,
        preset_name_to_scheme,
    )
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

from torchtrt_converters_quantization.checkpoints import packed

pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.arange(8)[None]
SIZES = {
    "vocab_size": 64, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": False,
    "use_cache": False,
}  # fmt: skip
SCHEMES = {
    "W4A16": ({"dequantize_int4": 7}, 0.5),
    "W8A16": ({"dequantize_int8": 7}, 1),
    "FP8": ({"dequantize_fp8": 7, "fake_quantize_fp8": 7}, 1),
    "NVFP4A16": ({"dequantize_fp4": 7, "dequantize_fp8": 7}, 0.5),
}
"""For a scheme the ops of its network, and the bytes of a weight."""
WEIGHTS = 256 * (256 + 128 + 128 + 256) + 3 * 256 * 512
OTHERS = 2 * 2 * 64 * 256
"""The bytes of the embeddings and of the last layer, which are bfloat16."""


def set_scales(module, weights):
    """Sets the scales of a layer by the magnitudes of its weight."""
    weight, options = module.weight, {}
    if hasattr(module, "weight_global_scale"):
        module.weight_global_scale.data.copy_(generate_gparam(weight.min(), weight.max()))
        options["global_scale"] = module.weight_global_scale
    size = weights.group_size
    rows = weight.unflatten(-1, (-1, size)) if size else weight
    least, most = rows.amin(-1, keepdim=not size), rows.amax(-1, keepdim=not size)
    if weights.strategy == "tensor":
        least, most = weight.min(), weight.max()
    scale, _ = calculate_qparams(least, most, weights, **options)
    module.weight_scale.data.copy_(scale.reshape(module.weight_scale.shape))
    if getattr(module, "input_scale", None) is not None:
        module.input_scale.data.fill_(0.02)


def checkpoint(scheme, folder):
    """Writes a checkpoint, and returns the results of the model before its weights were packed."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval().bfloat16()
    groups = {"group": preset_name_to_scheme(scheme, ["Linear"])}
    config = QuantizationConfig(
        config_groups=groups, ignore=["lm_head"], quantization_status="frozen"
    )
    apply_quantization_config(model, config)
    for module in model.modules():
        if getattr(module, "quantization_scheme", None) is not None:
            set_scales(module, module.quantization_scheme.weights)
    with torch.no_grad():
        expected = model(IDS).logits
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    return expected.float()


def loaded(folder):
    """Returns the model of a checkpoint."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval().requires_grad_(False)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_checkpoint_computes_what_it_did_with_packed_weights(scheme, tmp_path):
    """As compressed-tensors fake-quantizes it, within the rounding of bfloat16."""
    expected = checkpoint(scheme, tmp_path)
    model = packed(loaded(tmp_path))

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [IDS], require_full_compilation=True)

    ops, size = SCHEMES[scheme]
    rows = [row for row in compiled.report.converted if "torchtrt_quantization" in row.op]
    assert ops == {row.op.split(".")[1]: row.count for row in rows}
    assert (model(IDS).logits.float() - expected).norm() < 0.02 * expected.norm()
    assert (compiled(IDS).logits.float() - expected).norm() < 0.03 * expected.norm()
    plan = sum(len(each.plan) for each in compiled.modules() if hasattr(each, "plan"))
    assert plan < OTHERS + WEIGHTS * size * 1.2 + 30_000


@pytest.mark.parametrize("scheme", ["W8A8", "FP8_DYNAMIC"])
def test_what_tensorrt_has_no_format_for_is_refused(scheme, tmp_path):
    """Scales for each token of the input."""
    checkpoint(scheme, tmp_path)
    model = loaded(tmp_path)

    with pytest.raises(UnsupportedProgramError, match=r"q_proj.*a scale for each token"):
        packed(model)
