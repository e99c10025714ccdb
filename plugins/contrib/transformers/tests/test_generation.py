"""Compiled models generate what eager ones do."""

import copy
import pickle

import pytest
import torch
import transformers
from transformers.generation.streamers import BaseStreamer

import torchtrt
from tests.support.warned import warning_in
from torchtrt.errors import (
    InputError,
    RefitError,
)
from torchtrt.tensorrt import Capability
from torchtrt_compiler.measuring.tuning import Measuring, measuring_by
from torchtrt_converters_transformers import CompiledForCausalLM, compile_for_generation
from torchtrt_runtime.modules.engine import EngineModule

from .conftest import (
    CONFIGS,
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


@pytest.mark.each_tensorrt
@pytest.mark.parametrize(
    "version",
    [*(pytest.param(number, marks=pytest.mark.slow) for number in VERSIONS[:-1]), VERSIONS[-1]],
)  # the other tests have compiled the models for the last one
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
    assert 1 == len(compiled.step.report.blocks)
    Pair(model, compiled).assert_same_texts(*prompts(2, 6, padding=(2,)), max_new_tokens=12)


def test_one_engine_has_a_profile_for_steps_and_one_for_prompts(compiled_pair):
    """And its weights once."""
    pair = compiled_pair("llama", prefill_engine="profile")

    assert pair.compiled.prefill is None
    (block,) = (
        part for part in pair.compiled.step.graph_module.modules() if isinstance(part, EngineModule)
    )
    steps, prompts_ = (
        sizes[0] for sizes in zip(*(input_.profiles for input_ in block.inputs), strict=True)
    )
    assert [sizes.max for sizes in (steps[1], prompts_[1])] == [1, pair.compiled.layout.max_length]
    pair.assert_same_texts(prompts(1, 7)[0], max_new_tokens=12)
    pair.assert_same_texts(*prompts(3, 70, 1, padding=(4, 0, 60)), max_new_tokens=20)


def test_another_word_for_one_engine_is_refused():
    with pytest.raises(InputError, match="prefill_engine='shared' is not True, False or 'profile'"):
        compile_for_generation(model_of(CONFIGS["llama"]), max_length=8, prefill_engine="shared")


@pytest.mark.parametrize("name", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_one_engine_reads_prompts_as_well(compiled_pair, name):
    """Without an engine for prompts the other one takes them."""
    pair = compiled_pair(name, prefill_engine=False)

    assert pair.compiled.prefill is None
    pair.assert_same_texts(prompts(1, 7)[0], max_new_tokens=12)
    pair.assert_same_texts(*prompts(3, 70, 1, padding=(4, 0, 60)), max_new_tokens=20)


def test_guidance_has_a_cache_for_negative_prompts(compiled_pair):
    """It alternates between two prompts of other lengths."""
    pair = compiled_pair("llama")
    plain = pair.assert_same_texts(prompts(2, 7)[0], max_new_tokens=8)

    guided = pair.assert_same_texts(
        prompts(2, 7)[0],
        max_new_tokens=8,
        guidance_scale=3.0,
        negative_prompt_ids=prompts(2, 5, 1)[0],
    )

    assert plain.tolist() != guided.tolist()


def test_a_tuned_model_generates_as_eager_does():
    """The step and the prompt are tuned apart, and may leave different ops to PyTorch."""
    model = model_of(transformers.LlamaConfig(**ONE))
    sizes = {"max_batch_size": 2, "max_length": 40, "opt_length": 16}
    kept_anyway = Measuring(tries=1, gain=-100.0)  # whatever it takes
    with measuring_by(kept_anyway):
        compiled = compile_for_generation(model, **sizes, tune=True, **REAL)

    for part in (compiled.step, compiled.prefill):
        tried = part.report.tried
        assert any(" in PyTorch: " in line and ", kept" in line for line in tried), tried
    Pair(model, compiled).assert_same_texts(*prompts(2, 9, padding=(4,)), max_new_tokens=12)


def test_a_warning_of_an_engine_names_the_line_that_generates(compiled_pair):
    """The loop that calls the engines is a part of transformers, of which the user knows nothing."""
    generate = compiled_pair("llama").compiled.generate
    with warning_in(EngineModule, "forward"), pytest.warns(match="of forward") as caught:
        generate(prompts(1, 7)[0], max_new_tokens=3, do_sample=False)

    assert {__file__} == {warning.filename for warning in caught}


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

    actual, expected = (model.generate(ids, **options) for model in (pair.compiled, pair.model))

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
        torch.stack(module.generate(ids, max_new_tokens=2, **options).logits)
        for module in (compiled, model, exact)
    )

    assert dtype is compiled.new_cache().tensors[0].dtype
    assert (ours - eagers).abs().max() <= 2 * (eagers - wanted).abs().max()


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


def test_a_compiled_model_assists_an_eager_one(compiled_pair):
    """It proposes tokens, and its cache removes those that are not accepted."""
    pair = compiled_pair("llama")
    target = model_of(CONFIGS["llama"], seed=1)
    ids, mask = prompts(1, 7)
    options = {"attention_mask": mask, "max_new_tokens": 20, "do_sample": False}

    for model in (pair.model, target):  # it accepts every token, and hardly any
        alone = model.generate(ids, **options)
        assisted = model.generate(ids, assistant_model=pair.compiled, **options)
        assert alone.tolist() == assisted.tolist()


def test_the_model_is_left_as_it_was():
    """Weights, configuration, mode and attention; and a model that trains is compiled as it infers."""
    model = model_of(transformers.LlamaConfig(**ONE)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config, identities = model.config.to_json_string(), [id(module) for module in model.modules()]

    with torchtrt.use_tensorrt(VERSIONS[-1]):
        compiled = compile_for_generation(model, max_length=20, prefill_engine=False, **REAL)

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert config == model.config.to_json_string()
    assert identities == [id(module) for module in model.modules()]
    assert "sdpa" == model.config._attn_implementation
    assert all(module.training for module in model.modules())
    assert not any(module.training for module in compiled.modules())


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


def test_a_model_is_pickled_once_it_has_generated(pair):
    """What it lent stays behind, in copies too."""
    ids, mask = prompts(2, 5)
    options = {"attention_mask": mask, "max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    expected = pair.compiled.generate(ids, **options)

    for again in (pickle.loads(pickle.dumps(pair.compiled)), copy.deepcopy(pair.compiled)):
        assert again.cache_memory.lent is None
        assert torch.equal(expected, again.generate(ids, **options))


def test_what_is_compiled_already_is_refused(pair):
    """It has no layers left."""
    with pytest.raises(InputError, match="not a CompiledForCausalLM"):
        compile_for_generation(pair.compiled, max_length=5)
