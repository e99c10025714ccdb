"""Models as small as they can be, and what their texts are compared with."""

import dataclasses
import itertools

import pytest
import torch
import transformers

import torchtrt
from torchtrt.tensorrt import Capability, is_real, supports
from torchtrt_converters_transformers import CompiledForCausalLM, compile_for_generation

VERSIONS = ("real",) if is_real() else ("reference@8.6.0", "reference@10.16.1", "reference@11.4.0")
DEVICE = "cuda" if is_real() else "cpu"
REAL = {"disable_tf32": True, "tactic_sources": 0, "optimization_level": 1} if is_real() else {}
"""Further settings for the real TensorRT: to compute as PyTorch does, and to build fast."""


def needs(capability):
    """Returns a mark of tests that the real TensorRT must have a capability for; the newest reference has all."""
    is_missing = is_real() and not supports(capability)
    return pytest.mark.skipif(is_missing, reason=f"the TensorRT in use lacks {capability.name}")


HALF = [torch.float16, pytest.param(torch.bfloat16, marks=needs(Capability.BFLOAT16))]
"""The dtypes of half precision."""
SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 160,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "intermediate_size": 48}
ONE = {**GROUPED, "num_hidden_layers": 1}
CONFIGS = {
    "llama": transformers.LlamaConfig(**GROUPED, tie_word_embeddings=True),
    "gpt2": transformers.GPT2Config(**{**SIZES, "num_hidden_layers": 1}),
    "mistral": transformers.MistralConfig(**GROUPED, sliding_window=6),
    "gemma2": transformers.Gemma2Config(
        **GROUPED,
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=6,
        attn_logit_softcapping=1.0,
        tie_word_embeddings=False,
    ),
    "qwen2": transformers.Qwen2Config(**ONE),
    "gpt_neox": transformers.GPTNeoXConfig(
        **{**SIZES, "num_hidden_layers": 1}, intermediate_size=48
    ),
}


def model_of(config, seed=0):
    """A model with random weights, so large that its texts hardly repeat themselves."""
    torch.manual_seed(seed)
    config = type(config).from_dict({**config.to_dict(), "initializer_range": 0.5})
    # Gemma 2 leaves its cap out otherwise, up to transformers 5.17 at least.
    options = {"attn_implementation": "eager"} if config.model_type == "gemma2" else {}
    return transformers.AutoModelForCausalLM.from_config(config, **options).eval().to(DEVICE)


@dataclasses.dataclass
class Pair:
    """A model, compiled and not."""

    model: transformers.PreTrainedModel
    compiled: CompiledForCausalLM

    def assert_same_texts(self, ids, mask=None, **options):
        """Compares the texts, drawn with the same random numbers."""
        texts = []
        for model in (self.model, self.compiled):
            torch.manual_seed(1)
            texts.append(
                model.generate(ids, attention_mask=mask, **{"do_sample": False, **options})
            )
        assert texts[0].tolist() == texts[1].tolist()
        return texts[1]


def prompts(count, length, seed=0, padding=()):
    """Returns prompts, so many places of each padded in front, and their mask."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, SIZES["vocab_size"], (count, length), generator=generator)
    mask = torch.ones_like(ids)
    for row, width in zip(range(count), padding, strict=False):
        ids[row, :width] = mask[row, :width] = 0
    return ids.to(DEVICE), mask.to(DEVICE)


@pytest.fixture(scope="session")
def compiled_pair():
    """A function that compiles a model once for all tests: up to 6 sequences of 100 tokens."""
    pairs_of = {}

    def pair(name, version=VERSIONS[-1], **options):
        key = (name, version, *itertools.chain(*options.items()))
        if key not in pairs_of:
            model = model_of(CONFIGS[name])
            sizes = {
                "max_batch_size": 6,
                "max_length": 100,
                "require_full_compilation": True,
                **REAL,
            }
            with torchtrt.use_tensorrt(version):
                pairs_of[key] = Pair(model, compile_for_generation(model, **{**sizes, **options}))
        return pairs_of[key]

    return pair


@pytest.fixture(params=["llama", "gpt2"])
def pair(request, compiled_pair):
    """Both kinds of model, on one TensorRT."""
    return compiled_pair(request.param)
