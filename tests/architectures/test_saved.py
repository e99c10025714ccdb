"""Each architecture survives a file, and takes other weights."""

import pytest
import torch
from torch.utils import _pytree as pytree

import torchtrt
from tests.architectures.zoo import ZOO
from tests.support.shards import some
from torchtrt.tensorrt import is_real

pytestmark = pytest.mark.skipif(is_real(), reason="takes minutes of building")


TOLERANCE = 1e-4


def close(actual, expected):
    """Compares results by the size of their largest value."""
    pairs = zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True)
    for result, wanted in pairs:
        largest = wanted.abs().max().item() if wanted.is_floating_point() else 0
        torch.testing.assert_close(result, wanted, rtol=TOLERANCE, atol=TOLERANCE * max(1, largest))


@pytest.mark.filterwarnings("ignore")  # of the libraries, about how their models are traced
@pytest.mark.parametrize("architecture", some(ZOO, 3), ids=lambda case: case.name)
@torch.no_grad()
def test_an_architecture_is_saved_loaded_and_refitted(architecture, tmp_path):
    """By torchtrt and by PyTorch, with the weights it had and with others."""
    old, new, inputs = architecture.model(), architecture.model(), architecture.example()
    for parameter in new.parameters():
        if parameter.is_floating_point():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    compiled = torchtrt.compile(old, inputs, immutable_weights=False)
    torchtrt.save(compiled, tmp_path / "model.pt2")

    loaded = torchtrt.load(tmp_path / "model.pt2")
    close(loaded(*inputs), old(*inputs))
    close(torch.export.load(tmp_path / "model.pt2").module()(*inputs), old(*inputs))
    close(torchtrt.refit_module_weights(loaded, new.state_dict())(*inputs), new(*inputs))
    close(torchtrt.refit_module_weights(compiled, new)(*inputs), new(*inputs))
