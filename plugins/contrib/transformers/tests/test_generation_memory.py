"""The memory of keys and values: what steps read and write, and how long it stays."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers.generation.streamers import BaseStreamer

from torchtrt.errors import InputError
from torchtrt_converters_transformers.attention import StepCache
from torchtrt_converters_transformers.step import Step

from .conftest import (
    CONFIGS,
    DEVICE,
    model_of,
    prompts,
)


def test_a_step_copies_nothing_of_the_cache(pair):
    """Engines are given the memory itself, and return no more than what is new."""
    compiled = pair.compiled
    cache = compiled.new_cache()
    ids, _ = prompts(2, 66)
    compiled(ids, past_key_values=cache)
    memory, seen = cache._memory, []
    handle = compiled.step.register_forward_hook(
        lambda module, args, result: seen.append((args[3], result))
    )

    compiled(ids[:, :1], past_key_values=cache)
    handle.remove()

    ((past, (_, (states,))),) = seen
    layout = cache.layout
    ((heads, width),) = set(layout.shapes)
    assert 2 * layout.layers == len(past)
    for number, tensor in enumerate(past):
        assert tensor.is_contiguous()
        assert (2, heads, 100, width) == tensor.shape
        start = tensor.data_ptr() - memory.data_ptr()
        assert start == number * tensor.numel() * tensor.itemsize
    assert (2 * layout.layers, 2, heads, 1, width) == states.shape
    assert torch.equal(states[..., 0, :], torch.stack(list(cache.tensors))[..., 66, :])
    assert cache._memory is memory


def test_the_cache_takes_no_more_than_the_texts_need(pair):
    """Few tokens are few places to read, and what is written stays where the memory is divided anew."""
    cache = pair.compiled.new_cache()
    ids, _ = prompts(2, 3)
    pair.compiled(ids, past_key_values=cache)
    before = [tensor[:, :, :3].clone() for tensor in cache.tensors]
    assert 64 == cache.tensors[0].shape[2]

    pair.compiled(prompts(2, 62)[0], past_key_values=cache)

    assert 100 == cache.tensors[0].shape[2]
    for kept, tensor in zip(before, cache.tensors, strict=True):
        assert torch.equal(kept, tensor[:, :, :3])


def in_a_thread(call):
    """Runs a call in another thread, to its end."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result()


class Between(BaseStreamer):
    """Runs a call once, between two tokens of a text."""

    def __init__(self, call):
        self.call, self.tokens = call, 0

    def put(self, value):
        self.tokens += 1
        if self.tokens == 3:
            self.call()

    def end(self):
        pass


@pytest.mark.parametrize("run", [in_a_thread, lambda call: call()], ids=["thread", "nested"])
@pytest.mark.parametrize("reads", ["generates", "calls"])
def test_a_call_between_two_tokens_leaves_the_cache_alone(pair, run, reads):
    """It has memory of its own, in another thread and in the same one."""
    compiled, options = pair.compiled, {"max_new_tokens": 9, "do_sample": False}
    ids, others = prompts(1, 6)[0], prompts(2, 9, 5)[0]
    texts = []

    def between():
        if reads == "generates":
            texts.append(compiled.generate(others, **options))
        else:
            texts.append(compiled(others).logits)

    text = compiled.generate(ids, streamer=Between(lambda: run(between)), **options)

    assert torch.equal(pair.model.generate(ids, **options), text)
    if reads == "generates":
        assert torch.equal(pair.model.generate(others, **options), texts[0])
    else:
        torch.testing.assert_close(texts[0], pair.model(others).logits[:, -1:])


def test_a_call_that_continues_keeps_its_memory(pair):
    """Another thread generates while an engine reads tokens behind the cache of an earlier call."""
    compiled, ids = pair.compiled, prompts(1, 6)[0]
    wanted = pair.model(ids).logits[:, -1:]
    cache = compiled(ids[:, :5]).past_key_values

    def meanwhile(*_):
        handle.remove()
        in_a_thread(lambda: compiled.generate(ids, max_new_tokens=2))

    handle = compiled.step.register_forward_pre_hook(meanwhile)

    torch.testing.assert_close(compiled(ids[:, 5:], past_key_values=cache).logits, wanted)


def test_memory_is_lent_again_once_its_call_has_ended(pair):
    """Only calls at the same time take more memory."""
    compiled, ids = pair.compiled, prompts(1, 6)[0]
    memory = compiled.cache_memory.memory.data_ptr()
    for _ in range(2):
        result = compiled.generate(ids, max_new_tokens=2, return_dict_in_generate=True)
        assert memory == result.past_key_values.tensors[0].data_ptr()
    with pytest.raises(InputError):
        compiled.generate(ids, max_new_tokens=2, num_beams=7)

    result = compiled.generate(ids, max_new_tokens=2, return_dict_in_generate=True)
    assert memory == result.past_key_values.tensors[0].data_ptr()


def test_a_conversation_goes_on_from_its_cache(pair):
    """What was read is not read again, other texts in between change nothing, and tokens can be taken back."""
    ids, mask = prompts(2, 5, padding=(2,))
    cache = pair.compiled.new_cache()
    text = pair.compiled.generate(
        ids, attention_mask=mask, past_key_values=cache, max_new_tokens=6, do_sample=False
    )
    assert 10 == cache.get_seq_length()
    pair.assert_same_texts(prompts(4, 9, 3)[0], max_new_tokens=5)

    longer = torch.cat([text, prompts(2, 4, 5)[0]], 1)
    longer_mask = torch.cat([mask, torch.ones_like(longer[:, 5:])], 1)
    options = {"attention_mask": longer_mask, "max_new_tokens": 6, "do_sample": False}
    expected = pair.model.generate(longer, **options)
    actual = pair.compiled.generate(longer, past_key_values=cache, **options)
    assert expected.tolist() == actual.tolist()

    cache.crop(-6)
    assert 14 == cache.get_seq_length()
    again = pair.compiled.generate(longer, past_key_values=cache, **options)
    assert expected.tolist() == again.tolist()


def test_what_was_infinite_once_does_not_stay(pair):
    """Places that no mask lets through are multiplied by zero, which infinities would survive."""
    pair.compiled.cache_memory.memory.fill_(torch.inf)

    pair.assert_same_texts(*prompts(2, 5, padding=(2,)), max_new_tokens=8)


def test_what_was_taken_back_may_have_been_infinite(pair):
    """As of a candidate token whose keys and values overflow."""
    ids = prompts(1, 5)[0]
    cache = pair.compiled.new_cache()
    text = pair.compiled.generate(ids, past_key_values=cache, max_new_tokens=4, do_sample=False)
    for states in cache.tensors:
        states[:, :, cache.get_seq_length() - 1] = torch.inf
    cache.crop(-1)

    shorter, options = text[:, :8], {"max_new_tokens": 5, "do_sample": False}
    actual = pair.compiled.generate(shorter, past_key_values=cache, **options)
    assert pair.model.generate(shorter, **options).tolist() == actual.tolist()


def test_every_token_reads_something():
    """What comes of padding is finite then, whatever computes the softmax."""
    mask = torch.tensor([[False, False, True, True]], device=DEVICE)

    for window in (None, 2):
        own, _ = StepCache(mask).masks(window)
        assert (1, 1, 4, 4) == own.shape
        assert own.any(-1).all()
        assert [[False, False, True, True]] == own[0, :, 3].tolist()


def test_a_window_that_no_text_outgrows_is_none():
    """Then engines have no masks for it."""
    step = Step(model_of(CONFIGS["mistral"]), max_length=6)
    cache = StepCache(torch.ones(1, 4, dtype=torch.bool, device=DEVICE), max_length=6)

    step.read(prompts(1, 4)[0], torch.arange(4, device=DEVICE)[None], cache)

    assert [6, 6] == cache.windows
    assert [None] == list(cache._masks)
