"""LoRA adapters of a compiled pipeline: loaded, switched, scaled, fused and unloaded as in eager PyTorch."""

import pytest

from tests.support.compiled import exports_of_followed

from . import models
from .models import compile_pipeline

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Already found a `peft_config`:UserWarning"),
    pytest.mark.filterwarnings("ignore:Already unmerged:UserWarning"),
]


SIZE = {"height": 16, "width": 16}


@pytest.fixture
def exported(monkeypatch):
    """The exports since the list was cleared."""
    return exports_of_followed(monkeypatch)


def test_the_scale_of_a_call_is_a_refit(tmp_path, exported):
    """The scale is outside of the program, which would otherwise be another one for each scale."""
    pipe = models.made(models.stable_diffusion)
    pipe.load_lora_weights(models.lora(tmp_path, seed=0), adapter_name="a")
    compiled = compile_pipeline(pipe, heights=16, widths=16, components=["unet"])
    exported.clear()
    seen = [
        models.assert_same_images(compiled, pipe, **SIZE, **options)
        for options in ({}, *({"cross_attention_kwargs": {"scale": scale}} for scale in (0.5, 0.0)))
    ]
    assert [] == exported
    assert all(not seen[0].equal(image) for image in seen[1:])


@pytest.mark.slow  # 20 seconds; the tests of torchtrt.follow have these changes for small models
def test_adapters_are_switched_by_refits(tmp_path, exported):
    """With and without adapters there are two programs of the UNet, and switching back exports neither again."""
    folders = {}
    for seed, name in enumerate("ab"):
        folders[name] = tmp_path / name
        models.lora(folders[name], seed)
    pipe = models.made(models.stable_diffusion)
    compiled = compile_pipeline(pipe, heights=16, widths=16, components=["unet", "text_encoder"])
    seen = []

    def check(change=None, **options):
        """Changes the adapters, compares the image with eager PyTorch's, and returns the numbers of exports."""
        exported.clear()
        if change is not None:
            change()
        image = models.assert_same_images(compiled, pipe, **SIZE, **options)
        seen.append(image)
        assert len(compiled.unet.torchtrt.programs) <= 2
        return len(exported)

    assert 0 == check()
    assert 2 == check(lambda: compiled.load_lora_weights(folders["a"], adapter_name="a"))
    for scale in (0.5, 0.25, 0.0):
        scaled = {"cross_attention_kwargs": {"scale": scale}}
        assert 0 == check(**scaled)
    assert 0 == check()
    compiled.load_lora_weights(folders["b"], adapter_name="b")
    check(lambda: compiled.set_adapters("a"))
    check(lambda: compiled.set_adapters("b", 0.7))
    assert 0 == check(lambda: compiled.set_adapters("a", 0.3))
    assert 0 == check(lambda: compiled.set_adapters("b"))
    check(lambda: compiled.disable_lora())
    assert 0 == check(lambda: compiled.enable_lora())
    check(lambda: compiled.fuse_lora())
    check(lambda: compiled.unfuse_lora())
    check(lambda: compiled.unload_lora_weights())
    assert all(not seen[0].equal(image) for image in seen[1:4])
    assert 2 == len(compiled.unet.torchtrt.programs)
