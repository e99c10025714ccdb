"""Each family of pipelines: one engine for each component and all sizes, and eager PyTorch's images."""

import pytest
import torch

import torchtrt
from torchtrt.errors import InputError

from . import models
from .models import compile_pipeline, diffusers

pytestmark = [  # of diffusers itself
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`FluxPosEmbed` is deprecated:FutureWarning"),
]
VERSIONS = ("reference@8.6.0", "reference@11.4.0")
SIDES = {"heights": (16, 32), "widths": (16, 32), "batch_sizes": (1, 2)}
TEXT = {"sequence_lengths": (8, 12)}
LATENTS = {"output_type": "latent"}


def counts(compiled):
    """Returns the number of programs of each component that engines run."""
    return {row.component: len(row.programs) for row in compiled.torchtrt.report.components}


@pytest.mark.parametrize(
    "version", [pytest.param(VERSIONS[0], marks=pytest.mark.slow), VERSIONS[1]]
)
def test_stable_diffusion_3_has_texts_of_two_encoders(version):
    pipe = models.made(models.stable_diffusion_3)
    names = ["transformer", "text_encoder_3"]
    with torchtrt.use_tensorrt(version):
        compiled = compile_pipeline(pipe, components=names, **SIDES, **TEXT)
    before = counts(compiled)
    assert 1 == before["transformer"] == before["text_encoder_3"]
    for options in (
        {"height": 16, "width": 24, "max_sequence_length": 8},
        {"height": 32, "width": 16, "max_sequence_length": 12, "num_images_per_prompt": 2},
        {"height": 16, "width": 16, "max_sequence_length": 9, "guidance_scale": 1.0},
    ):
        models.assert_same_images(compiled, pipe, **options)
    assert before == counts(compiled)
    with pytest.raises(InputError, match="max_sequence_length=16 is outside of 8 to 12"):
        models.images(compiled, height=16, width=16, max_sequence_length=16)


@pytest.mark.slow  # the compilations take half a minute
def test_flux_has_tokens_of_height_times_width():
    """The pipeline checks height and width before it runs, as the transformer takes only their product."""
    pipe = models.made(models.flux)
    compiled = compile_pipeline(pipe, components=["transformer"], **SIDES, **TEXT)
    before = counts(compiled)
    assert 1 == before["transformer"]
    for options in (
        {"height": 16, "width": 24, "max_sequence_length": 8},
        {"height": 32, "width": 16, "max_sequence_length": 12, "num_images_per_prompt": 2},
        {"height": 20, "width": 16, "max_sequence_length": 8, "true_cfg_scale": 2.0, "negative_prompt": "b"},
    ):  # fmt: skip
        models.assert_same_images(compiled, pipe, **options)
    assert before == counts(compiled)
    with pytest.raises(InputError, match="height=64 is outside of 16 to 32"):
        models.images(compiled, height=64, width=8, max_sequence_length=8)
    assert {"aten.outer.default", "aten.cos.default"} <= {
        entry.op for entry in compiled.torchtrt.report["transformer"].programs[0].report.in_torch
    }
    whole = compile_pipeline(
        pipe, heights=16, widths=16, components=["transformer"], **TEXT, truncate_double=True
    )
    models.assert_same_images(whole, pipe, height=16, width=16, max_sequence_length=8)
    assert [] == whole.torchtrt.report["transformer"].programs[0].report.in_torch
    with pytest.raises(
        InputError, match=r"'transformer'.*max_sequence_length|max_sequence_length=16"
    ):
        models.images(compiled, height=16, width=16, max_sequence_length=16)


@pytest.mark.slow  # the compilations take half a minute
def test_wan_has_frames():
    pipe = models.made(models.wan)
    compiled = compile_pipeline(
        pipe,
        heights=(32, 48),
        widths=(32, 48),
        num_frames=(5, 9),
        batch_sizes=(1, 2),
        components=["transformer"],
        sequence_lengths=8,
    )
    assert (
        "frames in lists"
        in compile_pipeline(pipe, heights=32, widths=32, compile_now=False)
        .torchtrt.report["vae"]
        .reason
    )
    text = {"max_sequence_length": 8, **LATENTS}
    for options in (
        {"height": 32, "width": 48, "num_frames": 5},
        {"height": 48, "width": 32, "num_frames": 9, "num_videos_per_prompt": 2},
        {"height": 32, "width": 32, "num_frames": 5, "guidance_scale": 1.0},
    ):
        models.assert_same_images(compiled, pipe, **options, **text)
    assert 1 == counts(compiled)["transformer"]
    with pytest.raises(InputError, match="num_frames=13 is outside of 5 to 9"):
        models.images(compiled, height=32, width=32, num_frames=13, **text)
    with pytest.raises(InputError, match="width=64 is outside of 32 to 48"):
        models.images(compiled, height=32, width=64, num_frames=5, **text)


@pytest.mark.slow  # the compilation takes ten seconds; test_pipeline.py has the UNet's other sizes
@pytest.mark.parametrize("version", VERSIONS)
def test_stable_diffusion_xl_has_added_conditions(version):
    pipe = models.made(models.stable_diffusion_xl)
    with torchtrt.use_tensorrt(version):
        compiled = compile_pipeline(pipe, components=["unet", "text_encoder_2"], **SIDES)
    before = counts(compiled)
    assert 1 == before["unet"] == before["text_encoder_2"]
    for options in (
        {"height": 16, "width": 24},
        {"height": 32, "width": 16, "num_images_per_prompt": 2},
        {"height": 16, "width": 16, "guidance_scale": 1.0},
    ):
        models.assert_same_images(compiled, pipe, **options)
    assert before == counts(compiled)


def flux_control():
    return diffusers.FluxControlNetModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=8,
        pooled_projection_dim=8,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )


def sd3_control():
    return diffusers.SD3ControlNetModel(**models.STABLE_DIFFUSION_3)


KINDS = {
    "FluxImg2ImgPipeline": models.flux,
    "FluxInpaintPipeline": models.flux,
    "FluxControlNetPipeline": models.flux,
    "StableDiffusion3Img2ImgPipeline": models.stable_diffusion_3,
    "StableDiffusion3ControlNetPipeline": models.stable_diffusion_3,
}
CONTROL = {
    "FluxControlNetPipeline": flux_control,
    "StableDiffusion3ControlNetPipeline": sd3_control,
}


@pytest.mark.slow  # the compilations take half a minute; test_pipeline.py has the rules for Stable Diffusion
@pytest.mark.parametrize("name", KINDS)
def test_pipelines_of_images_are_compiled_ahead(name):
    """Image-to-image, inpainting, and ControlNets with several scales: one program for each component."""
    parts, components = models.made(KINDS[name]).components, ["transformer"]
    torch.manual_seed(0)
    if name in CONTROL:
        parts["controlnet"] = CONTROL[name]().eval()
        components.append("controlnet")
        for weight in parts["controlnet"].parameters():
            torch.nn.init.normal_(weight, std=0.1)
    pipe = models.made(lambda: getattr(diffusers, name)(**parts))
    compiled = compile_pipeline(pipe, components=components, **SIDES, **TEXT)
    before = counts(compiled)
    for height, width, length, scale in ((16, 24, 8, 1.0), (32, 16, 12, 0.3)):
        options = {"height": height, "width": width, "max_sequence_length": length}
        image = torch.rand(1, 3, height, width)
        if name in CONTROL:
            options |= {"control_image": image, "controlnet_conditioning_scale": scale}
        else:
            options |= {"image": image, "num_inference_steps": 3}
        if "Inpaint" in name:
            options["mask_image"] = (torch.rand(1, 1, height, width) > 0.5).float()
        models.assert_same_images(compiled, pipe, **options)
    assert before == counts(compiled)
    assert all(1 == before[component] for component in components)
