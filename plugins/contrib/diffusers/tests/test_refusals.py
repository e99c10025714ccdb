"""What `compile_pipeline` refuses, with the reason."""

import pytest
import torch

from torchtrt.errors import ExportError, InputError, SettingsError

from . import models
from .models import SIZE, Noise, compile_pipeline, own_pipeline

pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heights": (16, 18)}, "heights gives 16 to 18, but 'unet' takes multiples of 4"),
        (
            {"heights": (17, 33), "compile_now": False},
            "heights gives 17 to 33, but StableDiffusionPipeline takes multiples of 2",
        ),
        ({"heights": (32, 16)}, "heights=.32, 16. is no range"),
        ({"heights": "16"}, "heights='16' is no range"),
        ({"widths": (16.0, 32)}, "widths=.16.0, 32. is no range"),
        ({"batch_sizes": 0}, "batch_sizes=0 is no range"),
        ({"num_frames": 3}, "num_frames is for videos"),
        ({"components": ["transformer"]}, "no module 'transformer'; it has"),
        ({"components": "scheduler"}, "no module 'scheduler'; it has"),
        ({"dynamic_shapes": {"nothing": {}}}, "no module 'nothing'"),
        (
            {"components": ["vae"], "dynamic_shapes": {"unet": {}}},
            "sizes for 'unet', which components= leaves out",
        ),
        ({"dynamic_shapes": {"vae": {}}}, "an autoencoder, whose sizes follow from heights"),
        ({"dynamic_shapes": {"unet": {"x": {0: 1}}}}, "dynamic_shapes names 'x'"),
        ({"heights": True}, "heights=True is no range"),
        ({"components": 5}, "components takes the names of components, not an int"),
        ({"dynamic_shapes": "unet"}, "dynamic_shapes takes a dictionary, not a str"),
        ({"example": [("height", 16)]}, "example takes a dictionary, not a list"),
        ({"guidance": 7.5}, "guidance=7.5 is neither True nor False"),
        ({"fallback": "no"}, "fallback='no' is neither True nor False"),
        ({"example": {"height": 15}}, "divisible by 8.*Give example"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options, message):
    pipe = models.made(models.stable_diffusion)
    with pytest.raises(InputError, match=message):
        compile_pipeline(pipe, **{"heights": 16, "widths": 16, **options})
    assert not hasattr(pipe.unet, "torchtrt")


def test_guidance_that_is_not_compiled_is_named():
    options = {"components": ["unet"], "guidance": False, "compile_now": False}
    compiled = compile_pipeline(models.made(models.stable_diffusion), **options)
    with pytest.raises(
        InputError, match=r"batch=2 .*doubled by guidance\) is outside of 1,.*guidance=True"
    ):
        models.images(compiled, **SIZE)


def test_settings_are_checked():
    pipe = models.made(models.stable_diffusion)
    with pytest.raises(SettingsError, match="min_block_sizes"):
        compile_pipeline(pipe, heights=16, widths=16, min_block_sizes=3)
    with pytest.raises(SettingsError, match=r"'guidanc'\. Did you mean 'guidance'"):
        compile_pipeline(pipe, guidanc=True)
    with pytest.raises(SettingsError, match=r"'max_programms'\. Did you mean 'max_programs'"):
        compile_pipeline(pipe, max_programms=2)
    with pytest.raises(InputError, match=r"not a torch.nn.modules.linear.Linear|not .*Linear"):
        compile_pipeline(torch.nn.Linear(2, 2))


def test_components_that_are_no_engines_are_refused():
    """In training mode, and with accelerate's hooks, of the component or inside of it."""
    hooks = pytest.importorskip("accelerate.hooks")
    sizes = {"heights": 16, "widths": 16, "components": ["text_encoder"]}
    pipe = models.made(models.stable_diffusion)
    pipe.text_encoder.train()
    with pytest.raises(InputError, match="'text_encoder' of the pipeline is in training mode"):
        compile_pipeline(pipe, **sizes)
    pipe.text_encoder.eval()
    for module in (pipe.text_encoder, next(pipe.text_encoder.children())):
        hooks.add_hook_to_module(module, hooks.AlignDevicesHook(execution_device="cpu"))
        with pytest.raises(InputError, match=r"hook of accelerate .*remove_all_hooks"):
            compile_pipeline(pipe, **sizes)
        hooks.remove_hook_from_module(module)
    compile_pipeline(pipe, **sizes, compile_now=False)


def test_a_component_that_cannot_be_compiled_raises_its_reason():
    class Branches(Noise):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    pipe = own_pipeline(Branches().eval())
    options = {
        "heights": 16,
        "widths": 16,
        "dynamic_shapes": {"denoiser": {}},
        "example": {"rows": 3},
    }
    with pytest.raises(ExportError):
        compile_pipeline(pipe, **options)
