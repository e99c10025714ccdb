"""Encoders with decoders generate what eager ones do, and read their source once."""

import pytest
import torch
import transformers

import torchtrt
from torchtrt.errors import EngineError, InputError, UnsupportedProgramError
from torchtrt_converters_transformers import (
    CompiledEncoderDecoder,
    CompiledForCausalLM,
    compile_for_generation,
)
from torchtrt_converters_transformers.compiled_class import hollow_copy
from torchtrt_converters_transformers.encoder_decoder import (
    DecoderStep,
    EncoderStep,
    example_source,
    try_encoder_decoder,
)

from .conftest import DEVICE, GROUPED, HALF, REAL, VERSIONS, Pair, prompts

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


def t5_gemma():
    """Windows, and scores with a cap, also those of cross-attention."""
    untied = {"bos_token_id": 1, "tie_word_embeddings": False}
    sizes = {**GROUPED, **untied, "head_dim": 8, "sliding_window": 6}
    part = transformers.T5GemmaModuleConfig(**sizes, attn_logit_softcapping=1.0)
    config = transformers.T5GemmaConfig(encoder=part, decoder=part, **{**TOKENS, **untied})
    return transformers.T5GemmaForConditionalGeneration(config)


MODELS = {
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(**TOKENS, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)
    ),
    "bart": lambda: transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            **TOKENS, **LAYERS, max_position_embeddings=50, forced_eos_token_id=None
        )
    ),
    "t5_gemma": t5_gemma,
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
            **REAL,
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
        text = pair.assert_same_texts(source, mask, **options)
        assert len(set(text[0].tolist())) > 8  # and not one token again and again
    source, mask = sources(name)[0]
    pair.assert_same_texts(source, mask, max_new_tokens=12, num_beams=3, num_return_sequences=2)
    pair.assert_same_texts(source, mask, max_new_tokens=12, do_sample=True, top_k=20)


def test_texts_are_eagers(t5):
    """On one TensorRT, with the bias of T5; everything in engines."""
    assert_texts_are_eagers("t5", t5)
    for engines in (t5.compiled.step, t5.compiled.encoder_engine):
        assert 1 == len(engines.report.blocks)
        assert not engines.report.in_torch


@pytest.mark.slow  # each compiles two engines
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", ["t5", "whisper", "bart"])
def test_half_precision_models_keep_their_dtype(name, dtype):
    """The logits of a text are eager's within the accuracy of the dtype."""
    torch.manual_seed(0)
    model = MODELS[name]().eval().to(DEVICE, dtype)
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        compiled = compile_for_generation(
            model, max_length=30, max_source_length=None if name == "whisper" else 40, **REAL
        )
    source, _ = sources(name)[1]
    source = source.to(dtype) if source.is_floating_point() else source
    options = {"max_new_tokens": 6, "output_logits": True, "return_dict_in_generate": True}

    ours, theirs = (module.generate(source, **options).logits for module in (compiled, model))

    assert dtype is compiled.dtype
    for got, wanted in zip(ours, theirs, strict=True):
        assert torch.dist(got, wanted) <= 0.02 * wanted.norm()


@pytest.mark.slow  # each compiles two engines, in ten seconds
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", MODELS)
def test_texts_are_eagers_on_every_tensorrt(name, version):
    """Relative and learned positions, tokens and features."""
    assert_texts_are_eagers(name, compiled_pair(name, version))


def test_the_source_is_read_once(t5):
    """Its keys and values are computed by the encoder's engine, and steps read them where they are."""
    calls, positions = [], []
    hooks = [
        t5.compiled.encoder_engine.register_forward_hook(lambda *_: calls.append("source")),
        t5.compiled.step.register_forward_hook(
            lambda module, args, result: positions.append([arg.data_ptr() for arg in args[2]])
        ),
    ]

    t5.compiled.generate(prompts(2, 6)[0], max_new_tokens=7, do_sample=False)
    for hook in hooks:
        hook.remove()

    assert ["source"] == calls
    assert 7 == len(positions)
    assert all(position == positions[0] for position in positions)


def test_prompts_of_the_decoder_are_read_at_once(t5):
    """Padded in front, as in eager PyTorch."""
    source, mask = prompts(2, 6)
    start, start_mask = prompts(2, 5, 7, padding=(2,))

    t5.assert_same_texts(
        source, mask, decoder_input_ids=start, decoder_attention_mask=start_mask, max_new_tokens=9
    )


def test_what_there_is_no_room_for_is_an_error(t5):
    """Before anything is generated."""
    source, mask = prompts(2, 6)

    with pytest.raises(InputError, match="max_length=30"):
        t5.compiled.generate(source, attention_mask=mask, max_new_tokens=40)
    with pytest.raises(InputError, match=r"16 sequences.*max_batch_size=12"):
        t5.compiled.generate(source, attention_mask=mask, max_new_tokens=3, num_beams=8)
    with pytest.raises(InputError, match=r"A source has 41 tokens.*max_source_length=40"):
        t5.compiled.generate(prompts(1, 41)[0], max_new_tokens=3)
    with pytest.raises(InputError, match=r"There are 13 sources.*max_batch_size=12"):
        t5.compiled.generate(prompts(13, 4)[0], max_new_tokens=3)
    with pytest.raises(InputError, match="a cache of their own"):
        t5.compiled.generate(source, max_new_tokens=3, cache_implementation="static")
    with pytest.raises(InputError, match="tokens of the decoder to the encoder"):
        t5.compiled.generate(source, max_new_tokens=3, guidance_scale=1.5)
    assert 3 == t5.compiled.generate(source, max_new_tokens=2, guidance_scale=1.0).shape[1]
    with pytest.raises(InputError, match=r"get_encoder\(\) of the compiled model"):
        t5.compiled(decoder_input_ids=source, encoder_outputs=t5.model.get_encoder()(source, mask))
    with pytest.raises(EngineError, match="compiled in"):
        t5.compiled.half()


def test_a_call_without_a_cache_returns_the_logits_behind_each_token(t5):
    """As the model does, and while another cache is in use: the memory is not taken from it."""
    source, mask = prompts(2, 6)
    start, start_mask = prompts(2, 4, 7, padding=(2,))
    arguments = {"attention_mask": mask, "decoder_input_ids": start}
    going_on = t5.compiled(source, mask, decoder_input_ids=start)
    for options in ({}, {"decoder_attention_mask": start_mask}):
        actual = t5.compiled(input_ids=source, **arguments, **options).logits
        with torch.no_grad():
            expected = t5.model(input_ids=source, **arguments, **options).logits
        counted = start_mask.bool() if options else torch.ones_like(start).bool()
        torch.testing.assert_close(actual[counted], expected[counted], rtol=1e-3, atol=1e-3)
    assert 4 == going_on.past_key_values.get_seq_length()
    going_on.past_key_values.reorder_cache(torch.tensor([1, 0]))


@pytest.mark.parametrize(
    "name",
    [
        "t5",
        pytest.param("whisper", marks=pytest.mark.slow),
        pytest.param("bart", marks=pytest.mark.slow),
    ],
)
def test_a_saved_model_generates_the_same(name, request, tmp_path):
    """In another process it needs neither the model's weights nor a build."""
    pair = request.getfixturevalue("t5") if name == "t5" else compiled_pair(name, VERSIONS[-1])
    pair.compiled.save_pretrained(tmp_path)

    loaded = CompiledEncoderDecoder.from_pretrained(tmp_path)

    assert type(pair.compiled) is type(loaded)
    assert (DEVICE, torch.float32) == (loaded.device.type, loaded.dtype)
    source, mask = sources(name)[0]
    Pair(pair.model, loaded).assert_same_texts(source, mask, max_new_tokens=12, num_beams=2)
    with pytest.raises(
        InputError, match=r"for CompiledEncoderDecoder\.from_pretrained, and not for"
    ):
        CompiledForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(InputError, match="takes a folder here, and not push_to_hub"):
        loaded.save_pretrained(tmp_path, push_to_hub=True)


def test_a_class_of_the_user_is_not_saved(t5, tmp_path):
    """Loading would not find it, or would find another one of the same name."""
    kind = type("T5ForConditionalGeneration", (transformers.T5ForConditionalGeneration,), {})
    own = hollow_copy(kind(t5.model.config), CompiledEncoderDecoder)

    with pytest.raises(InputError, match=r"is no class of transformers.*engine_cache=True"):
        own.save_pretrained(tmp_path)


RECORDING = {
    "no_timestamps_token_id": 128,
    "max_initial_timestamp_index": 3,
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": 120, "<|fr|>": 121},
    "task_to_id": {"transcribe": 122},
    "prev_sot_token_id": 124,
    "no_speech_token_id": 125,
    "alignment_heads": [[0, 0], [1, 1]],
    "median_filter_width": 3,
}


@pytest.fixture(scope="module")
def recordings():
    """A Whisper with times, languages and silence among its tokens."""
    config = transformers.WhisperConfig(
        **{**TOKENS, "vocab_size": 150, "eos_token_id": 1, "decoder_start_token_id": 2},
        **LAYERS,
        max_source_positions=20,
        max_target_positions=60,
        num_mel_bins=8,
        suppress_tokens=[],
        begin_suppress_tokens=[],
    )
    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(config).eval().to(DEVICE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    vars(model.generation_config).update(RECORDING)
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        return Pair(model, compile_for_generation(model, max_batch_size=4, max_length=50, **REAL))


TIMES = {"return_timestamps": True, "max_new_tokens": 15, "repetition_penalty": 1.8}
FALLBACK = {"temperature": (0.0, 0.4), "logprob_threshold": -1.0}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"language": "en", "num_beams": 2},
        {"language": "en", "compression_ratio_threshold": 1.3, **FALLBACK},
        {"language": "en", "no_speech_threshold": 0.3, **FALLBACK},
        {
            "language": "en",
            "prompt_ids": torch.tensor([124, 5, 6]),
            "condition_on_prev_tokens": True,
        },
    ],
    ids=["detected-language", "beams", "fallback", "silence", "prompt"],
)
def test_long_recordings_are_divided_as_by_the_model(recordings, options):
    """Each part is read by the encoder's engine, and where the next one starts follows from the text."""
    generator, parts = torch.Generator().manual_seed(0), []
    features = torch.randn(1, 8, 210, generator=generator).to(DEVICE)
    hook = recordings.compiled.encoder_engine.register_forward_hook(lambda *_: parts.append(1))

    texts = []
    for model in (recordings.model, recordings.compiled):
        torch.manual_seed(0)
        transcript = model.generate(features, **TIMES, **options, return_segments=True)
        texts.append(
            [(part["start"], part["tokens"].tolist()) for part in transcript["segments"][0]]
        )
    hook.remove()

    assert texts[0] == texts[1]
    assert len(parts) >= 2
    assert len(texts[0]) >= 2


def test_what_whisper_cannot_do_here_has_its_reason(recordings):
    """In the words of the call, before the recording is read."""
    features, generate = torch.randn(1, 8, 210).to(DEVICE), recordings.compiled.generate
    options = {"language": "en", "return_timestamps": True}

    with pytest.raises(InputError, match=r"return_token_timestamps=.*follow from attention"):
        generate(features, return_token_timestamps=True, **options)
    with pytest.raises(InputError, match=r"52 tokens are asked for.*max_length=50"):
        generate(features, max_new_tokens=50, **options)
    with pytest.raises(InputError, match=r"5 sequences.*max_batch_size=4"):
        generate(features, max_new_tokens=5, num_beams=5, **options)
    five = {"attention_mask": torch.ones(5, 210).long(), **options}
    with pytest.raises(InputError, match=r"5 sources.*max_batch_size=4"):
        generate(features.expand(5, -1, -1), max_new_tokens=5, **five)
    with pytest.raises(InputError, match="The features have 39 frames, but the encoder reads 40"):
        recordings.compiled.get_encoder()(input_features=features[..., :39])


def test_the_compiled_model_holds_no_weights(t5):
    """Engines do; the modules around them only describe them."""
    around = [
        parameter for parameter in t5.compiled.parameters() if parameter.device.type == "meta"
    ]

    assert around
    assert "CompiledT5ForConditionalGeneration" == type(t5.compiled).__name__
    assert isinstance(t5.compiled, transformers.T5ForConditionalGeneration)
    assert DEVICE == t5.compiled.device.type
    assert torch.float32 is t5.compiled.dtype


def tried(model):
    """Returns the encoder of a model, and the windows of the decoder's layers, behind the comparison with the model."""
    encoder, step = EncoderStep(model.eval().to(DEVICE)), DecoderStep(model, 30)
    *_, windows = try_encoder_decoder(model, encoder, step, example_source(model))
    return encoder, windows


def test_a_decoder_may_have_windows_and_caps():
    """Cross-attention has a cap too."""
    model = t5_gemma()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)

    assert [6, None] == tried(model)[1]


def test_a_decoder_may_leave_it_to_masks_that_it_is_causal():
    """The attention of NLLB-MoE has is_causal=False."""
    config = transformers.NllbMoeConfig(
        **TOKENS, **LAYERS, num_experts=2, max_position_embeddings=50
    )
    model = transformers.NllbMoeForConditionalGeneration(config)
    assert not model.model.decoder.layers[0].self_attn.is_causal

    assert [None, None] == tried(model)[1]


def test_the_encoder_is_compiled_as_it_was_given():
    """That of BigBird-Pegasus changes its attention for good when it reads a short source."""
    config = transformers.BigBirdPegasusConfig(
        **TOKENS, **LAYERS, block_size=2, num_random_blocks=1, max_position_embeddings=50
    )

    encoder, _ = tried(transformers.BigBirdPegasusForConditionalGeneration(config))

    assert "block_sparse" == encoder.encoder.attention_type


def test_an_encoder_of_unknown_features_is_refused():
    """Its configuration does not have their number."""
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

    with pytest.raises(UnsupportedProgramError, match=r"takes input_values.*torchtrt.follow"):
        compile_for_generation(model, max_length=30)


def test_an_encoder_and_a_decoder_with_configurations_of_their_own_are_refused():
    """With what to do."""
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "vocab_size"), 32)
    part = transformers.BertConfig(**sizes, num_hidden_layers=1, num_attention_heads=4)
    both = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(part, part)
    model = transformers.EncoderDecoderModel(both).to(DEVICE)

    with pytest.raises(UnsupportedProgramError, match=r"are two models .*\. Generate with PyTorch"):
        compile_for_generation(model, max_length=30)
