"""Models whose language model reads more of images than embeddings, and those with images of any size."""

import pickle

import pytest
import torch
import transformers

import torchtrt
from torchtrt.errors import InputError
from torchtrt.tensorrt import Capability
from torchtrt_converters_transformers import (
    CompiledEncoderDecoder,
    CompiledVisionLanguage,
    compile_for_generation,
    image_towers,
)

from .conftest import DEVICE, GROUPED, ONE, REAL, VERSIONS, Pair, needs, prompts
from .test_vision_language import IMAGE, QWEN_VISION, ROPE, VISION, llava, qwen


def gemma():
    """Tokens of an image read each other in both directions."""
    vision = transformers.SiglipVisionConfig(**VISION)
    sizes = {**GROUPED, "head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8}
    layers = ["sliding_attention", "full_attention"]
    text = transformers.Gemma3TextConfig(**sizes, layer_types=layers)
    return transformers.Gemma3ForConditionalGeneration(
        transformers.Gemma3Config(
            text_config=text,
            vision_config=vision,
            mm_tokens_per_image=4,
            image_token_index=IMAGE,
            tie_word_embeddings=False,
        )
    )


def paligemma():
    """Tokens of an image read each other in both directions."""
    return transformers.PaliGemmaForConditionalGeneration(
        transformers.PaliGemmaConfig(
            text_config={"model_type": "gemma", **GROUPED, "head_dim": 8},
            vision_config={"model_type": "siglip_vision_model", **VISION},
            projection_dim=32,
            image_token_index=IMAGE,
            tie_word_embeddings=False,
        )
    )


def qwen3():
    """Layers of the language model add features of images."""
    vision = {
        **QWEN_VISION,
        "deepstack_visual_indexes": [0],
        "num_position_embeddings": 16,
    }
    return transformers.Qwen3VLForConditionalGeneration(
        transformers.Qwen3VLConfig(
            text_config={**ONE, "head_dim": 8, "rope_parameters": ROPE},
            vision_config=vision,
            image_token_id=IMAGE,
            video_token_id=94,
            vision_start_token_id=93,
            vision_end_token_id=92,
        )
    )


def compiled_pair(build, version=VERSIONS[-1], dtype=torch.float32, **options):
    """A model with random weights, and compiled for 6 sequences of 40 tokens."""
    model = build()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.generation_config.update(pad_token_id=0, eos_token_id=None)
    model.eval().to(DEVICE, dtype)
    sizes = {"max_batch_size": 6, "max_length": 40, "prefill_engine": False, **REAL}
    with torchtrt.use_tensorrt(version):
        compiled = compile_for_generation(
            model, require_full_compilation=True, **{**sizes, **options}
        )
    return Pair(model, compiled)


def with_images(build):
    """Two texts, one with an image and one with two, one padded; of any size where the model takes it."""
    generator = torch.Generator().manual_seed(1)
    ids, mask = prompts(2, 20, padding=(3,))
    ids[ids > 90] = 7
    if build in (qwen, qwen3):
        ids[0, 5:9] = ids[1, 4:10] = ids[1, 12:16] = IMAGE
        grid = torch.tensor([[1, 4, 4], [1, 4, 6], [1, 2, 8]], device=DEVICE)
        pixels = torch.randn(int(grid.prod(-1).sum()), 96, generator=generator)
        images = {"image_grid_thw": grid, "mm_token_type_ids": (ids == IMAGE).int()}
    elif build is mistral:
        ids[0, 5:9] = ids[1, 4:8] = ids[1, 12:16] = IMAGE
        pixels = torch.randn(3, 3, 16, 32, generator=generator)
        images = {"image_sizes": torch.tensor([[16, 16], [8, 32], [16, 16]], device=DEVICE)}
    else:
        ids[0, 5:9] = ids[1, 4:8] = ids[1, 12:16] = IMAGE
        pixels = torch.randn(3, 3, 8, 8, generator=generator)
        types = (ids == IMAGE).int()
        if build is paligemma:  # 0 where all read each other: images and the text before the answer
            types = torch.ones_like(ids)
            types[0, :12] = types[1, :17] = 0
        images = {"token_type_ids": types}
    return ids, mask, {"pixel_values": pixels.to(DEVICE), **images}


def assert_texts_are_eagers(build, pair):
    """Greedy, with beams and sampled, with images and without."""
    ids, mask, images = with_images(build)
    text = pair.assert_same_texts(ids, mask, max_new_tokens=20, **images)
    assert len(set(text[:, 20:].flatten().tolist())) > 4
    pair.assert_same_texts(ids, mask, max_new_tokens=8, num_beams=3, **images)
    sampled = {"do_sample": True, "num_return_sequences": 2}
    pair.assert_same_texts(ids, mask, max_new_tokens=8, **sampled, **images)
    pair.assert_same_texts(*prompts(3, 9, padding=(2,)), max_new_tokens=8)
    other = {**images, "pixel_values": images["pixel_values"] * -2}
    assert text.tolist() != pair.assert_same_texts(ids, mask, max_new_tokens=20, **other).tolist()
    if "token_type_ids" in images:
        del images["token_type_ids"]
        causal = pair.assert_same_texts(ids, mask, max_new_tokens=20, **images)
        assert text.tolist() != causal.tolist()


@pytest.mark.parametrize(
    "build",
    [gemma, *(pytest.param(pair, marks=pytest.mark.slow) for pair in (paligemma, qwen, qwen3))],
)
def test_texts_of_images_are_eagers(build):
    """Tokens of an image read each other, or layers add features to them; images have several sizes."""
    pair = compiled_pair(build)

    assert_texts_are_eagers(build, pair)
    for engines in (pair.compiled.vision, pair.compiled.language.step):
        assert 1 == len(engines.report.blocks)
        assert not engines.report.in_torch


def paligemma_2():
    """Its class caps the logits, behind the output layer."""
    return transformers.PaliGemmaForConditionalGeneration(
        transformers.PaliGemmaConfig(
            text_config={"model_type": "gemma2", **GROUPED, "head_dim": 8, "sliding_window": 6},
            vision_config={"model_type": "siglip_vision_model", **VISION},
            projection_dim=32,
            image_token_index=IMAGE,
            tie_word_embeddings=False,
        )
    )


def qwen3_moe():
    """Its class asks the language model for more than a state."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    return transformers.Qwen3VLMoeForConditionalGeneration(
        transformers.Qwen3VLMoeConfig(
            text_config={**ONE, "head_dim": 8, "rope_parameters": ROPE, **experts},
            vision_config={
                **QWEN_VISION,
                "deepstack_visual_indexes": [0],
                "num_position_embeddings": 16,
            },
            image_token_id=IMAGE,
            video_token_id=94,
            vision_start_token_id=93,
            vision_end_token_id=92,
        )
    )


def intern():
    """The size of its images is a list."""
    tower = {**VISION, "image_size": [8, 8], "patch_size": [2, 2], "num_hidden_layers": 1}
    return transformers.InternVLForConditionalGeneration(
        transformers.InternVLConfig(
            text_config={"model_type": "qwen2", **ONE}, vision_config=tower, image_token_id=IMAGE
        )
    )


def mistral():
    """Its tower takes the sizes of images besides."""
    tower = {**VISION, "model_type": "pixtral", "head_dim": 8, "num_hidden_layers": 1}
    return transformers.Mistral3ForConditionalGeneration(
        transformers.Mistral3Config(
            text_config={"model_type": "mistral", **ONE},
            vision_config={**tower, "image_size": 16},
            image_token_index=IMAGE,
            spatial_merge_size=2,
        )
    )


def fuyu():
    """One matrix makes embeddings of patches."""
    config = transformers.FuyuConfig(
        text_config=transformers.PersimmonConfig(**{**ONE, "num_key_value_heads": 4}).to_dict(),
        image_size=8,
        patch_size=4,
        image_token_id=IMAGE,
    )
    return transformers.FuyuForCausalLM(config)


def test_a_model_without_a_tower_has_no_engine_for_images():
    assert image_towers.image_input(fuyu()) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "has_tower"),
    [(paligemma_2, True), (qwen3_moe, True), (intern, True), (mistral, True), (fuyu, False)],
)
def test_other_families_generate_what_eager_models_do(build, has_tower):
    pair = compiled_pair(build)
    ids, mask = prompts(1, 16)
    ids[ids > 88] = 7
    ids[0, 5:9] = IMAGE
    side = 16 if build is mistral else 8
    images = {"pixel_values": torch.randn(1, 3, side, side).to(DEVICE)}
    if build is qwen3_moe:
        images = {"pixel_values": torch.randn(16, 96).to(DEVICE)}
        images["image_grid_thw"] = torch.tensor([[1, 4, 4]], device=DEVICE)
        images["mm_token_type_ids"] = (ids == IMAGE).int()
    if build is mistral:
        images["image_sizes"] = torch.tensor([[16, 16]], device=DEVICE)
    if build is fuyu:
        images = {"pixel_values": torch.randn(1, 4, 48).to(DEVICE)}
    if build is paligemma_2:
        images["token_type_ids"] = torch.zeros_like(ids)

    pair.assert_same_texts(ids, mask, max_new_tokens=12, **images)

    assert has_tower == (pair.compiled.vision is not None)


def test_images_with_sizes_have_the_features_of_the_eager_tower(tmp_path):
    """Images of several sizes in one batch, with padding; larger ones and other sides are refused."""
    pair = compiled_pair(mistral, max_image_tokens=4, immutable_weights=False)
    pair.compiled.save_pretrained(tmp_path)
    eager = pair.model.base_model
    compiled = CompiledVisionLanguage.from_pretrained(tmp_path).base_model
    side = 2 * eager.vision_tower.patch_size
    images = torch.randn(3, 3, 2 * side, 2 * side).to(DEVICE)
    sizes = torch.tensor([[side, side], [2 * side, side], [2 * side, 2 * side]], device=DEVICE)
    with torch.no_grad():
        wanted = eager.get_image_features(images, image_sizes=sizes, return_dict=True)
    features = compiled.get_image_features(images, image_sizes=sizes)
    for one, other in zip(features.pooler_output, wanted.pooler_output, strict=True):
        torch.testing.assert_close(one, other)

    wide = torch.randn(1, 3, side, 5 * side).to(DEVICE)
    with pytest.raises(InputError, match=r"An image has 5 tokens, .*max_image_tokens=4"):
        compiled.get_image_features(wide, image_sizes=torch.tensor([[side, 5 * side]]))
    with pytest.raises(InputError, match="are no multiples of"):
        compiled.get_image_features(wide, image_sizes=torch.tensor([[side - 1, side]]))


@pytest.mark.slow
def test_texts_behind_images_with_sizes_are_eagers():
    assert_texts_are_eagers(mistral, compiled_pair(mistral, prefill_engine=True))


@pytest.mark.slow  # each compiles three engines, in fifteen seconds
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("build", [gemma, qwen3])
def test_texts_are_eagers_on_every_tensorrt(build, version):
    assert_texts_are_eagers(build, compiled_pair(build, version, prefill_engine=True))


@pytest.mark.slow
@pytest.mark.parametrize("build", [gemma, paligemma, qwen, qwen3])
def test_a_saved_model_generates_the_same(build, tmp_path):
    """The folder records what of images the engines read."""
    pair = compiled_pair(build)
    pair.compiled.save_pretrained(tmp_path)

    loaded = CompiledVisionLanguage.from_pretrained(tmp_path)

    ids, mask, images = with_images(build)
    Pair(pair.model, loaded).assert_same_texts(ids, mask, max_new_tokens=8, num_beams=2, **images)


@pytest.mark.slow
def test_a_conversation_goes_on_with_another_image():
    """Its tokens read each other, and those that are cached."""
    pair = compiled_pair(gemma)
    ids, _, images = with_images(gemma)
    ids, pixels = ids[1:], images["pixel_values"][1:]
    types = images["token_type_ids"][1:]

    whole = pair.model.generate(
        ids, pixel_values=pixels, token_type_ids=types, max_new_tokens=8, do_sample=False
    )
    cache = pair.compiled.new_cache()
    for part, image in ((slice(10), pixels[:1]), (slice(10, 20), pixels[1:])):
        logits = pair.compiled(
            input_ids=ids[:, part],
            pixel_values=image,
            token_type_ids=types[:, part],
            past_key_values=cache,
        ).logits

    assert whole[0, 20] == logits[0, -1].argmax()


@pytest.mark.slow
def test_conversations_have_positions_of_their_own():
    """Transformers' class has those of the last call: another image, of another size, is read in between."""
    pair = compiled_pair(qwen3)
    ids, _, images = with_images(qwen3)
    told = {
        "image_grid_thw": images["image_grid_thw"][:1],
        "pixel_values": images["pixel_values"][:16],
    }
    other = {
        "image_grid_thw": images["image_grid_thw"][1:],
        "pixel_values": images["pixel_values"][16:],
    }
    types = images["mm_token_type_ids"]
    options = {"max_new_tokens": 5, "do_sample": False}

    def talk(model, cache):
        once = model.generate(
            ids[:1], past_key_values=cache, mm_token_type_ids=types[:1], **told, **options
        )
        if model is pair.compiled:
            model.generate(ids[1:], mm_token_type_ids=types[1:], **other, **options)
        more = torch.cat([once, once[:, -2:] + 1], 1)
        longer = torch.nn.functional.pad(types[:1], (0, 7))
        return model.generate(more, past_key_values=cache, mm_token_type_ids=longer, **options)

    wanted = talk(pair.model, transformers.DynamicCache(config=pair.model.config.get_text_config()))
    assert torch.equal(wanted, talk(pair.compiled, pair.compiled.new_cache()))


@pytest.mark.parametrize("build", [qwen3, pytest.param(qwen, marks=pytest.mark.slow)])
def test_one_engine_reads_images_of_all_sizes(build):
    """And videos, whose frames do not read each other; windows need not divide them."""
    model = build().eval().to(DEVICE)
    tower = image_towers.tower_of(model)
    packed, _ = image_towers.packed_tower(model)
    inputs = packed.inputs(image_towers.patch_elements(tower), torch.float32, 15)
    with torchtrt.use_tensorrt(VERSIONS[-1]):
        engine = torchtrt.compile(packed, inputs, require_full_compilation=True, **REAL)
    compiled = image_towers.CompiledTower(engine, packed.indices, torch.float32, 15)
    grid = torch.tensor([[1, 2, 2], [1, 6, 10], [3, 4, 2]], device=DEVICE)
    patches = torch.randn(int(grid.prod(-1).sum()), 96).to(DEVICE)

    with torch.no_grad():
        features = compiled(patches, grid)
        wanted = tower(patches, grid_thw=grid, return_dict=True)

    torch.testing.assert_close(features.pooler_output, wanted.pooler_output, rtol=1e-4, atol=1e-5)
    if build is qwen3:
        (ours,), (theirs,) = features.deepstack_features, wanted.deepstack_features
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_an_image_that_is_too_large_is_refused():
    """Before the engine is called, with the name of the argument."""
    model = qwen3().eval()
    packed, reason = image_towers.packed_tower(model)
    assert not reason
    tower = image_towers.CompiledTower(packed, packed.indices, torch.float32, 5)
    grid = torch.tensor([[1, 4, 4], [1, 6, 4]])

    with pytest.raises(InputError, match=r"An image has 6 tokens, .* for max_image_tokens=5"):
        tower(torch.ones(40, 96), grid)


@pytest.mark.parametrize(
    ("build", "number", "message"),
    [
        (qwen3, 0, "not an integer from 1 to max_length=32"),
        (qwen3, 33, "not an integer from 1 to max_length=32"),
        (gemma, 4, "takes no images of any size"),
        (lambda: t5(), 4, "takes no images of any size"),
    ],
    ids=["none", "many", "of-one-size", "no-images"],
)
def test_a_number_of_tokens_that_no_image_has_is_refused(build, number, message):
    with pytest.raises(InputError, match=message):
        compile_for_generation(build(), max_length=32, max_image_tokens=number)


def test_a_tower_without_these_indices_stays_in_pytorch(monkeypatch):
    """Older versions of transformers compute them in the tower."""
    monkeypatch.setattr(image_towers, "vision_utils", None)

    packed, reason = image_towers.packed_tower(qwen3())

    assert packed is None
    assert "vision_utils" in reason


def t5():
    """Its encoder and its decoder share the table of tokens."""
    config = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4, vocab_size=96
    )
    config.decoder_start_token_id = 0
    return transformers.T5ForConditionalGeneration(config)


@needs(Capability.STRIPPED_PLANS)
@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (t5, CompiledEncoderDecoder),
        pytest.param(llava, CompiledVisionLanguage, marks=pytest.mark.slow),
        pytest.param(qwen3, CompiledVisionLanguage, marks=pytest.mark.slow),
    ],
)
def test_engines_without_weights_get_those_of_the_model(build, kind, tmp_path):
    """The folder has none for them."""
    pair = compiled_pair(build, strip_engine_weights=True, max_batch_size=2, max_length=16)
    pair.compiled.save_pretrained(tmp_path)

    with pytest.raises(torchtrt.errors.RefitError, match="no weights for its engines"):
        kind.from_pretrained(tmp_path)
    with pytest.raises(torchtrt.errors.RefitError, match="are not those"):
        kind.from_pretrained(tmp_path, weights=build())
    loaded = kind.from_pretrained(tmp_path, weights=pair.model)

    ids, mask = prompts(2, 6, padding=(2,))
    Pair(pair.model, loaded).assert_same_texts(ids, mask, max_new_tokens=8)


def seeded(build, seed):
    """A model with the random weights of a seed."""
    torch.manual_seed(seed)
    model = build()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval().to(DEVICE)


@needs(Capability.STRIPPED_PLANS)
@pytest.mark.parametrize("immutable", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_pytorch_runs_gets_the_given_weights_too(immutable, tmp_path):
    """The folder has the table of tokens, for the weights that the engines were compiled with."""
    pair = compiled_pair(
        llava,
        strip_engine_weights=True,
        immutable_weights=immutable,
        max_batch_size=1,
        max_length=16,
    )
    pair.compiled.save_pretrained(tmp_path)
    load, name = CompiledVisionLanguage.from_pretrained, "model.language_model.embed_tokens.weight"
    other = seeded(llava, 3)
    weights = (pair.model if immutable else other).state_dict()
    wrong = {"dtype": weights[name].half(), "other values": weights[name] + 1}
    for reason in ("dtype", "other values") if immutable else ("dtype", "missing"):
        bad = {key: weight for key, weight in weights.items() if key != name}
        bad |= {name: wrong[reason]} if reason in wrong else {}
        with pytest.raises(
            torchtrt.errors.RefitError, match=f"embed_tokens.*{reason[-6:]}|float16"
        ):
            load(tmp_path, weights=bad)

    if not immutable:
        other.generation_config = pair.model.generation_config
        Pair(other, load(tmp_path, weights=other)).assert_same_texts(
            *prompts(1, 6), max_new_tokens=8
        )


@pytest.mark.slow
@pytest.mark.parametrize("build", [t5, gemma, qwen3])
def test_a_pickle_generates_the_same(build):
    """No module has the class, which is made of the model's and of that for engines."""
    pair = compiled_pair(build)
    loaded = pickle.loads(pickle.dumps(pair.compiled))
    assert type(loaded) is type(pair.compiled)
    ids, mask = prompts(2, 6, padding=(2,))
    Pair(pair.model, loaded).assert_same_texts(ids, mask, max_new_tokens=8)
