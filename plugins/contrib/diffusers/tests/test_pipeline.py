"""A compiled pipeline of Stable Diffusion: its images, its sizes, and what it shares with the original."""

import copy
import io
import threading

import numpy as np
import pytest
import torch

from tests.support.compiled import exports_of_followed
from tests.support.warned import warning_in
from torchtrt.errors import InputError
from torchtrt_runtime.modules.engine import EngineModule

from . import models
from .models import SIZE, compile_pipeline, diffusers, programs

pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")


@pytest.fixture(scope="module")
def pair():
    """A pipeline and the compiled one, which shares its weights."""
    pipe = models.made(models.stable_diffusion)
    state = torch.get_rng_state()
    compiled = compile_pipeline(pipe, heights=(16, 32), widths=(8, 16, 32), batch_sizes=(1, 2))
    assert torch.equal(state, torch.get_rng_state())
    return pipe, compiled


def test_a_warning_of_an_engine_names_the_line_that_calls_the_pipeline(pair):
    """The pipeline, which calls the components, is a part of diffusers."""
    _, compiled = pair
    with warning_in(EngineModule, "forward"), pytest.warns(match="of forward") as caught:
        compiled("a", **SIZE, num_inference_steps=1, output_type="latent")

    assert {__file__} == {warning.filename for warning in caught}


@pytest.mark.parametrize(
    "options",
    [
        {"height": 16, "width": 8},
        {"height": 32, "width": 24, "guidance_scale": 1.0},
        {"height": 16, "width": 32, "num_images_per_prompt": 2},
        {"height": 24, "width": 8, "prompt": ["a", "xyz"], "negative_prompt": ["b", "c"]},
        {**SIZE, "output_type": "latent", "num_inference_steps": 3},
        {**SIZE, "latents": torch.rand(1, 4, 8, 8)},
        {**SIZE, "prompt": None, "prompt_embeds": torch.rand(1, 8, 8), "negative_prompt_embeds": torch.rand(1, 8, 8)},
    ],
    ids=["sizes", "no-guidance", "images", "prompts", "latents-out", "latents-in", "embeddings"],
)  # fmt: skip
def test_images_are_eager_pytorchs_and_need_no_other_program(pair, options):
    pipe, compiled = pair
    before = programs(compiled)
    first = models.assert_same_images(compiled, pipe, **options)
    assert torch.equal(first, models.images(compiled, **options))
    assert before == programs(compiled)
    assert all(1 == len(before[name]) for name in ("unet", "text_encoder", "vae.decoder"))
    assert not any(row.report.in_torch for rows in before.values() for row in rows)


def test_callbacks_see_and_change_latents(pair):
    def callback(pipe, step, time, tensors):
        seen.append(step)
        return {"latents": tensors["latents"] * 0.5}

    pipe, compiled = pair
    seen = []
    models.assert_same_images(compiled, pipe, callback_on_step_end=callback, **SIZE)
    assert [0, 1, 0, 1] == seen
    halved = models.images(compiled, callback_on_step_end=callback, **SIZE)
    assert not torch.allclose(halved, models.images(compiled, **SIZE))


def test_the_original_goes_on_in_pytorch(pair):
    """It shares weights and scheduler, and no module that runs engines."""
    pipe, compiled = pair
    assert type(pipe) is type(compiled)
    assert not hasattr(pipe, "torchtrt")
    assert pipe.vae is not compiled.vae
    for name in ("unet", "text_encoder"):
        assert not hasattr(getattr(pipe, name), "torchtrt")
    assert not hasattr(pipe.vae.decoder, "torchtrt")
    assert pipe.unet.conv_in.weight is compiled.unet.conv_in.weight
    assert pipe.vae.decoder.conv_in.weight is compiled.vae.decoder.conv_in.weight
    assert pipe.config == compiled.config
    assert pipe.scheduler is compiled.scheduler
    assert models.images(pipe, height=40, width=16).shape[-2] == 40


def test_sizes_outside_of_the_range_raise_in_the_words_of_the_call(pair):
    _, compiled = pair
    with pytest.raises(InputError, match=r"^height=40 is outside of 16 to 32.*other heights"):
        models.images(compiled, height=40, width=16)
    with pytest.raises(InputError, match=r"^width=40 is outside of 8 to 32.*other widths"):
        models.images(compiled, height=16, width=40)
    rows = r"batch=6 \(prompts × images per prompt, doubled by guidance\) is outside of 1 to 4"
    with pytest.raises(InputError, match=rf"^{rows}.*'unet'.*batch_sizes"):
        models.images(compiled, num_images_per_prompt=3, **SIZE)
    with pytest.raises(InputError, match=r"height=40 is outside of 16 to 32.*'unet'"):
        compiled.unet(torch.rand(1, 4, 20, 8), 1, torch.rand(1, 8, 8))
    with pytest.raises(InputError, match="height=18 is no multiple of 4"):
        compiled.unet(torch.rand(1, 4, 9, 8), 1, torch.rand(1, 8, 8))
    with pytest.raises(InputError, match="the tokens of prompt_embeds=9 is outside of 8"):
        compiled.unet(torch.rand(1, 4, 8, 8), 1, torch.rand(1, 9, 8))


def test_other_pipelines_of_the_components_run_on_the_engines(pair):
    """Image-to-image and inpainting, which encode images."""
    pipe, compiled = pair
    assert "its first call compiles it" in compiled.torchtrt.report["vae.encoder"].reason
    image, mask = torch.rand(1, 3, 16, 24), torch.ones(1, 1, 16, 24)
    mask[..., :12] = 0
    for name, options in (
        ("AutoPipelineForImage2Image", {"strength": 0.8}),
        ("AutoPipelineForInpainting", {"mask_image": mask, "height": 16, "width": 24}),
    ):
        kind = getattr(diffusers, name)
        mine, eager = kind.from_pipe(compiled), kind.from_pipe(pipe)
        for module in (mine, eager):
            module.set_progress_bar_config(disable=True)
        models.assert_same_images(mine, eager, image=image, num_inference_steps=4, **options)
    assert "" == compiled.torchtrt.report["vae.encoder"].reason
    assert 1 == len(programs(compiled)["vae.encoder"]) == len(programs(compiled)["unet"])


def test_two_threads_share_engines(pair):
    """Each has a pipeline with a scheduler of its own, as diffusers requires, and a tokenizer.

    A tokenizer keeps the padding of its last call, so that two threads would pad each other's texts.
    """
    pipe, compiled = pair
    expected = [
        models.images(pipe, prompt=prompt, seed=seed, **SIZE) for seed, prompt in enumerate("ab")
    ]
    images = {}

    def run(seed, prompt):
        own = copy.copy(compiled)
        own.scheduler = copy.deepcopy(compiled.scheduler)
        own.tokenizer = copy.deepcopy(compiled.tokenizer)
        images[seed] = [models.images(own, prompt=prompt, seed=seed, **SIZE) for _ in range(5)]

    threads = [threading.Thread(target=run, args=worker) for worker in enumerate("ab")]
    for worker in threads:
        worker.start()
    for thread in threads:
        thread.join()
    for seed in (0, 1):
        assert 5 == len(images[seed])
        for image in images[seed]:
            torch.testing.assert_close(image, expected[seed], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("who", ["compiled", "original"])
def test_a_compiled_pipeline_is_saved_as_the_original_is(pair, tmp_path, monkeypatch, who):
    """Files have weights and configurations, and no engines. What saving writes to configurations is no export."""
    pipe, compiled = pair
    models.images(compiled, **SIZE)
    exported = exports_of_followed(monkeypatch)
    (compiled if who == "compiled" else pipe).save_pretrained(tmp_path)
    models.assert_same_images(compiled, pipe, **SIZE)
    assert [] == exported
    loaded = diffusers.StableDiffusionPipeline.from_pretrained(tmp_path, safety_checker=None)
    loaded.set_progress_bar_config(disable=True)
    models.assert_same_images(loaded, pipe, **SIZE)


def test_the_report_has_a_row_for_each_component(pair):
    _, compiled = pair
    report = compiled.torchtrt.report
    assert ["text_encoder", "unet", "vae.decoder", "vae.encoder"] == sorted(
        row.component for row in report.components
    )
    assert {"height": "16 to 32", "width": "8 to 32"}.items() <= report["unet"].sizes.items()
    assert "unet (UNet2DConditionModel): 1 program; batch=1 to 4, height=16 to 32" in str(report)
    with pytest.raises(KeyError, match="has no row"):
        report["safety_checker"]
    rich = pytest.importorskip("rich.console")
    console = rich.Console(width=200, file=io.StringIO())
    console.print(report)
    assert "UNet2DConditionModel" in console.file.getvalue()


def test_slices_of_the_autoencoder_are_batches_of_one(pair):
    pipe, compiled = pair
    before = programs(compiled)
    compiled.vae.enable_slicing()
    models.assert_same_images(compiled, pipe, num_images_per_prompt=2, **SIZE)
    compiled.vae.disable_slicing()
    assert before == programs(compiled)


def test_tiles_of_the_autoencoder_are_enabled_first(pair):
    """They have other sizes than images."""
    pipe, compiled = pair
    compiled.vae.enable_tiling()
    with pytest.raises(InputError, match=r"'vae.decoder'.*enable tiling before compile_pipeline"):
        models.images(compiled, height=32, width=32)
    compiled.vae.disable_tiling()
    pipe = models.made(models.stable_diffusion)
    pipe.vae.enable_tiling()
    tiled = compile_pipeline(pipe, heights=(16, 32), widths=16, components=["vae"])
    for height in (16, 32, 24):
        models.assert_same_images(tiled, pipe, height=height, width=16)
    assert 1 == len(programs(tiled)["vae.decoder"])


def test_other_sizes_with_fallback_are_compiled_when_they_come():
    pipe = models.made(models.stable_diffusion)
    compiled = compile_pipeline(
        pipe, heights=16, widths=16, components=["vae"], fallback=True, compile_now=False
    )
    assert [] == [row for rows in programs(compiled).values() for row in rows]
    for height in (16, 32):
        models.assert_same_images(compiled, pipe, height=height, width=16)
    assert 1 <= len(programs(compiled)["vae.decoder"]) <= 2
    assert "components= leaves it out" == compiled.torchtrt.report["unet"].reason


def test_a_compiled_pipeline_is_compiled_for_other_sizes():
    """With ranges of its own; and the first one goes on with its."""
    pipe = models.made(models.stable_diffusion)
    options = {"widths": 8, "components": ["vae"], "compile_now": False}
    first = compile_pipeline(pipe, heights=(16, 32), **options)
    second = compile_pipeline(first, heights=(8, 48), **options)
    models.assert_same_images(second, pipe, height=48, width=8, guidance_scale=1.0)
    assert (0, 1) == tuple(len(programs(module)["vae.decoder"]) for module in (first, second))
    for module, bounds in ((second, "8 to 48"), (first, "16 to 32")):
        with pytest.raises(InputError, match=f"height=64 is outside of {bounds}"):
            models.images(module, height=64, width=8)
    third = compile_pipeline(second, heights=8, widths=8, components=["unet"], compile_now=False)
    assert "1 program" in str(third.torchtrt.report["vae.decoder"])


def test_hooks_of_the_compiled_pipeline_run_around_engines():
    hooks = pytest.importorskip("accelerate.hooks")
    pipe = models.made(models.stable_diffusion)
    compiled = compile_pipeline(pipe, heights=16, widths=16, components=["text_encoder"])
    hooks.add_hook_to_module(compiled.text_encoder, hooks.AlignDevicesHook(execution_device="cpu"))
    models.assert_same_images(compiled, pipe, **SIZE)
    hooks.remove_hook_from_module(compiled.text_encoder)
    models.assert_same_images(compiled, pipe, **SIZE)
    assert 1 == len(programs(compiled)["text_encoder"])


def test_ranges_may_come_from_numpy():
    pipe = models.made(models.stable_diffusion)
    sizes = {"heights": tuple(np.arange(16, 40, 16)), "widths": np.int64(16)}
    compiled = compile_pipeline(pipe, **sizes, components=["vae"], compile_now=False)
    models.assert_same_images(compiled, pipe, height=np.int64(32), width=16)
    with pytest.raises(InputError, match="height=48 is outside of 16 to 32"):
        models.images(compiled, height=np.int64(48), width=16)


@pytest.mark.slow  # seven seconds; the tests of converters compare their ops in half precision
def test_half_precision_is_as_accurate_as_eager_pytorch():
    """Each image is compared with the one in single precision."""
    exact = models.made(models.stable_diffusion)
    pipe = models.made(models.stable_diffusion).to(dtype=torch.float16)
    compiled = compile_pipeline(pipe, heights=(16, 32), widths=16, components=["unet", "vae"])
    for height in (16, 32):
        options = {"height": height, "width": 16, "latents": torch.rand(1, 4, height // 2, 8)}
        half = {**options, "latents": options["latents"].half()}
        right = models.images(exact, **options)
        actual, eager = (models.images(module, **half) for module in (compiled, pipe))
        assert torch.float16 == actual.dtype
        error, allowed = ((module.float() - right).abs().max() for module in (actual, eager))
        assert error <= 2 * allowed + 1e-3


def test_engines_come_from_the_cache_in_the_next_process(tmp_path):
    pipe = models.made(models.stable_diffusion)
    options = {"heights": 16, "widths": 16, "components": ["vae"], "engine_cache": tmp_path}
    compile_pipeline(pipe, **options)
    (again,) = programs(compile_pipeline(pipe, **options))["vae.decoder"]
    assert all(block.cached for block in again.report.blocks)
