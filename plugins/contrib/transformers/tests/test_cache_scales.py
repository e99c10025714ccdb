"""Caches with the scales of a checkpoint's ``kv_cache_scheme``: texts are the checkpoint's own."""

import warnings

import pytest
import torch
import transformers

from torchtrt.errors import UnsupportedProgramError

from .conftest import GROUPED, model_of, prompts
from .test_cache_formats import OPTIONS, compiled_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (
        QuantizationArgs,
        QuantizationConfig,
        QuantizationScheme,
        apply_quantization_config,
    )
    from safetensors.torch import load_file, save_file

from torchtrt_converters_quantization.checkpoints import packed_checkpoints

pytestmark = pytest.mark.filterwarnings("ignore")
DTYPES = {"float": torch.float8_e4m3fn, "int": torch.int8}


def model_with(dtype=torch.float32, layers=2, **scheme):
    """Returns a Llama with weights of INT8 and a scheme for its cache."""
    model = (
        model_of(transformers.LlamaConfig(**{**GROUPED, "num_hidden_layers": layers}))
        .requires_grad_(False)
        .to(dtype)
    )
    weights = QuantizationArgs(num_bits=8, type="int", strategy="channel")
    cache = QuantizationArgs(**{"num_bits": 8, "type": "float", "strategy": "tensor", **scheme})
    config = QuantizationConfig(
        config_groups={"group": QuantizationScheme(targets=["Linear"], weights=weights)},
        ignore=["lm_head"],
        kv_cache_scheme=cache,
        quantization_status="frozen",
    )
    apply_quantization_config(model, config)
    for module in model.modules():
        if hasattr(module, "weight_scale"):
            module.weight_scale.data = module.weight.abs().amax(-1, keepdim=True) / 127
    for number, layer in enumerate(model.model.layers):
        for name, scale in (("k_scale", 0.4), ("v_scale", 0.3)):
            if hasattr(layer.self_attn, name):
                getattr(layer.self_attn, name).data.fill_(scale + number / 10)
    return model


def checkpoint(folder, **scheme):
    """Writes a checkpoint."""
    model = model_with(**scheme)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    return folder


def loaded(folder, *, packed=True):
    """Returns the model of a checkpoint."""
    if packed:
        with packed_checkpoints():
            return loaded(folder, packed=False)
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


def texts(model, options, prompt):
    """Returns what a model generates."""
    ids, mask = prompt
    return model.generate(ids, attention_mask=mask, **{**OPTIONS, **options}).tolist()


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("float", 1),
        *(pytest.param(kind, 2, marks=pytest.mark.slow) for kind in DTYPES),  # half a minute each
    ],
)
def test_texts_are_those_of_the_checkpoint(kind, layers, tmp_path):
    """Of beams of padded prompts, and of one token; and not those of a cache that does not round."""
    checkpoint(tmp_path, type=kind, layers=layers)
    options = {"max_batch_size": 6, "prefill_engine": False}
    compiled = compiled_of(loaded(tmp_path), cache_dtype=None, **options)

    assert compiled.layout.dtype is DTYPES[kind]
    model, exact = (loaded(tmp_path, packed=False) for _ in range(2))
    for layer in exact.model.layers:
        layer.self_attn.quantization_enabled = False
    for options, prompt in (
        ({"num_beams": 2}, prompts(3, 9, padding=(4, 0, 1))),
        ({}, prompts(2, 1)),
    )[:layers]:
        expected = texts(model, options, prompt)
        assert expected == texts(compiled, options, prompt)
        assert expected != texts(exact, options, prompt)


@pytest.mark.slow  # builds engines of its own
@pytest.mark.parametrize("kind", DTYPES)
def test_half_precision_differs_no_more_than_its_rounding(kind, tmp_path):
    """compressed-tensors divides in bfloat16, as the engine does."""
    checkpoint(tmp_path, dtype=torch.bfloat16, type=kind)
    ids, _ = prompts(3, 9)

    expected = loaded(tmp_path, packed=False)(ids).logits[:, -1].float()
    result = compiled_of(loaded(tmp_path), cache_dtype=None)(ids).logits[:, -1].float()

    assert (result - expected).norm() < 0.05 * expected.norm()


@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        ({"strategy": "attn_head"}, "it has a scale for each attn_head"),
        (
            {"strategy": "token", "dynamic": True},
            "its scales are computed while it runs and it has a scale for each token",
        ),
        ({"type": "int", "symmetric": False}, "its keys and values have zero points"),
        ({"type": "int", "num_bits": 4}, r"its keys and values have 4 bits \(int\), and not 8"),
    ],
)
def test_other_schemes_are_refused(scheme, reason):
    """With the layer and the reason."""
    message = f"`kv_cache_scheme` of its layer 0 has no cache in an engine: {reason}"
    with pytest.raises(UnsupportedProgramError, match=message):
        compiled_of(model_with(**scheme), cache_dtype=None)


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan")])
def test_scales_that_are_none_are_refused(number):
    """The quotient would be infinite, or the sign another."""
    model = model_with()
    model.model.layers[1].self_attn.v_scale.data.fill_(number)

    with pytest.raises(
        UnsupportedProgramError, match=f"layer 1 has no .*: its v_scale is {number:g}"
    ):
        compiled_of(model, cache_dtype=None)


def test_a_checkpoint_without_scales_is_refused(tmp_path):
    """Transformers leaves memory as it was in their place."""
    checkpoint(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {
        name: weight
        for name, weight in load_file(file).items()
        if "layers.1.self_attn.k_sc" not in name
    }
    save_file(tensors, file, {"format": "pt"})

    with pytest.raises(
        UnsupportedProgramError, match=r"no k_scale for the layer 'model\.layers\.1\."
    ):
        loaded(tmp_path)
    with pytest.raises(
        UnsupportedProgramError, match=r"layer 1 has no .*its checkpoint has no k_sca"
    ):
        compiled_of(loaded(tmp_path, packed=False), cache_dtype=None)


def test_a_quantized_query_is_refused():
    """compressed-tensors quantizes all inputs of an attention that a group names."""
    model = model_with()
    for layer in model.model.layers:
        layer.self_attn.impl = torch.nn.Identity()

    with pytest.raises(UnsupportedProgramError, match="its queries are quantized as well"):
        compiled_of(model, cache_dtype=None)
