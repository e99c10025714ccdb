"""Weights keep the model's names in the engine, so that an engine can be given new ones without a rebuild."""

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import engines_of
from torchtrt.tensorrt import is_real, trt
from torchtrt.tensorrt.logging import logger
from torchtrt.tensorrt.shims import weights_of

DEVICE = torch.device("cuda" if is_real() else "cpu")


class Network(nn.Module):
    """A convolution, a linear layer and an embedding."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(2, 3, 3)
        self.linear = nn.Linear(3, 4)
        self.table = nn.Embedding(5, 4)

    def forward(self, images, ids):
        """Returns something that depends on every weight."""
        features = torch.relu(self.convolution(images)).mean((2, 3))
        return self.linear(features) * self.table(ids)


@pytest.fixture
def inputs():
    """Images and ids."""
    return torch.rand(2, 2, 6, 6, device=DEVICE), torch.tensor([1, 3], device=DEVICE)


def engine_of(compiled, inputs):
    """Returns the compiled model's engine module, loaded."""
    compiled(*inputs)
    (engine,) = engines_of(compiled)
    return engine


def versions():
    """Returns the TensorRTs to test: all of the reference's, or the real one."""
    return ["real"] if is_real() else ["reference@8.6.0", "reference@10.16.1", "reference@11.4.0"]


@pytest.mark.parametrize("spec", versions())
def test_an_engine_takes_new_weights_by_the_models_names(spec, inputs):
    """After refitting every weight, the engine computes what the newly initialized model computes."""
    torch.manual_seed(0)
    old, new = Network().eval().to(DEVICE), Network().eval().to(DEVICE)
    with torchtrt.use_tensorrt(spec):
        compiled = torchtrt.compile(
            old,
            inputs,
            require_full_compilation=True,
            immutable_weights=False,
            disable_tf32=True,
            tactic_sources=0 if is_real() else None,
        )
        engine = engine_of(compiled, inputs)
        refitter = trt.Refitter(next(iter(engine._loaded.values()))[1], logger())
        names = set(refitter.get_all_weights())
        state = {name: tensor for name, tensor in new.state_dict().items() if name in names}
        owners = []
        for name, tensor in state.items():
            weights, owner = weights_of(tensor)
            owners.append(owner)
            assert refitter.set_named_weights(name, weights)
        assert refitter.refit_cuda_engine()

    assert set(new.state_dict()) <= names
    torch.testing.assert_close(compiled(*inputs), new(*inputs), rtol=1e-4, atol=1e-5)
