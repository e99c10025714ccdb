"""Models of diffusers become the layers that a current TensorRT has, with the values of eager PyTorch."""

import pytest
import torch

import torchtrt
from tools.current_layers import LAYERS, MODELS, report_of

pytest.importorskip("diffusers")
NAMES = [name for name, model in MODELS.items() if model.library == "diffusers"]
USED = {
    "FLUX": {"ATTENTION": 4, "ROTARY_EMBEDDING": 8},
    "Stable Diffusion": {"ATTENTION": 8, "NORMALIZATION_V2": 21},
}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_diffusers_uses_current_layers(name):
    """Fewer layers than without, and the same values."""
    model, inputs = MODELS[name].build(), MODELS[name].inputs()
    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(
            model, inputs, require_full_compilation=True, truncate_double=True
        )
        without = report_of(model, inputs, LAYERS)

    assert {row.capability: len(row.nodes) for row in compiled.report.layers} == USED[name]
    assert all(not row.nodes for row in without.layers)
    assert compiled.report.blocks[0].layers < without.blocks[0].layers
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), model(*inputs), rtol=1e-4, atol=1e-5)
