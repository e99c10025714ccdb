"""Assisted generation of models with images: a step verifies candidates, and texts are those of eager PyTorch."""

import pytest
import torch

from torchtrt.errors import InputError
from torchtrt_converters_transformers import CompiledVisionLanguage

from .conftest import Pair
from .test_assisted import CANDIDATES, assisting
from .test_image_families import (
    compiled_pair,
    gemma,
    llava,
    paligemma,
    qwen,
    qwen3,
    with_images,
)


def one_text(build):
    """One text with an image."""
    ids, mask, images = with_images(build)
    images = {name: value[:1] for name, value in images.items()}
    if "image_grid_thw" in images:
        images["pixel_values"] = with_images(build)[2]["pixel_values"][:16]
    if build is llava:
        del images["token_type_ids"]
    return ids[:1], mask[:1], images


def assert_assisted_texts_are_eagers(build, pair):
    """Greedy and sampled, with more candidates than a step verifies, and with some that are not accepted."""
    stranger = build().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for ours, parameter in zip(pair.model.parameters(), stranger.parameters(), strict=True):
            noise = torch.randn(parameter.shape, generator=generator).to(ours.device)
            parameter.copy_(ours + noise * 0.05)
    stranger.generation_config.update(pad_token_id=0, eos_token_id=None)
    ids, mask, images = one_text(build)
    # An image that a model proposes has no features.
    options = {"max_new_tokens": 12, "suppress_tokens": list(range(91, 96)), **images}
    for assistant, candidates in ((pair.model, CANDIDATES), (pair.model, 7), (stranger, 3)):
        assisting(assistant, candidates)
        for sampled in (False, True):
            pair.assert_same_texts(
                ids, mask, assistant_model=assistant, do_sample=sampled, **options
            )
    plain = pair.assert_same_texts(ids, mask, **options)
    assert torch.equal(
        plain, pair.assert_same_texts(ids, mask, assistant_model=stranger, **options)
    )


@pytest.mark.parametrize(
    "build",
    [llava, *(pytest.param(pair, marks=pytest.mark.slow) for pair in (gemma, paligemma, qwen))],
)
def test_assisted_texts_of_images_are_eagers(build):
    """The first candidates follow the image in one call."""
    pair = compiled_pair(build, max_candidate_tokens=CANDIDATES)

    assert_assisted_texts_are_eagers(build, pair)
    assert not pair.compiled.language.step.report.in_torch
    if build is llava:
        ids, mask, images = one_text(build)
        wanted = pair.model(ids, attention_mask=mask, **images).logits
        logits = pair.compiled(input_ids=ids, attention_mask=mask, **images).logits
        torch.testing.assert_close(logits[:, 3:], wanted[:, 3:], rtol=1e-4, atol=1e-4)
    if build is gemma:
        ids, mask, images = one_text(build)
        with pytest.raises(InputError, match=r"must be read at once.*logits_to_keep"):
            pair.compiled(input_ids=ids, attention_mask=mask, **images)


@pytest.mark.slow
def test_a_saved_model_verifies_candidates(tmp_path):
    """With both engines, one of which reads the image and the first candidates."""
    pair = compiled_pair(qwen3, max_candidate_tokens=CANDIDATES, prefill_engine=True)
    pair.compiled.save_pretrained(tmp_path)

    loaded = CompiledVisionLanguage.from_pretrained(tmp_path)

    assert_assisted_texts_are_eagers(qwen3, Pair(pair.model, loaded))
