"""Assisted generation with an assistant that has another tokenizer."""

import pytest
import tokenizers
import torch
import transformers

import torchtrt
from torchtrt_converters_transformers import compile_for_generation

from .conftest import DEVICE, ONE, REAL, VERSIONS, model_of

WORDS = [chr(ord("a") + number) for number in range(26)]
WORDS += [first + second for first in WORDS for second in WORDS[:3]]


def tokenizer_of(count, step):
    """A tokenizer of so many tokens, whose words have another order for another step."""
    words = ["<pad>", "<unk>", *(WORDS[number * step % (count - 2)] for number in range(count - 2))]
    ids = {word: number for number, word in enumerate(words)}
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="<unk>"))
    built.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=built, unk_token="<unk>", pad_token="<pad>"
    )


@pytest.mark.parametrize(
    "compiled_too", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["eager", "compiled"]
)
def test_an_assistant_may_have_another_tokenizer(compiled_too):
    """Its text is tokenized again, so that a step has another number of candidates than the assistant."""
    model = model_of(transformers.LlamaConfig(**ONE))
    assistant = model_of(transformers.LlamaConfig(**{**ONE, "vocab_size": 81}), seed=1)
    own, other = tokenizer_of(96, 1), tokenizer_of(81, 7)
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        compiled = compile_for_generation(
            model, max_length=40, max_candidate_tokens=5, prefill_engine=False, **REAL
        )
        helper = assistant
        if compiled_too:
            helper = compile_for_generation(assistant, max_length=120, prefill_engine=False, **REAL)
    ids = own("a b cb da f", return_tensors="pt").input_ids.to(DEVICE)
    options = {"tokenizer": own, "assistant_tokenizer": other}
    options |= {"max_new_tokens": 12, "do_sample": False}

    eager = model.generate(ids, assistant_model=assistant, **options)
    ours = compiled.generate(ids, assistant_model=helper, **options)

    assert torch.equal(eager, ours)
    assert torch.equal(model.generate(ids, max_new_tokens=12, do_sample=False), ours)
