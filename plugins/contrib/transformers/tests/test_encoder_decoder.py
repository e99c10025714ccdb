"""Encoders with decoders generate what eager ones do, and read their source once."""

import pytest
import torch
import transformers

import torchtrt
from torchtrt.errors import EngineError, ExportError, InputError, UnsupportedProgramError
from torchtrt_converters_transformers import compile_for_generation

from .conftest import DEVICE, VERSIONS, Pair, prompts

TOKENS = {
    "vocab_size": 96,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
    "decoder_start_token_id": 1,
}
LAYERS = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}
MODELS = {
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(**TOKENS, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)
    ),
    "bart": lambda: transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            **TOKENS, **LAYERS, max_position_embeddings=50, forced_eos_token_id=None
        )
    ),
    "whisper": lambda: transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            **TOKENS,
            **LAYERS,
            max_source_positions=20,
            max_target_positions=60,
            num_mel_bins=8,
            suppress_tokens=[],
            begin_suppress_tokens=[],
        )
    ),
}


def compiled_pair(name, version):
    """A model with random weights, and compiled for 12 sequences of 30 tokens behind 40."""
    torch.manual_seed(0)
    model = MODELS[name]().eval().to(DEVICE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    with torchtrt.use_tensorrt(version):
        compiled = compile_for_generation(
            model,
            max_batch_size=12,  # Whisper repeats a source for each text that is returned
            max_length=30,
            max_source_length=None if name == "whisper" else 40,
            require_full_compilation=True,
            disable_tf32=True,
        )
    return Pair(model, compiled)


def sources(name):
    """Sources of several lengths, and padded ones: tokens and their mask, or features."""
    if name == "whisper":
        generator = torch.Generator().manual_seed(0)
        features = torch.randn(2, 8, 40, generator=generator).to(DEVICE)
        return [(features, None), (features[:1], None)]
    ids, mask = prompts(2, 9)
    ids[0, 5:] = mask[0, 5:] = 0
    return [(ids, mask), prompts(1, 1, 3), prompts(3, 40, 4, padding=(7, 0, 39))]


@pytest.fixture(scope="module")
def t5():
    """The model with relative positions, whose bias depends on how far apart tokens are."""
    return compiled_pair("t5", VERSIONS[-1])


def assert_texts_are_eagers(name, pair):
    """Greedy, with beams and sampled, whatever the source."""
    for source, mask in sources(name):
        options = {"max_new_tokens": 24, "repetition_penalty": 1.8}
        text = pair.assert_same(source, mask, **options)
        assert len(set(text[0].tolist())) > 8  # and not one token again and again
    source, mask = sources(name)[0]
    pair.assert_same(source, mask, max_new_tokens=12, num_beams=3, num_return_sequences=2)
    pair.assert_same(source, mask, max_new_tokens=12, do_sample=True, top_k=20)


def test_texts_are_eagers(t5):
    """On one TensorRT, with the bias of T5; everything in engines."""
    assert_texts_are_eagers("t5", t5)
    for engines in (t5.compiled.step, t5.compiled.encoder_engine):
        assert 1 == len(engines.report.blocks)
        assert not engines.report.in_torch


@pytest.mark.slow  # each compiles two engines
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["t5", "whisper"])
def test_half_precision_models_keep_their_dtype(name, dtype):
    """The logits of a text are eager's within the accuracy of the dtype."""
    torch.manual_seed(0)
    model = MODELS[name]().eval().to(DEVICE, dtype)
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        compiled = compile_for_generation(
            model, max_length=30, max_source_length=None if name == "whisper" else 40
        )
    source, _ = sources(name)[1]
    source = source.to(dtype) if source.is_floating_point() else source
    options = {"max_new_tokens": 6, "output_logits": True, "return_dict_in_generate": True}

    ours, theirs = (each.generate(source, **options).logits for each in (compiled, model))

    assert dtype is compiled.dtype
    for got, wanted in zip(ours, theirs, strict=True):
        assert torch.dist(got, wanted) <= 0.02 * wanted.norm()


def test_an_encoder_that_asks_about_its_values_is_refused():
    """BART's looks for infinite values in float16 before it limits them."""
    model = MODELS["bart"]().eval().to(DEVICE, torch.float16)

    with pytest.raises(ExportError, match=r"torch\.isfinite\(hidden_states\)\.all\(\)"):
        compile_for_generation(model, max_length=30, max_source_length=40)


@pytest.mark.slow  # each compiles two engines, in ten seconds
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", MODELS)
def test_texts_are_eagers_on_every_tensorrt(name, version):
    """Relative and learned positions, tokens and features."""
    assert_texts_are_eagers(name, compiled_pair(name, version))


def test_the_source_is_read_once(t5):
    """Its keys and values are computed by the encoder's engine, and steps read them where they are."""
    calls, places = [], []
    hooks = [
        t5.compiled.encoder_engine.register_forward_hook(lambda *_: calls.append("source")),
        t5.compiled.step.register_forward_hook(
            lambda module, args, result: places.append([each.data_ptr() for each in args[2]])
        ),
    ]

    t5.compiled.generate(prompts(2, 6)[0], max_new_tokens=7, do_sample=False)
    for hook in hooks:
        hook.remove()

    assert ["source"] == calls
    assert 7 == len(places)
    assert all(each == places[0] for each in places)


def test_prompts_of_the_decoder_are_read_at_once(t5):
    """Padded in front, as in eager PyTorch."""
    source, mask = prompts(2, 6)
    start, start_mask = prompts(2, 5, 7, padding=(2,))

    t5.assert_same(
        source, mask, decoder_input_ids=start, decoder_attention_mask=start_mask, max_new_tokens=9
    )


def test_what_there_is_no_room_for_is_an_error(t5):
    """Before anything is generated."""
    source, mask = prompts(2, 6)

    with pytest.raises(InputError, match="max_length=30"):
        t5.compiled.generate(source, attention_mask=mask, max_new_tokens=40)
    with pytest.raises(InputError, match=r"16 sequences.*max_batch_size=12"):
        t5.compiled.generate(source, attention_mask=mask, max_new_tokens=3, num_beams=8)
    with pytest.raises(InputError, match=r"1 to 40|40"):
        t5.compiled.generate(prompts(1, 41)[0], max_new_tokens=3)
    with pytest.raises(InputError, match="a cache of their own"):
        t5.compiled.generate(source, max_new_tokens=3, cache_implementation="static")
    with pytest.raises(InputError, match="were not made by this model"):
        t5.compiled(decoder_input_ids=source, encoder_outputs=t5.model.get_encoder()(source, mask))
    with pytest.raises(EngineError, match="compiled in"):
        t5.compiled.half()
    with pytest.raises(InputError, match="engine_cache=True"):
        t5.compiled.save_pretrained("folder")


def test_the_compiled_model_holds_no_weights(t5):
    """Engines do; the modules around them only say what they are."""
    around = [each for each in t5.compiled.parameters() if each.device.type == "meta"]

    assert around
    assert "CompiledT5ForConditionalGeneration" == type(t5.compiled).__name__
    assert isinstance(t5.compiled, transformers.T5ForConditionalGeneration)
    assert DEVICE == t5.compiled.device.type
    assert torch.float32 is t5.compiled.dtype


def test_an_encoder_of_unknown_features_is_refused():
    """Its configuration does not say how many there are."""
    config = transformers.MoonshineConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        encoder_num_hidden_layers=1,
        decoder_num_hidden_layers=1,
        encoder_num_attention_heads=4,
        decoder_num_attention_heads=4,
    )
    model = transformers.MoonshineForConditionalGeneration(config).to(DEVICE)

    with pytest.raises(UnsupportedProgramError, match="takes input_values"):
        compile_for_generation(model, max_length=30)
