"""What a compiled model refuses to generate, with the reason."""

import pytest
import torch
import transformers

import torchtrt
from torchtrt.errors import (
    EngineError,
    InputError,
)
from torchtrt_converters_transformers import compile_for_generation

from .conftest import (
    REAL,
    SIZES,
    VERSIONS,
    model_of,
    prompts,
)


def test_a_cache_that_lost_its_memory_says_so(pair):
    """The next call of generate takes the memory of the one before."""
    ids, _ = prompts(1, 5)
    result = pair.compiled.generate(ids, max_new_tokens=2, return_dict_in_generate=True)
    pair.compiled.generate(ids, max_new_tokens=2)

    with pytest.raises(EngineError, match="given to a later call"):
        pair.compiled.generate(ids, max_new_tokens=2, past_key_values=result.past_key_values)
    with pytest.raises(EngineError, match="given to a later call"):
        result.past_key_values.reorder_cache(torch.tensor([0]))
    with pytest.raises(EngineError, match="given to a later call"):
        result.past_key_values.crop(-1)


def test_more_than_there_is_room_for_is_an_error_before_anything_is_generated(pair):
    """The message says how much there is, and what to do."""
    ids, _ = prompts(2, 90)
    generate = pair.compiled.generate

    with pytest.raises(InputError, match=r"101 tokens are asked for.*max_length=100"):
        generate(ids, max_new_tokens=11)
    with pytest.raises(InputError, match=r"130 tokens are asked for"):
        generate(ids, max_length=130)
    with pytest.raises(InputError, match=r"130 tokens are asked for"):
        generate(ids, transformers.GenerationConfig(max_length=130))
    with pytest.raises(InputError, match=r"110 tokens are asked for"):
        generate(ids)
    with pytest.raises(InputError, match=r"8 sequences.*max_batch_size=6"):
        generate(ids, max_new_tokens=3, num_beams=4)
    cache = pair.compiled.new_cache()
    pair.compiled(ids, past_key_values=cache)
    with pytest.raises(InputError, match=r"would have 101 tokens"):
        pair.compiled(ids[:, :11], past_key_values=cache)
    with pytest.raises(InputError, match="holds 2 sequences, but 1 go on"):
        pair.compiled(ids[:1, :1], past_key_values=cache)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt_lookup_num_tokens": 2}, "max_candidate_tokens=20"),
        ({"cache_implementation": "static"}, "a cache of their own"),
        ({"use_cache": False}, "engines read the cache"),
        ({"prefill_chunk_size": 4}, "read at once"),
        ({"generation_config": transformers.GenerationConfig(use_cache=False)}, "read the cache"),
        ({"output_attentions": True}, "output_attentions"),
        ({"output_hidden_states": True}, "output_hidden_states"),
        ({"past_key_values": transformers.DynamicCache()}, "DynamicCache"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_what_cannot_be_asked_is_an_error_with_the_reason(compiled_pair, options, message):
    """And not a text that is not what was asked for."""
    generate = compiled_pair("llama").compiled.generate

    with pytest.raises((InputError, EngineError), match=message):
        generate(prompts(1, 5)[0], max_new_tokens=4, **{"return_dict_in_generate": True, **options})


def test_an_assistant_and_continuous_batches_are_refused(pair):
    """They need the logits behind several tokens, and another cache."""
    with pytest.raises(InputError, match="generate_batch is not possible"):
        pair.compiled.generate_batch([[5, 6]])
    with pytest.raises(InputError, match="max_candidate_tokens=20"):
        pair.compiled.generate(prompts(1, 5)[0], max_new_tokens=4, assistant_model=pair.model)


def test_calls_without_generate_say_what_does_not_fit(pair):
    """Masks, embeddings, logits of other tokens, another model's cache, another device."""
    compiled, (ids, mask) = pair.compiled, prompts(2, 5)

    with pytest.raises(InputError, match=r"mask is \(2, 3\)"):
        compiled(ids, attention_mask=mask[:, :3])
    with pytest.raises(InputError, match="called with inputs_embeds: leave that out"):
        compiled(ids, inputs_embeds=torch.zeros(2, 5, 32))
    with pytest.raises(InputError, match="logits_to_keep=2"):
        compiled(ids, logits_to_keep=2)
    with pytest.raises(InputError, match=r"logits_to_keep=tensor.* from 0 to 5"):
        compiled(ids, logits_to_keep=torch.tensor([0, 2]))
    with pytest.raises(EngineError, match="compiled in"):
        compiled.half()
    with pytest.raises(EngineError, match="for the compiled model that made it"):
        pair.model(ids, past_key_values=compiled.new_cache(), use_cache=True)


def test_a_changed_weight_is_noticed():
    """Engines hold the old values."""
    model = model_of(transformers.GPT2Config(**{**SIZES, "num_hidden_layers": 1}))
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        compiled = compile_for_generation(model, max_length=20, prefill_engine=False, **REAL)
    with torch.no_grad():
        model.transformer.wpe.weight.mul_(2)

    with pytest.raises(EngineError, match=r"wpe.*has changed"):
        compiled.generate(prompts(1, 5)[0], max_new_tokens=2)


def test_prompts_that_end_with_padding_are_refused(pair):
    """Engines return the logits behind the last token. In front, padding changes nothing."""
    ids, mask = prompts(2, 5)
    mask[1, -1:] = 0

    with pytest.raises(InputError, match="padding_side = 'left'"):
        pair.compiled.generate(ids, attention_mask=mask, max_new_tokens=2, pad_token_id=0)
