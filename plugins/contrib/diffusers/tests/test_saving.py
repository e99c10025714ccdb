"""The engines of a compiled pipeline in a folder, and behind another pipeline."""

import pytest
import torch

from tests.support.compiled import exports_of_followed
from torchtrt.errors import InputError, UnreadableFileError

from . import models
from .models import compile_pipeline, diffusers, load_compiled_pipeline

pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
SIDES = {"heights": (16, 32), "widths": (16, 32)}
NAMES = ["text_encoder", "vae"]
"""The UNet takes longer to compile, and is saved by the same rules."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The weights and the engines of a pipeline that comes from files, as most do."""
    folder = tmp_path_factory.mktemp("pipeline")
    models.made(models.stable_diffusion).save_pretrained(folder)
    compile_pipeline(loaded(folder), **SIDES, components=NAMES).torchtrt.save(folder)
    return folder


def loaded(folder):
    """Returns the pipeline in a folder."""
    pipe = diffusers.StableDiffusionPipeline.from_pretrained(folder, safety_checker=None)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def test_engines_are_loaded_without_an_export(folder, monkeypatch):
    """The weights are those of the pipeline; its ranges are those that were compiled."""
    exported = exports_of_followed(monkeypatch)
    pipe = loaded(folder)
    compiled = load_compiled_pipeline(folder, pipe)
    report = compiled.torchtrt.report
    for name in ("text_encoder", "vae.decoder"):
        assert 1 == len(report[name].programs)
    assert "its first call compiles it" in report["vae.encoder"].reason
    for height, width in ((16, 24), (32, 16)):
        models.assert_same_images(compiled, pipe, height=height, width=width)
    with torch.no_grad():
        for weight in pipe.vae.parameters():
            weight.mul_(1.1)
    models.assert_same_images(compiled, pipe, height=16, width=24)
    assert [] == exported
    with pytest.raises(InputError, match="height=40 is outside of 16 to 32"):
        models.images(compiled, height=40, width=16)


def test_another_checkpoint_gets_its_weights_by_a_refit(folder, monkeypatch):
    exported = exports_of_followed(monkeypatch)
    pipe = loaded(folder)
    with torch.no_grad():
        for weight in (*pipe.text_encoder.parameters(), *pipe.vae.parameters()):
            weight.normal_(std=0.2)
    compiled = load_compiled_pipeline(folder, pipe)
    models.assert_same_images(compiled, pipe, height=16, width=24)
    assert [] == exported


def test_engines_of_other_components_are_refused(folder, tmp_path):
    """Of another structure, or of a pipeline without the component."""
    pipe = loaded(folder)
    others = loaded(folder)
    others.vae = models.vae(layers_per_block=2)
    with pytest.raises(InputError, match=r"not for this Decoder\. They differ in the modules of"):
        load_compiled_pipeline(folder, others)
    others.text_encoder = None
    with pytest.raises(InputError, match="has no module 'text_encoder'"):
        load_compiled_pipeline(
            folder,
            diffusers.StableDiffusionPipeline(
                **{**pipe.components, "text_encoder": None}, requires_safety_checker=False
            ),
        )
    with pytest.raises(
        InputError, match=r"no torchtrt/pipeline\.json, which compiled\.torchtrt\.save"
    ):
        load_compiled_pipeline(tmp_path, pipe)
    with pytest.raises(
        InputError, match="load_compiled_pipeline takes a pipeline of diffusers, not"
    ):
        load_compiled_pipeline(folder, pipe.unet)
    unused = compile_pipeline(pipe, **SIDES, compile_now=False)
    with pytest.raises(InputError, match="No component of the pipeline has engines to save"):
        unused.torchtrt.save(tmp_path)
    (tmp_path / "torchtrt").mkdir()
    (tmp_path / "torchtrt/pipeline.json").write_text('{"format": 9}')
    with pytest.raises(UnreadableFileError, match="another format than 3"):
        load_compiled_pipeline(tmp_path, pipe)
