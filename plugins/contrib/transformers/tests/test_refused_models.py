"""What `compile_for_generation` refuses, with the reason."""

import pytest
import torch
import transformers

import torchtrt
from torchtrt.errors import (
    FullCompilationError,
    InputError,
    UnsupportedProgramError,
)
from torchtrt.tensorrt import is_real
from torchtrt_converters_transformers import compile_for_generation

from .conftest import (
    CONFIGS,
    DEVICE,
    GROUPED,
    model_of,
)

REFUSED = {
    "GPTJ": (
        lambda: transformers.GPTJConfig(
            n_embd=32, n_layer=1, n_head=4, vocab_size=96, n_positions=64, rotary_dim=4
        ),
        "does not go through transformers' AttentionInterface",
    ),
    "Falcon": (
        lambda: transformers.FalconConfig(
            hidden_size=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=96
        ),
        "does not go through transformers' AttentionInterface",
    ),
    "BLOOM": (
        lambda: transformers.BloomConfig(hidden_size=32, n_layer=1, n_head=4, vocab_size=96),
        "takes no position_ids",
    ),
    "state": (
        lambda: transformers.MambaConfig(hidden_size=32, num_hidden_layers=1, vocab_size=96),
        "keep one state of all tokens.*Generate with PyTorch",
    ),
    "linear attention": (
        lambda: transformers.Qwen3NextConfig(
            **GROUPED,
            head_dim=8,
            num_experts=2,
            num_experts_per_tok=1,
            layer_types=["linear_attention", "full_attention"],
        ),
        "keep one state of all tokens",
    ),
    "longrope": (
        lambda: transformers.LlamaConfig(
            **GROUPED,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "long_factor": [4.0] * 4,
                "short_factor": [1.0] * 4,
                "original_max_position_embeddings": 16,
            },
        ),
        "longrope rotary embedding changes beyond 16 tokens. Choose a max_length up to 16",
    ),
    "masks": (
        lambda: transformers.DeepseekV32Config(
            **{**GROUPED, "num_key_value_heads": 4},
            n_routed_experts=4,
            num_experts_per_tok=1,
            moe_intermediate_size=16,
            n_group=2,
            topk_group=1,
            kv_lora_rank=8,
            q_lora_rank=8,
            qk_rope_head_dim=4,
            qk_nope_head_dim=8,
            v_head_dim=6,
            index_n_heads=2,
            index_head_dim=8,
            index_topk=8,
        ),
        "with our attention over a cache its code raises TypeError",
    ),
    "chunks": (
        lambda: transformers.Llama4TextConfig(
            **GROUPED, head_dim=8, num_local_experts=2, attention_chunk_size=16
        ),
        "beyond its chunks of 16 tokens",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_model_that_cannot_be_compiled_is_refused_with_the_reason(kind):
    """Before anything is exported."""
    config, reason = REFUSED[kind]
    model = transformers.AutoModelForCausalLM.from_config(config()).to(DEVICE)

    with pytest.raises(UnsupportedProgramError, match=reason):
        compile_for_generation(model, max_length=32)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT's own
def test_a_model_of_peft_is_refused_with_what_to_give():
    """It wraps the model, which has the adapters by itself."""
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(
        model_of(CONFIGS["llama"]), peft.LoraConfig(target_modules=["q_proj"])
    )

    with pytest.raises(InputError, match=r"not a PeftModel\. Give it model.get_base_model\(\)"):
        compile_for_generation(model, max_length=32)


def _biased(module, query, key, value, attention_mask, scaling=None, **_):
    attention = transformers.AttentionInterface()["sdpa"]
    return attention(module, query, key, value, attention_mask, scaling=3 * scaling)


transformers.AttentionInterface.register("biased_sdpa", _biased)


def test_a_model_with_an_attention_of_its_own_is_refused():
    """Its logits are compared before anything is built."""
    model = model_of(CONFIGS["llama"])
    model.set_attn_implementation("biased_sdpa")

    with pytest.raises(UnsupportedProgramError, match=r"logits differ by .*% from its own"):
        compile_for_generation(model, max_length=32)


def test_layers_that_do_not_tell_their_window_are_refused():
    """Only texts as long as the window would show it."""
    config = transformers.LlamaConfig(**GROUPED)
    config.sliding_window = 16
    model = transformers.LlamaForCausalLM(config).to(DEVICE)

    with pytest.raises(UnsupportedProgramError, match="the window that they read"):
        compile_for_generation(model, max_length=32)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"max_length": 0}, "max_length=0 is not a positive integer"),
        ({"max_length": 20, "max_batch_size": True}, "max_batch_size=True"),
        ({"max_length": 161}, "the model has 160 positions"),
        ({"max_length": 20, "opt_length": 21}, "opt_length=21 is not from 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, message):
    """By name."""
    with pytest.raises(InputError, match=message):
        compile_for_generation(model_of(CONFIGS["gpt2"]), **sizes)


def test_what_is_no_model_of_transformers_is_refused():
    """By its type."""
    with pytest.raises(InputError, match="not a Linear"):
        compile_for_generation(torch.nn.Linear(2, 2), max_length=5)


@pytest.mark.skipif(is_real(), reason="asks for a version of the reference")
def test_bfloat16_on_a_tensorrt_without_it_says_so():
    """TensorRT 8.6 has no bfloat16."""
    model = model_of(CONFIGS["gpt2"]).bfloat16()

    with (
        torchtrt.use_tensorrt("reference@8.6.0"),
        pytest.raises(FullCompilationError, match="bfloat16"),
    ):
        compile_for_generation(model, max_length=20, require_full_compilation=True)
