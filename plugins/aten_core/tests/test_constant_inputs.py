"""Which input of an op is constant makes no difference: a weight may be what is normalized."""

import pytest
import torch
from torch.nn import functional

from torchtrt.testing import run_compiled

from .test_pack import Function, compile_everything

SCALE = torch.tensor([0.5, 1.0, 2.0, -1.0])
CONSTANT = torch.arange(32.0).reshape(2, 4, 4).sin()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.layer_norm(CONSTANT, (4,), x),
        lambda x: functional.rms_norm(CONSTANT, (4,), x),
        lambda x: functional.group_norm(CONSTANT, 2, x),
        lambda x: functional.prelu(CONSTANT, x),
    ],
    ids=["layer_norm", "rms_norm", "group_norm", "prelu"],
)
def test_a_constant_is_scaled_by_an_input(function):
    """The other way round than in most models."""
    result = run_compiled(compile_everything(Function(function).eval(), SCALE), SCALE)

    torch.testing.assert_close(result, function(SCALE))
