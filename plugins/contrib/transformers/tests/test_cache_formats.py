"""Caches that hold keys and values in FP8: texts are those of a model that rounds what it caches."""

import copy

import pytest
import torch
import transformers

import torchtrt
from torchtrt.errors import InputError, UnsupportedProgramError
from torchtrt_converters_transformers import CompiledForCausalLM, compile_for_generation

from .conftest import CONFIGS, GROUPED, ONE, VERSIONS, model_of, prompts

FP8 = torch.float8_e4m3fn
OPTIONS = {"do_sample": False, "max_new_tokens": 20, "pad_token_id": 0}


class RoundedCache(transformers.DynamicCache):
    """A cache of eager PyTorch that rounds new keys and values to E4M3."""

    def update(self, key_states, value_states, *args, **kwargs):
        """Caches and returns rounded ones."""
        rounded = (
            tensor.float().clamp(-448, 448).to(FP8).to(tensor.dtype)
            for tensor in (key_states, value_states)
        )
        return super().update(*rounded, *args, **kwargs)


def compiled_of(model, **options):
    """Returns a compiled model, on the newest TensorRT."""
    settings = {"max_batch_size": 4, "max_length": 32, "cache_dtype": FP8, **options}
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        return compile_for_generation(model, require_full_compilation=True, **settings)


def texts(model, ids, mask, **options):
    """Returns what an eager model generates over a cache that rounds."""
    cache = RoundedCache(config=model.config)
    return model.generate(
        ids, attention_mask=mask, past_key_values=cache, **{**OPTIONS, **options}
    ).tolist()


@pytest.fixture(scope="module")
def model():
    """A Llama of one layer."""
    return model_of(transformers.LlamaConfig(**ONE))


@pytest.fixture(scope="module")
def compiled(model):
    """The same, compiled."""
    return compiled_of(model)


def assert_same_texts(compiled, model):
    """Compares texts of padded prompts, of one token, and of beams, which put the cache in another order."""
    for prompt, options in (
        (prompts(3, 9, padding=(4, 0, 1)), {}),
        (prompts(2, 1), {}),
        (prompts(2, 9), {"num_beams": 2}),
    ):
        ids, mask = prompt
        expected = texts(model, ids, mask, **options)
        assert (
            expected
            == compiled.generate(ids, attention_mask=mask, **{**OPTIONS, **options}).tolist()
        )


def test_texts_are_those_of_a_cache_that_rounds(compiled, model):
    """And not those of a cache that does not."""
    assert_same_texts(compiled, model)
    ids, mask = prompts(3, 9, padding=(4, 0, 1))
    exact = model.generate(ids, attention_mask=mask, **OPTIONS).tolist()
    assert exact != texts(model, ids, mask)


@pytest.mark.slow  # half a minute each: learned positions; windows and capped scores
@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_texts_of_other_models_are_those_of_a_cache_that_rounds(name):
    """One engine reads prompts as well."""
    model = model_of(CONFIGS[name])
    assert_same_texts(compiled_of(model, prefill_engine=False), model)


@pytest.mark.slow  # builds engines of its own
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_differs_no_more_than_without(dtype):
    """Texts of random weights hang on the last bits; logits do not."""
    model = model_of(transformers.LlamaConfig(**ONE)).to(dtype)
    ids, _ = prompts(3, 9)

    with torch.no_grad():
        expected = model(ids, past_key_values=RoundedCache(config=model.config)).logits[:, -1]
    result = compiled_of(model)(ids).logits[:, -1]

    error = (result - expected).float().norm() / expected.float().norm()
    assert error < 10 * torch.finfo(dtype).eps


def test_a_saved_model_keeps_the_dtype(compiled, tmp_path):
    """The same engines read a cache like it."""
    ids, mask = prompts(2, 5)
    compiled.save_pretrained(tmp_path)

    loaded = CompiledForCausalLM.from_pretrained(tmp_path)

    assert FP8 is loaded.layout.dtype
    results = [
        module.generate(ids, attention_mask=mask, **OPTIONS).tolist()
        for module in (compiled, loaded)
    ]
    assert results[0] == results[1]


def test_a_text_that_is_read_in_parts_is_the_same(compiled):
    """New tokens are rounded before they are read as well, so nothing depends on what a call reads."""
    (ids, _), cache = prompts(1, 12), compiled.new_cache()

    whole = compiled(ids, past_key_values=compiled.new_cache()).logits
    for start, end in ((0, 5), (5, 6), (6, 12)):
        part = compiled(ids[:, start:end], past_key_values=cache).logits

    torch.testing.assert_close(part, whole)


def test_states_beyond_the_largest_number_stay_finite():
    """They become the largest; a byte holds each."""
    model = model_of(transformers.LlamaConfig(**ONE))
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.weight *= 1e4
    compiled = compiled_of(model, prefill_engine=False)
    ids, mask = prompts(1, 5)

    assert 1 == compiled.new_cache().tensors[0].element_size()
    expected = texts(model, ids, mask)
    assert expected == compiled.generate(ids, attention_mask=mask, **OPTIONS).tolist()


def calibrated(config, bits=(4, 3), base=None):
    """Returns a model whose keys and values ModelOpt quantizes, and prompts of other tokens than it saw."""
    quantization = pytest.importorskip("modelopt.torch.quantization")
    model, (ids, _) = model_of(config), prompts(4, 20, 5)
    cache = {"quantizer_name": "*[kv]_bmm_quantizer", "cfg": {"num_bits": bits, "axis": None}}
    chosen = quantization.update_quant_cfg_with_kv_cache_quant(base or {}, [cache])
    return quantization.quantize(model, chosen, lambda model: model(ids))


def assert_texts_of_the_calibrated_model(model, compiled):
    """Compares texts of padded prompts, of one token, and of beams, with the model's own and with an exact cache."""
    exact = copy.deepcopy(model)
    for module in exact.modules():
        if hasattr(module, "k_bmm_quantizer"):
            module.k_bmm_quantizer.disable()
            module.v_bmm_quantizer.disable()
    for (ids, mask), options in (
        (prompts(3, 9, padding=(4, 0, 1)), {}),
        (prompts(2, 1), {}),
        (prompts(2, 9), {"num_beams": 2}),
    ):
        ours, expected, other = (
            runner.generate(ids, attention_mask=mask, **OPTIONS, **options).tolist()
            for runner in (compiled, model, exact)
        )
        assert expected == ours
        assert expected != other


@pytest.mark.parametrize(
    "base",
    [
        None,
        pytest.param("FP8_DEFAULT_CFG", marks=pytest.mark.slow),  # weights and activations as well
    ],
)
def test_a_calibrated_model_has_a_cache_with_its_scales(base, tmp_path):
    """ModelOpt's own texts, without asking for a dtype. Saved engines have the scales as well."""
    quantization = pytest.importorskip("modelopt.torch.quantization")
    model = calibrated(
        transformers.LlamaConfig(**GROUPED), base=base and getattr(quantization, base)
    )
    compiled = compiled_of(model, cache_dtype=None, prefill_engine=False)

    assert FP8 is compiled.layout.dtype
    assert_texts_of_the_calibrated_model(model, compiled)
    compiled.save_pretrained(tmp_path)
    assert_texts_of_the_calibrated_model(model, CompiledForCausalLM.from_pretrained(tmp_path))


@pytest.mark.slow  # twenty seconds: it builds engines of its own
def test_int8_is_a_dtype_of_caches_as_well():
    """With ModelOpt's own texts."""
    model = calibrated(transformers.LlamaConfig(**GROUPED), bits=8)
    compiled = compiled_of(model, cache_dtype=None, prefill_engine=False)

    assert torch.int8 is compiled.layout.dtype
    assert_texts_of_the_calibrated_model(model, compiled)
    with pytest.raises(InputError, match=r"to INT8, and cache_dtype=torch\.float8_e4m3fn is"):
        compiled_of(model)


def test_quantizers_of_another_kind_are_refused():
    """Four bits, and layers of which only some have a cache in FP8."""
    config = transformers.LlamaConfig(**GROUPED)
    with pytest.raises(UnsupportedProgramError, match="in another way than a cache in FP8 or INT8"):
        compiled_of(calibrated(config, bits=4), cache_dtype=None)

    mixed = calibrated(config)
    mixed.model.layers[1].self_attn.v_bmm_quantizer.disable()
    with pytest.raises(UnsupportedProgramError, match="layers 1 have no quantizers of keys and"):
        compiled_of(mixed, cache_dtype=None)


def test_a_tensorrt_without_fp8_names_the_model():
    """The user has not asked for the dtype."""
    model = calibrated(transformers.LlamaConfig(**ONE))
    message = "LlamaForCausalLM quantizes its keys and values to FP8.* from version 10"

    with torchtrt.use_tensorrt("reference@8.6.0"), pytest.raises(InputError, match=message):
        compile_for_generation(model, max_length=8)


@pytest.mark.parametrize(
    ("version", "dtype", "message"),
    [
        ("reference@8.6.0", FP8, "is not possible: The format FP8 needs .* from version 10"),
        (
            VERSIONS[-1],
            torch.int8,
            r"=torch\.int8 is not possible: a cache has the dtype torch\.float8",
        ),
        (VERSIONS[-1], "fp8", "=fp8 is not possible: a cache has the dtype"),
    ],
)
def test_other_dtypes_are_refused(model, version, dtype, message):
    """Before anything is built."""
    with torchtrt.use_tensorrt(version), pytest.raises(InputError, match=message):
        compile_for_generation(model, max_length=8, cache_dtype=dtype)


def test_an_encoder_with_a_decoder_is_refused():
    """Its decoder has two caches."""
    config = transformers.T5Config(
        vocab_size=16,
        d_model=8,
        d_kv=4,
        d_ff=8,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )

    with pytest.raises(InputError, match="for causal language models, and the model has an enc"):
        compiled_of(transformers.T5ForConditionalGeneration(config).eval())
