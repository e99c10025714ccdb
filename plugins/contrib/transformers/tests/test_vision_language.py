"""Models that read images besides text generate what eager ones do."""

import pytest
import torch
import transformers

import torchtrt
from torchtrt.errors import InputError, UnreadableFileError, UnsupportedProgramError
from torchtrt_converters_transformers import CompiledVisionLanguage, compile_for_generation
from torchtrt_converters_transformers.saving import read_config
from torchtrt_runtime.serialization.folders import NewFolder, read_description

from .conftest import DEVICE, ONE, REAL, VERSIONS, Pair, prompts

IMAGE = 95
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}


QWEN_VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "patch_size": 4,
    "out_hidden_size": 32,
}
ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
"""Positions with three axes."""


def llava():
    """Images of one size, each of four tokens."""
    vision = transformers.CLIPVisionConfig(**VISION, projection_dim=16)
    config = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**ONE), vision_config=vision, image_token_index=IMAGE
    )
    return transformers.LlavaForConditionalGeneration(config)


def qwen():
    """Images of any size, and positions with three axes."""
    vision = {
        **QWEN_VISION,
        "window_size": 16,
        "fullatt_block_indexes": [0],
    }
    config = transformers.Qwen2_5_VLConfig(
        text_config={**ONE, "rope_parameters": ROPE, "layer_types": ["full_attention"]},
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=94,
        vision_start_token_id=93,
        vision_end_token_id=92,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def compiled_pair(model, version=VERSIONS[-1]):
    """A model with random weights, and compiled for 6 sequences of 40 tokens."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.generation_config.update(pad_token_id=0, eos_token_id=None)
    model.eval().to(DEVICE)
    with torchtrt.use_tensorrt(version):
        compiled = compile_for_generation(
            model, max_batch_size=6, max_length=40, require_full_compilation=True, **REAL
        )
    return Pair(model, compiled)


def with_images(name):
    """Two texts with an image of four tokens each, at different places, one of them padded."""
    ids, mask = prompts(2, 12, padding=(3,))
    ids[ids > 90] = 7
    ids[0, 5:9] = ids[1, 2:6] = IMAGE
    generator = torch.Generator().manual_seed(1)
    if name == "llava":
        images = {"pixel_values": torch.randn(2, 3, 8, 8, generator=generator).to(DEVICE)}
    else:
        images = {
            "pixel_values": torch.randn(32, 96, generator=generator).to(DEVICE),
            "image_grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]], device=DEVICE),
            "mm_token_type_ids": (ids == IMAGE).int(),
        }
    return ids, mask, images


@pytest.fixture(scope="module")
def llava_pair():
    """The model whose vision tower is an engine as well."""
    return compiled_pair(llava())


def assert_texts_are_eagers(name, pair):
    """Greedy, with beams and sampled, with images and without."""
    ids, mask, images = with_images(name)
    text = pair.assert_same_texts(ids, mask, max_new_tokens=20, **images)
    assert len(set(text[0].tolist())) > 10
    pair.assert_same_texts(ids, mask, max_new_tokens=10, num_beams=3, **images)
    pair.assert_same_texts(ids, mask, max_new_tokens=10, do_sample=True, **images)
    pair.assert_same_texts(*prompts(3, 9, padding=(2,)), max_new_tokens=10)
    other = {**images, "pixel_values": images["pixel_values"] * -2}
    assert text.tolist() != pair.assert_same_texts(ids, mask, max_new_tokens=20, **other).tolist()


def test_texts_of_images_are_eagers(llava_pair):
    """The vision tower, prompts and steps are one engine each."""
    assert_texts_are_eagers("llava", llava_pair)
    compiled = llava_pair.compiled
    for engines in (compiled.vision, compiled.language.prefill, compiled.language.step):
        assert 1 == len(engines.report.blocks)
        assert not engines.report.in_torch


@pytest.mark.slow  # each compiles three engines, in ten seconds
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["llava", "qwen"])
def test_texts_of_images_are_eagers_on_every_tensorrt(name, version):
    pair = compiled_pair({"llava": llava, "qwen": qwen}[name](), version)

    assert_texts_are_eagers(name, pair)
    assert not pair.compiled.vision.report.in_torch


def test_embeddings_are_read_in_place_of_tokens(llava_pair):
    """As eager models read them."""
    ids, mask = prompts(2, 6, padding=(2,))
    embedded = llava_pair.model.get_input_embeddings()(ids).detach()

    texts = [
        model.generate(
            inputs_embeds=embedded, attention_mask=mask, max_new_tokens=8, do_sample=False
        ).tolist()
        for model in (llava_pair.model, llava_pair.compiled)
    ]

    assert texts[0] == texts[1]


def test_an_image_is_read_once(llava_pair):
    """And not in each step."""
    calls = []
    hook = llava_pair.compiled.vision.register_forward_hook(lambda *_: calls.append(1))
    ids, mask, images = with_images("llava")

    llava_pair.compiled.generate(
        ids, attention_mask=mask, **images, max_new_tokens=8, do_sample=False
    )
    hook.remove()

    assert 2 == len(calls)  # one for each image


def test_what_the_engines_have_compiled_in_cannot_be_asked_for(llava_pair):
    """By name."""
    ids, mask, images = with_images("llava")

    with pytest.raises(InputError, match="max_length=40"):
        llava_pair.compiled.generate(ids, attention_mask=mask, **images, max_new_tokens=30)
    with pytest.raises(InputError, match="the logits behind several tokens"):
        llava_pair.compiled.generate(ids, assistant_model=llava_pair.model, **images)
    layers = {"vision_feature_layer": -1}
    with pytest.raises(InputError, match=r"compiled for vision_feature_layer=-2, and .* with -1"):
        llava_pair.compiled.generate(ids, attention_mask=mask, max_new_tokens=2, **images, **layers)
    pixels = images["pixel_values"]
    whole = llava_pair.compiled.base_model.get_image_features(pixels, vision_feature_layer=-2)
    assert 2 == len(whole.pooler_output)


@pytest.mark.parametrize("name", ["llava", pytest.param("qwen", marks=pytest.mark.slow)])
def test_a_saved_model_generates_the_same(name, request, tmp_path):
    """The folder has the engines, and the table of embeddings, which PyTorch runs."""
    pair = request.getfixturevalue("llava_pair") if name == "llava" else compiled_pair(qwen())
    pair.compiled.save_pretrained(tmp_path)

    loaded = CompiledVisionLanguage.from_pretrained(tmp_path)

    assert type(pair.compiled) is type(loaded)
    ids, mask, images = with_images(name)
    Pair(pair.model, loaded).assert_same_texts(ids, mask, max_new_tokens=12, num_beams=2, **images)
    kept = torch.load(tmp_path / "torchtrt_tensors.pt", weights_only=True)
    assert all("embed_tokens" in key for key in kept)
    for part in ("config.json", "generation_config.json", "language/torchtrt_generation.json"):
        text = (tmp_path / part).read_text()
        (tmp_path / part).write_text(text.replace("0", "1"))
        with pytest.raises(UnreadableFileError, match=rf"{part} is not the file that was saved"):
            CompiledVisionLanguage.from_pretrained(tmp_path)
        (tmp_path / part).write_text(text)
    (tmp_path / "torchtrt_generation.json").write_text("{}")
    with pytest.raises(UnreadableFileError, match="another format than 4"):
        CompiledVisionLanguage.from_pretrained(tmp_path)


def test_a_configuration_without_a_class_is_refused_by_its_name(tmp_path):
    """Its library has to be imported first."""
    new = NewFolder(tmp_path / "saved.json")
    with new.part("config.json") as path:
        path.write_text('{"model_type": "of_a_library"}')
    new.describe({}, 1)

    with pytest.raises(UnreadableFileError, match=r"'of_a_library'.*import the library"):
        read_config(read_description(tmp_path / "saved.json", 1, ""))


def audio():
    """A model that reads sounds besides text."""
    encoder = {
        "model_type": "qwen2_audio_encoder",
        "d_model": 16,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "num_mel_bins": 8,
        "max_source_positions": 20,
    }
    return transformers.Qwen2AudioForConditionalGeneration(
        transformers.Qwen2AudioConfig(
            text_config={"model_type": "qwen2", **ONE},
            audio_config=encoder,
            audio_token_index=IMAGE,
        )
    )


def test_a_model_that_reads_sounds_is_refused():
    """The message says why, and which model can be compiled."""
    with pytest.raises(UnsupportedProgramError, match=r"only images have engines.*get_text_config"):
        compile_for_generation(audio(), max_length=32)
