"""The builder of TensorRT for RTX takes the networks of denoisers, with sizes that vary."""

import pytest
import torch

import torchtrt
import torchtrt_rtx
from torchtrt.errors import EngineError

from . import models
from .models import compile_pipeline

pytestmark = [
    pytest.mark.skipif(
        not torchtrt_rtx.VERSIONS, reason="the wheels of TensorRT for RTX are not installed"
    ),
    pytest.mark.skipif(torch.cuda.is_available(), reason="it would run the engines as well"),
]


@pytest.mark.parametrize(
    ("build", "component"),
    [
        (models.stable_diffusion, "unet"),
        pytest.param(models.stable_diffusion_3, "transformer", marks=pytest.mark.slow),
    ],
)
def test_denoisers_build(build, component):
    """In half precision, as one engine. Engines whose weights can be replaced need a GPU while they are built."""
    pipe = models.made(build).to(dtype=torch.float16)
    sizes = {"heights": (16, 32), "widths": (16, 32), "batch_sizes": (1, 2)}
    options = {"components": [component], "compile_now": False, "immutable_weights": True}
    with torchtrt.use_tensorrt("rtx"):
        compiled = compile_pipeline(pipe, **sizes, **options)
        with pytest.raises(EngineError, match="runs this engine on RTX GPUs"):
            models.images(compiled, height=16, width=16)
    (program,) = compiled.torchtrt.report[component].programs
    assert program.report.tensorrt.startswith("rtx")
    assert [] == program.report.in_torch
    assert 1 == len(program.report.blocks)
    assert 0 < program.report.blocks[0].plan_bytes
