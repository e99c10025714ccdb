"""Several ControlNets, those of Stable Diffusion XL, T2I-Adapters, and pipelines of images of Stable Diffusion XL."""

import pytest
import torch

from . import models
from .models import compile_pipeline, diffusers, load_compiled_pipeline

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The decode_latents method:FutureWarning"),
]
SIDES = {"heights": (16, 32), "widths": (16, 32)}


@pytest.mark.parametrize(
    ("build", "nets"),
    [
        pytest.param(models.stable_diffusion, 2, id="stable-diffusion"),
        pytest.param(
            models.stable_diffusion_xl, 1, id="stable-diffusion-xl", marks=pytest.mark.slow
        ),
        pytest.param(models.stable_diffusion_xl, 2, id="several-of-xl", marks=pytest.mark.slow),
    ],
)
def test_each_controlnet_is_one_program_for_all_sizes_and_scales(build, nets, tmp_path):
    """The UNet takes the sum of their results."""
    pipe = models.with_control(build, nets)
    positions = ["controlnet"] if nets == 1 else ["controlnet.nets.0", "controlnet.nets.1"]

    def options(height, width, scale):
        scales, image = [scale, 0.25], torch.full((1, 3, height, width), 0.3)
        arguments = {"image": [image, 1 - image][:nets], "height": height, "width": width}
        arguments["controlnet_conditioning_scale"] = scales[:nets]
        return (
            arguments
            if nets > 1
            else {**arguments, "image": image, **dict.fromkeys(list(arguments)[-1:], scale)}
        )

    compiled = compile_pipeline(
        pipe, **SIDES, components=["unet", "controlnet"], example=options(16, 16, 1.0)
    )
    seen = [
        models.assert_same_images(compiled, pipe, **options(*sizes))
        for sizes in ((16, 16, 1.0), (32, 24, 0.5), (16, 16, 0.1))
    ]
    assert not torch.allclose(seen[0], seen[2])
    report = compiled.torchtrt.report
    assert all(1 == len(report[name].programs) for name in ("unet", *positions))
    compiled.torchtrt.save(tmp_path)
    loaded = load_compiled_pipeline(tmp_path, pipe)
    models.assert_same_images(loaded, pipe, **options(32, 16, 0.7))
    assert all(not hasattr(module, "torchtrt") for module in pipe.controlnet.modules())
    if nets > 1:
        compiled.controlnet.nets[0] = pipe.controlnet.nets[0]
    compiled.unet = None
    report = compiled.torchtrt.report
    assert "no longer has it" in report["unet"].reason
    assert 1 == len(report[positions[-1]].programs)
    assert nets == 1 or "another module is in its place" in report[positions[0]].reason
    compiled.torchtrt.save(tmp_path / "rest")
    assert ["controlnet.nets.1"][: nets - 1] == [
        path.name for path in (tmp_path / "rest").rglob("controlnet.nets*")
    ]


def test_a_unet_reads_the_features_of_a_t2i_adapter():
    """It removes them from the list of the call, which is a new one in each step."""
    parts = models.made(models.stable_diffusion).components
    parts["unet"] = models.unet(
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    sizes = {"channels": [4, 8], "num_res_blocks": 1, "downscale_factor": 2}
    adapter = diffusers.T2IAdapter(in_channels=3, adapter_type="full_adapter", **sizes).eval()
    options = {"adapter": adapter, "requires_safety_checker": False}
    del parts["image_encoder"]
    pipe = models.made(lambda: diffusers.StableDiffusionAdapterPipeline(**parts, **options))

    compiled = compile_pipeline(
        pipe, **SIDES, components=["unet", "adapter"], example={"image": torch.rand(1, 3, 16, 16)}
    )

    seen = [
        models.assert_same_images(
            compiled,
            pipe,
            image=torch.full((1, 3, height, width), 0.3),
            height=height,
            width=width,
            adapter_conditioning_scale=scale,
        )
        for height, width, scale in ((16, 16, 1.0), (32, 24, 1.0), (16, 16, 0.2))
    ]
    assert abs(seen[0] - seen[2]).max() > 1e-3
    report = compiled.torchtrt.report
    assert 1 == len(report["unet"].programs)
    assert "UNet2DConditionModel" in report["unet"].class_name
    assert "once for all steps" in report["adapter"].reason


@pytest.mark.slow  # each compiles four components, in ten seconds
@pytest.mark.parametrize(
    "name", ["StableDiffusionXLImg2ImgPipeline", "StableDiffusionXLInpaintPipeline"]
)
def test_pipelines_of_images_of_xl_are_compiled(name):
    parts = models.made(models.stable_diffusion_xl).components
    pipe = models.made(lambda: getattr(diffusers, name)(**parts))
    compiled = compile_pipeline(pipe, **SIDES)
    for height, width in ((16, 16), (32, 24)):
        options = {"image": torch.rand(1, 3, height, width), "strength": 0.7}
        if "Inpaint" in name:
            options |= {"mask_image": (torch.rand(1, 1, height, width) > 0.5).float()}
            options |= {"height": height, "width": width}
        models.assert_same_images(compiled, pipe, num_inference_steps=3, **options)


@pytest.mark.slow
def test_each_of_several_controlnets_of_stable_diffusion_3_is_one_program():
    parts = models.made(models.stable_diffusion_3).components
    torch.manual_seed(0)
    nets = [diffusers.SD3ControlNetModel(**models.STABLE_DIFFUSION_3).eval() for _ in range(2)]
    for weight in [weight for net in nets for weight in net.parameters()]:
        torch.nn.init.normal_(weight, std=0.1)
    parts["controlnet"] = diffusers.SD3MultiControlNetModel(nets)
    pipe = models.made(lambda: diffusers.StableDiffusion3ControlNetPipeline(**parts))

    def options(height, scale):
        image = torch.full((1, 3, height, 16), 0.3)
        scales = {"controlnet_conditioning_scale": [scale, 0.5], "max_sequence_length": 8}
        return {"control_image": [image, 1 - image], **scales}

    compiled = compile_pipeline(
        pipe,
        **SIDES,
        sequence_lengths=8,
        components=["transformer", "controlnet"],
        example=options(16, 1.0),
    )
    for height, scale in ((16, 1.0), (32, 0.3)):
        models.assert_same_images(compiled, pipe, height=height, width=16, **options(height, scale))
    report = compiled.torchtrt.report
    assert all(1 == len(report[f"controlnet.nets.{number}"].programs) for number in (0, 1))
