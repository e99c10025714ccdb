"""Pipelines beside text-to-image: from images, with ControlNets and adapters, without encoders, of other libraries."""

import pytest
import torch

from torchtrt.errors import InputError

from . import models
from .models import SIZE, Noise, compile_pipeline, diffusers, own_pipeline, programs

pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")


@pytest.mark.parametrize("name", ["Img2Img", "Inpaint"])
def test_pipelines_that_take_images_are_compiled_ahead(name):
    parts = models.made(models.stable_diffusion).components
    kind = getattr(diffusers, f"StableDiffusion{name}Pipeline")
    pipe = models.made(lambda: kind(**parts, requires_safety_checker=False))
    compiled = compile_pipeline(pipe, heights=(16, 32), widths=16, components=["vae"])
    before = programs(compiled)
    assert 1 == len(before["vae.encoder"]) == len(before["vae.decoder"])
    options = {"image": torch.rand(1, 3, 32, 16), "num_inference_steps": 4}
    if name == "Inpaint":
        options |= {"mask_image": torch.ones(1, 1, 32, 16), "height": 32, "width": 16}
    models.assert_same_images(compiled, pipe, **options)
    assert before == programs(compiled)
    options["image"] = torch.rand(1, 3, 48, 16)
    if name == "Img2Img":
        with pytest.raises(InputError, match=r"height=48 is outside of 16 to 32.*'vae.encoder'"):
            models.images(compiled, **options)


def test_a_controlnet_has_one_program_for_all_scales():
    """The scale multiplies what the program returns; the UNet runs in PyTorch."""
    pipe = models.with_control(models.stable_diffusion)
    compiled = compile_pipeline(pipe, heights=(16, 32), widths=(16, 32), components=["controlnet"])
    before = programs(compiled)
    seen = []
    for height, width, scale in ((16, 16, 1.0), (32, 24, 0.5), (16, 16, 0.25), (16, 16, 0)):
        image = torch.full((1, 3, height, width), 0.3)
        options = {"image": image, "height": height, "width": width}
        seen.append(
            models.assert_same_images(
                compiled, pipe, controlnet_conditioning_scale=float(scale), **options
            )
        )
    assert not torch.allclose(seen[0], seen[2])
    assert before == programs(compiled)
    assert 1 == len(before["controlnet"])


@pytest.mark.slow  # eight seconds for two builds of the UNet
def test_the_unet_takes_embeddings_of_ip_adapters():
    """Their scale is a number that Python code asks about, so that each has a program."""
    pipe = models.made(models.stable_diffusion)
    pipe.unet._load_ip_adapter_weights([models.ip_adapter(pipe.unet)])
    pipe.set_ip_adapter_scale(0.7)
    arguments = {"ip_adapter_image_embeds": [torch.randn(2, 1, 6)]}
    compiled = compile_pipeline(
        pipe,
        heights=(16, 32),
        widths=(16, 32),
        batch_sizes=(1, 2),
        components=["unet"],
        example=arguments,
    )
    first = models.assert_same_images(compiled, pipe, height=16, width=24, **arguments)
    models.assert_same_images(
        compiled, pipe, height=32, width=24, num_images_per_prompt=2, **arguments
    )
    assert 1 == len(programs(compiled)["unet"])
    pipe.set_ip_adapter_scale(0.3)
    second = models.assert_same_images(compiled, pipe, height=16, width=24, **arguments)
    assert not torch.allclose(first, second)
    assert 2 == len(programs(compiled)["unet"])


def test_a_pipeline_without_text_encoders_takes_an_example():
    parts = models.made(models.stable_diffusion).components
    parts |= {"text_encoder": None, "tokenizer": None}
    pipe = models.made(
        lambda: diffusers.StableDiffusionPipeline(**parts, requires_safety_checker=False)
    )
    sizes = {"heights": 16, "widths": 16, "components": ["vae"]}
    example = {name: torch.rand(1, 8, 8) for name in ("prompt_embeds", "negative_prompt_embeds")}
    with pytest.raises(InputError, match="Give example"):
        compile_pipeline(pipe, **sizes)
    compiled = compile_pipeline(pipe, **sizes, example=example)
    models.assert_same_images(compiled, pipe, prompt=None, **example, **SIZE)


def test_a_pipeline_of_another_library_takes_dynamic_shapes():
    pipe = own_pipeline(Noise().eval())
    sizes = {"heights": 16, "widths": 16}
    with pytest.raises(InputError, match="OwnPipeline does not give a default size"):
        compile_pipeline(pipe)
    left = compile_pipeline(pipe, **sizes)
    assert "has no sizes for its class" in left.torchtrt.report["denoiser"].reason
    assert "PyTorch, because compile_pipeline has no sizes" in str(left.torchtrt.report)
    shapes = {"denoiser": {"x": {0: (2, 8)}}}
    with pytest.raises(InputError, match=r"OwnPipeline cannot be compiled ahead.*rows"):
        compile_pipeline(pipe, **sizes, dynamic_shapes=shapes)
    compiled = compile_pipeline(pipe, **sizes, dynamic_shapes=shapes, example={"rows": 3})
    for rows in (2, 5, 8):
        torch.testing.assert_close(compiled(rows), pipe(rows))
    assert 1 == len(programs(compiled)["denoiser"])
