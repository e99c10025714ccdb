"""Families of language models, each with what is its own: sinks, latent keys, experts, quantized weights."""

import pytest
import torch
import transformers

import torchtrt
from torchtrt.tensorrt import is_real
from torchtrt_converters_transformers import compile_for_generation

from .conftest import GROUPED, ONE, REAL, VERSIONS, Pair, model_of, prompts

EXPERTS = {"num_experts_per_tok": 1, "moe_intermediate_size": 16}
FAMILIES = {
    "gpt-oss": lambda: transformers.GptOssConfig(
        **GROUPED,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=6,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    ),
    "deepseek-v3": lambda: transformers.DeepseekV3Config(
        **{**GROUPED, "num_key_value_heads": 4},
        **EXPERTS,
        n_routed_experts=4,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=6,
    ),
    "qwen3-moe": lambda: transformers.Qwen3MoeConfig(**ONE, **EXPERTS, head_dim=8, num_experts=2),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **GROUPED,
        head_dim=8,
        sliding_window=6,
        layer_types=["sliding_attention", "full_attention"],
    ),
}


def assert_texts_are_eagers(model, version, **settings):
    """Padded prompts that outgrow the window: greedy, with beams and sampled."""
    with torchtrt.use_tensorrt(version):
        compiled = compile_for_generation(
            model,
            max_batch_size=6,
            max_length=40,
            require_full_compilation=True,
            **REAL,
            **settings,
        )
    pair = Pair(model, compiled)
    ids, mask = prompts(2, 9, padding=(3,))
    pair.assert_same_texts(ids, mask, max_new_tokens=20)
    pair.assert_same_texts(ids, mask, max_new_tokens=12, num_beams=3)
    pair.assert_same_texts(ids, mask, max_new_tokens=12, do_sample=True, top_k=20)
    assert 1 == len(compiled.step.report.blocks)
    return compiled


def assert_greedy_texts_are_eagers(model):
    """Padded prompts, in one engine."""
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        compiled = compile_for_generation(
            model,
            max_batch_size=2,
            max_length=40,
            prefill_engine=False,
            require_full_compilation=True,
            **REAL,
        )
    ids, mask = prompts(2, 9, padding=(3,))
    Pair(model, compiled).assert_same_texts(ids, mask, max_new_tokens=20)


def test_sinks_windows_and_experts():
    """A layer of gpt-oss reads a window, and each head has the score of a key without a value."""
    config = FAMILIES["gpt-oss"]()
    config = type(config).from_dict(
        {**config.to_dict(), "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}
    )

    assert_texts_are_eagers(model_of(config), VERSIONS[-1], prefill_engine=False)


def test_a_layer_may_count_the_tokens_in_the_cache():
    """A layer of Llama 4 without positions multiplies its queries by a number that grows every 8 tokens."""
    config = transformers.Llama4TextConfig(
        **ONE,
        head_dim=8,
        intermediate_size_mlp=48,
        moe_layers=[],
        no_rope_layers=[0],
        floor_scale=8,
        attn_scale=2.0,
    )

    assert_greedy_texts_are_eagers(model_of(config))


def test_engines_of_experts_take_two_sequences():
    """Their code compares the number of sequences, and torch.export then leaves 1 out of 1 and 2."""
    config = transformers.MixtralConfig(**ONE, num_local_experts=2, num_experts_per_tok=1)

    assert_greedy_texts_are_eagers(model_of(config))


ROPE = {
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "long_factor": [4.0] * 4,
        "short_factor": [1.5] * 4,
        "original_max_position_embeddings": 40,
    },
}


def test_rotary_embeddings_may_change_with_the_length_beyond_the_engines():
    """In each call their code reads the length, and keeps the frequencies of a longer text until then."""
    types = {"sliding_attention": ROPE["dynamic"], "full_attention": ROPE["longrope"]}
    config = transformers.Gemma3TextConfig(
        **GROUPED, head_dim=8, layer_types=[*types], rope_parameters=types
    )
    model = model_of(config)
    model(torch.ones((1, 165), dtype=torch.int64, device=model.device))

    assert_greedy_texts_are_eagers(model)


@pytest.mark.slow  # the same for a class whose layers share one embedding
def test_one_rotary_embedding_may_change_with_the_length():
    """As Phi-3's for 128,000 tokens."""
    config = transformers.Phi3Config(
        **ONE, original_max_position_embeddings=40, rope_parameters=ROPE["longrope"]
    )
    model = model_of(config)
    model(torch.ones((1, 165), dtype=torch.int64, device=model.device))

    assert_greedy_texts_are_eagers(model)


@pytest.mark.slow  # each compiles two engines, in up to half a minute
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", FAMILIES)
def test_texts_of_families_are_eagers(name, version):
    """Both engines, on every TensorRT."""
    compiled = assert_texts_are_eagers(model_of(FAMILIES[name]()), version)

    if name == "deepseek-v3":  # what is cached is the latent, and its positions
        assert ((1, 8), (1, 4), (1, 8), (1, 4)) == compiled.layout.shapes


@pytest.mark.slow  # nine seconds each; the quantization pack has fast tests of the layers
@pytest.mark.skipif(is_real(), reason="compares with weights that PyTorch dequantizes on the CPU")
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_texts_of_quantized_models_are_eagers(weights):
    """With packed weights of torchao."""
    quantization = pytest.importorskip("torchao.quantization")
    choose = {
        "int8": quantization.Int8WeightOnlyConfig,
        "int4": lambda: quantization.IntxWeightOnlyConfig(
            weight_dtype=torch.int4, granularity=quantization.PerGroup(32)
        ),
    }
    config = transformers.LlamaConfig(**{**ONE, "intermediate_size": 32})
    model = model_of(config)
    quantization.quantize_(model, choose[weights]())

    assert_texts_are_eagers(model, VERSIONS[-1], prefill_engine=False)
