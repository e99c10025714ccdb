"""The TensorRT whose builds and calls are watched, and which fails where a test wants it to."""

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import BuildError, EngineError
from torchtrt.tensorrt import describe, is_real
from torchtrt_testing.faults import watched_tensorrt

X = torch.rand(2, 4)


def compiled(**settings):
    return torchtrt.compile(nn.Tanh().eval(), [X], min_block_size=1, **settings)


def test_builds_and_calls_are_noted(version):
    """And the TensorRT has the name and the abilities of the one that it wraps."""
    with watched_tensorrt() as tensorrt:
        assert (describe(), is_real()) == (version, False)
        model = compiled()
    torch.testing.assert_close(model(X), X.tanh())

    ((layer,),) = (build.layers for build in tensorrt.builds)
    assert "aten.tanh" in layer
    assert tensorrt.executions == [((2, 4),)]


def test_a_refusal_has_its_reason():
    """As TensorRT logs it."""
    refused = pytest.raises(BuildError, match=r"could not build the engine:\s*no such layer")
    with watched_tensorrt(refuses=lambda build: "no such layer"), refused:
        compiled()


def test_results_are_changed_where_a_test_asks():
    """By the layers, the inputs and the outputs of the engine."""

    def changes(execution):
        (x,), (y,) = execution.inputs.values(), execution.outputs.values()
        assert any("aten.tanh" in name for name in execution.layers)
        y.copy_(x + 1)

    with watched_tensorrt(changes=changes):
        model = compiled()
    torch.testing.assert_close(model(X), X + 1)


def test_an_engine_raises_what_a_test_raises():
    """And the TensorRT that is in use afterwards does not."""

    def changes(execution):
        raise EngineError("no room")

    with watched_tensorrt(changes=changes):
        model = compiled()
    with pytest.raises(EngineError, match="no room"):
        model(X)
    torch.testing.assert_close(compiled()(X), X.tanh())
