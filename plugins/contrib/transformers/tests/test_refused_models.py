"""What `compile_for_generation` refuses, with the reason."""

import pytest
import torch
import transformers

import torchtrt
from torchtrt.errors import (
    FullCompilationError,
    InputError,
    SettingsError,
    UnsupportedProgramError,
)
from torchtrt.tensorrt import is_real
from torchtrt_converters_transformers import compile_for_generation
from torchtrt_converters_transformers.refusals import Refusal
from torchtrt_converters_transformers.step import check_logits

from .conftest import (
    CONFIGS,
    DEVICE,
    GROUPED,
    ONE,
    SIZES,
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
        r"takes no position_ids.*needs\. Generate with PyTorch\..*use_cache = False",
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
    "state besides keys": (
        lambda: transformers.MiniMaxConfig(
            **GROUPED, head_dim=8, layer_types=["linear_attention", "full_attention"]
        ),
        "keep one state of all tokens",
    ),
    "further keys": (
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
        "choose the tokens that they read by further keys.*Generate with PyTorch",
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


class _ReadsMasks(transformers.LlamaModel):
    def forward(self, *args, attention_mask=None, **options):
        attention_mask[:, 0]
        return super().forward(*args, attention_mask=attention_mask, **options)


class _Branches(transformers.LlamaModel):
    def forward(self, *args, **options):
        output = super().forward(*args, **options)
        if output.last_hidden_state.sum() > 0:
            output.last_hidden_state = output.last_hidden_state + 1
        return output


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            _ReadsMasks,
            r"does not run with our attention over a cache: test_refused_models\.py, line \d+, "
            r"`attention_mask\[:, 0\]`, TypeError: 'NoneType' object is not subscriptable\. Generate",
        ),
        (
            _Branches,
            r"which depends on values of tensors: test_refused_models\.py, line \d+, "
            r"`if output\.last_hidden_state\.sum\(\) > 0:`\. Generate with PyTorch, or change this line\.$",
        ),
    ],
)
def test_code_that_does_not_become_an_engine_is_named_by_its_line(kind, reason):
    model = model_of(transformers.LlamaConfig(**ONE))
    model.model = kind(model.config).eval().to(DEVICE)

    with pytest.raises(UnsupportedProgramError, match=reason):
        compile_for_generation(model, max_length=32)


def mllama():
    """Its layers read images by cross-attention."""
    tower = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    return transformers.MllamaForConditionalGeneration(
        transformers.MllamaConfig(
            text_config={**GROUPED, "bos_token_id": 1, "cross_attention_layers": [1]},
            vision_config={
                **tower,
                "num_global_layers": 1,
                "attention_heads": 2,
                "image_size": 8,
                "patch_size": 4,
                "intermediate_layers_indices": [0],
                "vision_output_dim": 32,
                "max_num_tiles": 1,
                "supported_aspect_ratios": [[1, 1]],
            },
            image_token_index=95,
        )
    )


def florence():
    """Its encoder reads images and text."""
    text = transformers.BartConfig(**SIZES, d_model=32, encoder_layers=1, decoder_layers=1)
    tower = {"embed_dim": [8] * 4, "num_heads": [2] * 4, "num_groups": [2] * 4, "depths": [1] * 4}
    return transformers.Florence2ForConditionalGeneration(
        transformers.Florence2Config(
            text_config=text.to_dict(),
            vision_config={**tower, "window_size": 4, "projection_dim": 32},
            image_token_id=95,
        )
    )


def idefics():
    """Its language model has another name."""
    text = transformers.LlamaConfig(**ONE)
    tower = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    return transformers.Idefics3ForConditionalGeneration(
        transformers.Idefics3Config(
            text_config=text.to_dict(),
            vision_config={**tower, "num_attention_heads": 2, "image_size": 8, "patch_size": 4},
            image_token_id=95,
        )
    )


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (mllama, r"read images in another way than as embeddings.*\. Generate with PyTorch\.$"),
        (
            florence,
            r"reads images besides text\. Generate with PyTorch, perhaps with torchtrt\.follow",
        ),
        (idefics, r"has no language_model .*\. Generate with PyTorch, or give the weights"),
    ],
)
def test_a_model_with_images_that_cannot_be_compiled_is_refused_with_the_reason(build, reason):
    with pytest.raises(UnsupportedProgramError, match=reason):
        compile_for_generation(build().eval().to(DEVICE), max_length=32)


def test_logits_that_are_not_finite_are_the_reason():
    """And not a difference of so many per cent."""
    wanted = torch.tensor([1.0, float("nan")])

    with pytest.raises(Refusal, match=r"in float16, its own logits .* are not finite"):
        check_logits(torch.ones(2), wanted, torch.float16)


def _ahead(module, query, key, value, attention_mask, **options):
    attention = transformers.AttentionInterface()["sdpa"]
    return attention(module, query, key, value, None, **{**options, "is_causal": False})


def _biased(module, query, key, value, attention_mask, scaling=None, **_):
    attention = transformers.AttentionInterface()["sdpa"]
    return attention(module, query, key, value, attention_mask, scaling=3 * scaling)


transformers.AttentionInterface.register("ahead_sdpa", _ahead)
transformers.AttentionInterface.register("biased_sdpa", _biased)


@pytest.mark.parametrize("attention", ["ahead_sdpa", "biased_sdpa"])
def test_a_model_with_an_attention_of_its_own_is_refused(attention):
    """Its logits are compared before anything is built.

    A first layer that looks ahead gives the second one states that no step over a cache has.
    """
    model = model_of(CONFIGS["llama"])
    model.set_attn_implementation(attention)

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
        ({"max_length": 1}, "max_length=1 has room for a prompt of one token, and none for a new"),
        ({"max_length": 20, "max_batch_size": True}, "max_batch_size=True"),
        ({"max_length": 161}, "the model has 160 positions"),
        ({"max_length": 20, "opt_length": 21}, "opt_length=21 is not from 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, message):
    """By name."""
    with pytest.raises(InputError, match=message):
        compile_for_generation(model_of(CONFIGS["gpt2"]), **sizes)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_lenght", "Did you mean 'max_length'"),
        ("max_batchsize", "Did you mean 'max_batch_size'"),
        ("dynamic_shapes", "dynamic_shapes is an argument of torchtrt.compile"),
    ],
)
def test_an_unknown_argument_is_refused(name, hint):
    with pytest.raises(SettingsError, match=hint):
        compile_for_generation(model_of(CONFIGS["gpt2"]), max_length=20, **{name: {}})


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
