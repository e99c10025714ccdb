"""Assisted generation: a step verifies several candidates, and texts are those of eager PyTorch."""

import copy

import pytest
import torch
import transformers

import torchtrt
from torchtrt.errors import InputError
from torchtrt_converters_transformers import (
    CompiledEncoderDecoder,
    CompiledForCausalLM,
    compile_for_generation,
)

from .conftest import DEVICE, ONE, REAL, SIZES, VERSIONS, Pair, model_of, prompts
from .test_encoder_decoder import MODELS, sources

CANDIDATES = 3
ONE_LAYER = {
    "llama": transformers.LlamaConfig(**ONE),
    "gpt2": transformers.GPT2Config(**{**SIZES, "num_hidden_layers": 1}),
    "mistral": transformers.MistralConfig(**ONE, sliding_window=6),
}


def assisting(model, candidates, *, schedule="constant"):
    """Lets a model propose so many tokens."""
    config = model.generation_config
    config.num_assistant_tokens, config.assistant_confidence_threshold = candidates, 0
    config.num_assistant_tokens_schedule = schedule
    return model


def verifying(model, version, **options):
    """A model, and compiled for as many candidates."""
    with torchtrt.use_tensorrt(version):
        compiled = compile_for_generation(
            model,
            max_length=40,
            max_candidate_tokens=CANDIDATES,
            require_full_compilation=True,
            **REAL,
            **options,
        )
    return Pair(model, compiled)


@pytest.fixture(scope="module")
def pair():
    """A model of one layer, whose one engine reads prompts as well."""
    return verifying(model_of(ONE_LAYER["llama"]), VERSIONS[-1], prefill_engine=False)


def assert_assisted_texts_are_eagers(pair, ids, **options):
    """Greedy and sampled, with assistants whose candidates are all accepted and hardly ever."""
    # A penalty is a processor, which transformers applies behind each candidate.
    options = {"repetition_penalty": 1.8, "max_new_tokens": 10, **options}
    stranger = model_of(ONE_LAYER["llama"], seed=1)
    for assistant in (assisting(pair.model, CANDIDATES), assisting(stranger, CANDIDATES)):
        for sampled in (False, True):
            pair.assert_same_texts(ids, assistant_model=assistant, do_sample=sampled, **options)
    assert (
        pair.assert_same_texts(ids, assistant_model=stranger, **options).tolist()
        == pair.model.generate(ids, do_sample=False, **options).tolist()
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_assisted_texts_are_eagers_on_every_tensorrt(version, pair):
    """The number of logits varies from call to call."""
    if version != VERSIONS[-1]:
        pair = verifying(pair.model, version, prefill_engine=False)

    assert not pair.compiled.step.report.in_torch
    assert_assisted_texts_are_eagers(pair, prompts(1, 7)[0])


@pytest.mark.slow  # each compiles two engines
@pytest.mark.parametrize("name", ["gpt2", "mistral"])
def test_assisted_texts_of_two_engines_are_eagers(name):
    """The engine for prompts reads the first candidates; windows move with each candidate."""
    pair = verifying(model_of(ONE_LAYER[name]), VERSIONS[-1])

    assert_assisted_texts_are_eagers(pair, prompts(1, 7)[0], max_new_tokens=20)


def test_candidates_from_the_prompt_are_verified(pair):
    """Tokens behind an equal pair of tokens in the prompt."""
    ids = prompts(1, 4)[0].repeat(1, 3)

    calls = []
    handle = pair.compiled.step.register_forward_hook(
        lambda module, args, result: calls.append(tuple(result[0].shape[:2]))
    )
    for sampled in (False, True):
        pair.assert_same_texts(
            ids, prompt_lookup_num_tokens=CANDIDATES, max_new_tokens=10, do_sample=sampled
        )
    handle.remove()

    assert (1, CANDIDATES + 1) in calls


def test_candidates_from_the_prompt_need_room_behind_the_last_token(pair):
    """Transformers looks up as many however few tokens are left. The error comes before the first token."""
    ids = prompts(1, 4)[0].repeat(1, 3)
    options = {"prompt_lookup_num_tokens": CANDIDATES, "repetition_penalty": 0.1}

    pair.assert_same_texts(ids, max_new_tokens=40 - 12 - CANDIDATES + 1, **options)

    with pytest.raises(InputError, match="prompt_lookup_num_tokens=3 reads up to 2 behind"):
        pair.compiled.generate(ids, max_new_tokens=40 - 12 - CANDIDATES + 2, **options)


def test_more_candidates_than_a_step_verifies_are_read_in_several_calls(pair):
    """Also if their number grows while they are accepted, as with transformers' heuristic."""
    ids = prompts(1, 5)[0]
    for candidates, schedule in ((9, "constant"), (2, "heuristic_transient")):
        assistant = assisting(pair.model, candidates, schedule=schedule)
        pair.assert_same_texts(ids, assistant_model=assistant, max_new_tokens=16)


def test_a_compiled_model_assists_a_compiled_one(pair):
    """Each has its own cache, and both remove what is not accepted. A padded prompt and an end work too."""
    assistant = assisting(copy.deepcopy(pair.compiled), CANDIDATES)
    ids, mask = prompts(1, 8, padding=(3,))
    options = {"attention_mask": mask, "max_new_tokens": 12, "do_sample": False}
    expected = pair.model.generate(ids, **options)
    actual = pair.compiled.generate(ids, assistant_model=assistant, **options)
    assert expected.tolist() == actual.tolist()

    options["eos_token_id"] = int(expected[0, 12])
    expected = pair.model.generate(ids, **options)
    actual = pair.compiled.generate(ids, assistant_model=assistant, **options)
    assert expected.tolist() == actual.tolist()


def test_logits_behind_several_tokens_are_eagers(pair):
    """All, and as many as no single call returns; tokens that were removed from the cache are not read."""
    ids = prompts(1, 9)[0]
    with torch.no_grad():
        expected = pair.model(ids).logits
    cache = pair.compiled.new_cache()

    for kept in (1, CANDIDATES, 7, 0):
        actual = pair.compiled(ids, past_key_values=cache, logits_to_keep=kept).logits
        torch.testing.assert_close(actual, expected[:, -(kept or 9) :], rtol=1e-4, atol=1e-4)
        cache.crop(-9)
    pair.compiled(ids, past_key_values=cache)
    cache.crop(-5)
    actual = pair.compiled(ids[:, 4:], past_key_values=cache, logits_to_keep=5).logits
    torch.testing.assert_close(actual, expected[:, 4:], rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="logits_to_keep=10 is not an integer from 0 to 9"):
        pair.compiled(ids, logits_to_keep=10)


def test_a_saved_model_verifies_candidates(pair, tmp_path):
    """The option comes back."""
    pair.compiled.save_pretrained(tmp_path)

    loaded = CompiledForCausalLM.from_pretrained(tmp_path)

    assert CANDIDATES == loaded.max_candidate_tokens
    assistant = assisting(pair.model, CANDIDATES)
    Pair(pair.model, loaded).assert_same_texts(
        prompts(1, 5)[0], assistant_model=assistant, max_new_tokens=8
    )


@pytest.mark.parametrize(
    "name",
    ["t5", pytest.param("whisper", marks=pytest.mark.slow)],  # positions are given to Whisper
)
def test_assisted_texts_of_encoders_with_decoders_are_eagers(name, tmp_path):
    """The decoder's step verifies, behind the source; a saved model as well."""
    torch.manual_seed(0)
    model = MODELS[name]().eval().to(DEVICE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    pair = verifying(model, VERSIONS[-1])
    pair.compiled.save_pretrained(tmp_path)
    loaded = Pair(model, CompiledEncoderDecoder.from_pretrained(tmp_path))
    source = sources(name)[1][0]
    assistant = assisting(copy.deepcopy(model), CANDIDATES)
    options = {"assistant_model": assistant, "repetition_penalty": 1.8, "max_new_tokens": 10}

    text = pair.assert_same_texts(source, **options)

    assert text.tolist() == loaded.assert_same_texts(source, **options).tolist()
    pair.assert_same_texts(source, **{**options, "do_sample": True})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assistant_early_exit": 1}, "engines run all layers"),
        ({"use_mtp": True}, "hidden states"),
        ({"speculation_type": "dflash"}, "hidden states"),
    ],
    ids=["early exit", "layers of the model", "dflash"],
)
def test_candidates_that_engines_cannot_verify_are_refused(pair, options, message):
    """With the reason."""
    with pytest.raises(InputError, match=message):
        pair.compiled.generate(prompts(1, 5)[0], max_new_tokens=4, **options)


def test_beams_with_an_assistant_are_refused():
    """Transformers warns that beams ignore it, and passes it to the model."""
    model = model_of(ONE_LAYER["llama"])
    compiled = compile_for_generation(
        model, max_length=20, max_batch_size=2, max_candidate_tokens=1, prefill_engine=False
    )
    with pytest.raises(InputError, match="called with assistant_model: leave that out"):
        compiled.generate(prompts(1, 5)[0], max_new_tokens=4, num_beams=2, assistant_model=model)


def test_numbers_of_candidates_that_do_not_fit_are_refused():
    """Those that no text has room for."""
    model = model_of(ONE_LAYER["llama"])
    for number in (-1, True, 40):
        with pytest.raises(InputError, match=r"max_candidate_tokens=.* from 0 to 39"):
            compile_for_generation(model, max_length=40, max_candidate_tokens=number)


def test_a_batch_is_refused_as_transformers_does(pair):
    """One sequence at a time."""
    with pytest.raises(ValueError, match="only supported for batch_size = 1"):
        pair.compiled.generate(
            prompts(2, 5)[0], assistant_model=assisting(pair.model, 2), max_new_tokens=4
        )
