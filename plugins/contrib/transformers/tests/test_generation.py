"""Compiled models generate what eager ones do."""

import copy
import pickle

import pytest
import torch
import transformers
from transformers.generation.streamers import BaseStreamer

import torchtrt
from torchtrt.errors import (
    EngineError,
    FullCompilationError,
    InputError,
    RefitError,
    UnsupportedProgramError,
)
from torchtrt.tensorrt import Capability, is_real
from torchtrt_converters_transformers import CompiledForCausalLM, compile_for_generation
from torchtrt_converters_transformers.attention import StepCache
from torchtrt_converters_transformers.step import Step

from .conftest import (
    CONFIGS,
    DEVICE,
    GROUPED,
    ONE,
    REAL,
    SIZES,
    VERSIONS,
    Pair,
    model_of,
    needs,
    prompts,
)

BOTH = pytest.mark.parametrize("name", ["llama", "gpt2"])


@pytest.fixture(params=["llama", "gpt2"])
def pair(request, compiled_pair):
    """Both kinds of model, on one TensorRT."""
    return compiled_pair(request.param)


@pytest.mark.parametrize("version", VERSIONS)
@BOTH
def test_texts_are_eagers_on_every_tensorrt(compiled_pair, name, version):
    """One text and three padded ones, call after call, shorter and longer than before, up to the greatest length."""
    pair = compiled_pair(name, version)

    pair.assert_same_texts(prompts(1, 7)[0], max_new_tokens=12)
    pair.assert_same_texts(*prompts(3, 9, 1, padding=(4, 0, 1)), max_new_tokens=12)
    pair.assert_same_texts(*prompts(2, 70, 2, padding=(0, 60)), max_new_tokens=8)
    pair.assert_same_texts(prompts(1, 1, 3)[0], max_new_tokens=5)
    text = pair.assert_same_texts(*prompts(2, 5, 4, padding=(2,)), max_new_tokens=95)
    assert (2, 100) == text.shape
    assert len(set(text[0, 5:].tolist())) > 10  # and not one token again and again


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("gemma2", VERSIONS[-1]),
        # Each takes a minute; gemma2 has a sliding window and a cap of scores besides.
        pytest.param("mistral", VERSIONS[0], marks=pytest.mark.slow),
        pytest.param("qwen2", VERSIONS[0], marks=pytest.mark.slow),
        pytest.param("gpt_neox", VERSIONS[-1], marks=pytest.mark.slow),
    ],
)
def test_texts_of_other_models_are_eagers(compiled_pair, name, version):
    """Windows of attention, capped scores, biases and other norms: texts that outgrow the window of 6 tokens."""
    pair = compiled_pair(name, version)

    assert (name in ("mistral", "gemma2")) == pair.compiled.windowed
    pair.assert_same_texts(prompts(1, 3)[0], max_new_tokens=20)
    pair.assert_same_texts(*prompts(3, 15, 1, padding=(7, 0, 13)), max_new_tokens=20)


@pytest.mark.slow  # eleven seconds; test_families.py has experts as well
def test_a_mixture_of_experts_is_eagers():
    """Each step is one engine, experts included."""
    config = transformers.MixtralConfig(**ONE, num_local_experts=2, num_experts_per_tok=1)
    model = model_of(config)
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        compiled = compile_for_generation(
            model, max_batch_size=2, max_length=24, prefill_engine=False, **REAL
        )

    assert not compiled.step.report.in_torch
    # TensorRT 8.6 finds no kernel for a mixture of experts as a whole, so that it has several engines there.
    assert is_real() or 1 == len(compiled.step.report.blocks)
    Pair(model, compiled).assert_same_texts(*prompts(2, 6, padding=(2,)), max_new_tokens=12)


@BOTH
def test_one_engine_reads_prompts_as_well(compiled_pair, name):
    """Without an engine for prompts the other one takes them."""
    pair = compiled_pair(name, prefill_engine=False)

    assert pair.compiled.prefill is None
    pair.assert_same_texts(prompts(1, 7)[0], max_new_tokens=12)
    pair.assert_same_texts(*prompts(3, 70, 1, padding=(4, 0, 60)), max_new_tokens=20)


def test_sampled_texts_are_eagers(pair):
    """With the same random numbers, whatever shapes the distribution."""
    options = {"do_sample": True, "temperature": 1.3, "top_k": 20, "top_p": 0.9}

    text = pair.assert_same_texts(*prompts(3, 6, padding=(2,)), max_new_tokens=20, **options)

    greedy = pair.compiled.generate(prompts(3, 6)[0], max_new_tokens=20, do_sample=False)
    assert text.tolist() != greedy.tolist()


def test_beams_are_eagers(pair):
    """The cache follows the beams."""
    ids, mask = prompts(2, 6, padding=(3,))

    pair.assert_same_texts(ids, mask, num_beams=3, max_new_tokens=20)
    pair.assert_same_texts(
        ids, mask, num_beams=3, num_return_sequences=2, repetition_penalty=1.4, max_new_tokens=8
    )


def test_a_text_ends_where_eagers_does(pair):
    """One that has ended is padded until all have."""
    ids, mask = prompts(3, 6, padding=(0, 2))
    free = pair.assert_same_texts(ids, mask, max_new_tokens=20)

    ends = [int(free[0, 10]), int(free[1, 13])]
    text = pair.assert_same_texts(ids, mask, max_new_tokens=20, eos_token_id=ends)

    assert 0 == text[0, -1]
    alone = pair.assert_same_texts(ids[:1], mask[:1], max_new_tokens=20, eos_token_id=ends)
    assert alone.shape[1] <= 11


class Kept(BaseStreamer):
    """Keeps what it is given."""

    def __init__(self):
        self.tokens, self.ended = [], False

    def put(self, value):
        """Keeps tokens."""
        self.tokens += value.flatten().tolist()

    def end(self):
        """Notes the end."""
        self.ended = True


def test_streamers_processors_and_criteria_work(pair):
    """They are transformers' own."""
    ids, _ = prompts(1, 5)
    streamer = Kept()

    class Stop(transformers.StoppingCriteria):
        def __call__(self, input_ids, scores, **_):
            return torch.full((len(input_ids),), input_ids.shape[1] >= 12, device=input_ids.device)

    class Never(transformers.LogitsProcessor):
        def __call__(self, input_ids, scores):
            scores[:, 40:] = -torch.inf
            return scores

    options = {
        "stopping_criteria": transformers.StoppingCriteriaList([Stop()]),
        "logits_processor": transformers.LogitsProcessorList([Never()]),
        "max_new_tokens": 30,
    }
    pair.assert_same_texts(ids, **options)
    text = pair.compiled.generate(ids, streamer=streamer, do_sample=False, **options)

    assert 12 == text.shape[1]
    assert 40 > text[0, 5:].max()
    assert text[0].tolist() == streamer.tokens
    assert streamer.ended


def test_logits_are_eagers(pair):
    """Not only the tokens that follow from them."""
    ids, mask = prompts(3, 6, padding=(2,))
    options = {
        "max_new_tokens": 6,
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_logits": True,
        "attention_mask": mask,
    }

    actual, expected = (each.generate(ids, **options) for each in (pair.compiled, pair.model))

    torch.testing.assert_close(
        torch.stack(actual.logits), torch.stack(expected.logits), rtol=1e-4, atol=1e-4
    )
    assert 11 == actual.past_key_values.get_seq_length()


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        pytest.param(torch.bfloat16, marks=[pytest.mark.slow, needs(Capability.BFLOAT16)]),
    ],
)
def test_half_precision_models_keep_their_dtype(dtype, compiled_pair):
    """Logits are as far from eager's as eager's own are from those of float32, at most twice."""
    config = transformers.LlamaConfig(**ONE)
    exact, model = model_of(config), model_of(config).to(dtype)
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        compiled = compile_for_generation(
            model, max_length=40, prefill_engine=False, require_full_compilation=True, **REAL
        )
    ids, _ = prompts(1, 8)
    options = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}

    ours, eagers, wanted = (
        torch.stack(each.generate(ids, max_new_tokens=2, **options).logits)
        for each in (compiled, model, exact)
    )

    assert dtype is compiled.new_cache().tensors[0].dtype
    assert (ours - eagers).abs().max() <= 2 * (eagers - wanted).abs().max()


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


def test_a_cache_that_lost_its_memory_says_so(pair):
    """The next call of generate takes the memory of the one before."""
    ids, _ = prompts(1, 5)
    result = pair.compiled.generate(ids, max_new_tokens=2, return_dict_in_generate=True)
    pair.compiled.generate(ids, max_new_tokens=2)

    with pytest.raises(EngineError, match="given to a later call"):
        pair.compiled.generate(ids, max_new_tokens=2, past_key_values=result.past_key_values)
    with pytest.raises(EngineError, match="given to a later call"):
        result.past_key_values.reorder_cache(torch.tensor([0]))


def test_what_was_infinite_once_does_not_stay(pair):
    """Places that no mask lets through are multiplied by zero, which infinities would survive."""
    pair.compiled._memory.fill_(torch.inf)

    pair.assert_same_texts(*prompts(2, 5, padding=(2,)), max_new_tokens=8)


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


def test_a_checkpoints_defaults_of_other_caches_are_left_out(compiled_pair):
    """As those of Gemma 2, or of a model that was trained last, are; other defaults are kept."""
    pair = compiled_pair("llama")
    defaults = transformers.GenerationConfig(use_cache=False, max_new_tokens=4, pad_token_id=0)
    defaults.cache_implementation = "hybrid"

    compiled = CompiledForCausalLM(
        pair.model.config,
        defaults,
        pair.compiled.layout,
        pair.compiled.step,
        pair.compiled.prefill,
        windowed=False,
        dtype=torch.float32,
        device=pair.compiled.device,
    )

    assert (1, 9) == compiled.generate(prompts(1, 5)[0]).shape
    assert "hybrid" == defaults.cache_implementation


def test_an_assistant_and_continuous_batches_are_refused(pair):
    """They need the logits behind several tokens, and another cache."""
    with pytest.raises(InputError, match="generate_batch is not possible"):
        pair.compiled.generate_batch([[5, 6]])
    with pytest.raises(InputError, match="max_candidate_tokens=20"):
        pair.compiled.generate(prompts(1, 5)[0], max_new_tokens=4, assistant_model=pair.model)


def test_a_compiled_model_assists_an_eager_one(compiled_pair):
    """It proposes tokens, and its cache forgets those that are not accepted."""
    pair = compiled_pair("llama")
    target = model_of(CONFIGS["llama"], seed=1)
    ids, mask = prompts(1, 7)
    options = {"attention_mask": mask, "max_new_tokens": 20, "do_sample": False}

    for model in (pair.model, target):  # it accepts every token, and hardly any
        alone = model.generate(ids, **options)
        assisted = model.generate(ids, assistant_model=pair.compiled, **options)
        assert alone.tolist() == assisted.tolist()


def test_calls_without_generate_say_what_does_not_fit(pair):
    """Masks, embeddings, logits of other tokens, another model's cache, another device."""
    compiled, (ids, mask) = pair.compiled, prompts(2, 5)

    with pytest.raises(InputError, match=r"mask is \(2, 3\)"):
        compiled(ids, attention_mask=mask[:, :3])
    with pytest.raises(InputError, match="inputs_embeds"):
        compiled(ids, inputs_embeds=torch.zeros(2, 5, 32))
    with pytest.raises(InputError, match="logits_to_keep=2"):
        compiled(ids, logits_to_keep=2)
    with pytest.raises(EngineError, match="compiled in"):
        compiled.half()
    with pytest.raises(EngineError, match="for the compiled model that made it"):
        pair.model(ids, past_key_values=compiled.new_cache(), use_cache=True)


def test_the_model_is_left_as_it_was():
    """Weights, configuration, mode and attention; and a model that trains is compiled as it infers."""
    model = model_of(transformers.LlamaConfig(**ONE)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config, identities = model.config.to_json_string(), [id(each) for each in model.modules()]

    with torchtrt.use_tensorrt(VERSIONS[-1]):
        compiled = compile_for_generation(model, max_length=20, prefill_engine=False, **REAL)

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert config == model.config.to_json_string()
    assert identities == [id(each) for each in model.modules()]
    assert "sdpa" == model.config._attn_implementation
    assert all(each.training for each in model.modules())
    assert not any(each.training for each in compiled.modules())


def test_a_changed_weight_is_noticed():
    """Engines hold the old values."""
    model = model_of(transformers.GPT2Config(**{**SIZES, "num_hidden_layers": 1}))
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        compiled = compile_for_generation(model, max_length=20, prefill_engine=False, **REAL)
    with torch.no_grad():
        model.transformer.wpe.weight.mul_(2)

    with pytest.raises(EngineError, match=r"wpe.*has changed"):
        compiled.generate(prompts(1, 5)[0], max_new_tokens=2)


@BOTH
def test_a_saved_model_generates_the_same(compiled_pair, name, tmp_path):
    """Engines, defaults of generation and sizes come back; other folders and options are refused."""
    pair = compiled_pair(name)
    pair.compiled.save_pretrained(tmp_path)

    loaded = CompiledForCausalLM.from_pretrained(tmp_path)

    ids, mask = prompts(3, 9, padding=(4,))
    options = {"attention_mask": mask, "max_new_tokens": 12, "do_sample": False}
    assert torch.equal(pair.compiled.generate(ids, **options), loaded.generate(ids, **options))
    assert pair.compiled.layout == loaded.layout
    assert pair.model.config.vocab_size == loaded.config.vocab_size
    assert 0 == loaded.generation_config.pad_token_id
    with pytest.raises(InputError, match=r"torchtrt_generation\.json"):
        CompiledForCausalLM.from_pretrained(tmp_path / "other")
    with pytest.raises(InputError, match="not push_to_hub"):
        pair.compiled.save_pretrained(tmp_path, push_to_hub=True)


@needs(Capability.STRIPPED_PLANS)
def test_a_model_without_weights_generates_with_those_of_its_checkpoint(tmp_path):
    """The folder has none, and each form of them has the names of transformers' model."""
    model = model_of(transformers.GPT2Config(**{**SIZES, "num_hidden_layers": 1}))
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        compiled = compile_for_generation(
            model, max_length=20, prefill_engine=False, strip_engine_weights=True, **REAL
        )
    compiled.save_pretrained(tmp_path / "compiled")
    model.save_pretrained(tmp_path / "checkpoint")

    with pytest.raises(RefitError, match="no weights for its engines"):
        CompiledForCausalLM.from_pretrained(tmp_path / "compiled")

    ids = prompts(1, 5)[0]
    expected = compiled.generate(ids, max_new_tokens=4, do_sample=False)
    for weights in (model, tmp_path / "checkpoint" / "model.safetensors"):
        loaded = CompiledForCausalLM.from_pretrained(tmp_path / "compiled", weights=weights)
        assert torch.equal(loaded.generate(ids, max_new_tokens=4, do_sample=False), expected)


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
    "dynamic-rope": (
        lambda: transformers.LlamaConfig(
            **GROUPED, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
        ),
        "dynamic rotary embedding",
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

    with pytest.raises(UnsupportedProgramError, match="which window they read"):
        compile_for_generation(model, max_length=32)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"max_length": 0}, "max_length=0 is not an integer from 1"),
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


def test_what_is_compiled_already_is_refused(pair):
    """It has no layers left."""
    with pytest.raises(InputError, match="not a CompiledForCausalLM"):
        compile_for_generation(pair.compiled, max_length=5)


def test_prompts_that_end_with_padding_are_refused(pair):
    """Engines return the logits behind the last token. In front, padding changes nothing."""
    ids, mask = prompts(2, 5)
    mask[1, -1:] = 0

    with pytest.raises(InputError, match="padding_side = 'left'"):
        pair.compiled.generate(ids, attention_mask=mask, max_new_tokens=2, pad_token_id=0)


def test_a_model_is_pickled_once_it_has_generated(pair):
    """What it lent stays behind, in copies too."""
    ids, mask = prompts(2, 5)
    options = {"attention_mask": mask, "max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    expected = pair.compiled.generate(ids, **options)

    for again in (pickle.loads(pickle.dumps(pair.compiled)), copy.deepcopy(pair.compiled)):
        assert again._lent is None
        assert torch.equal(expected, again.generate(ids, **options))


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


@pytest.mark.skipif(is_real(), reason="asks for a version of the reference")
def test_bfloat16_on_a_tensorrt_without_it_says_so():
    """TensorRT 8.6 has no bfloat16."""
    model = model_of(CONFIGS["gpt2"]).bfloat16()

    with (
        torchtrt.use_tensorrt("reference@8.6.0"),
        pytest.raises(FullCompilationError, match="bfloat16"),
    ):
        compile_for_generation(model, max_length=20, require_full_compilation=True)
