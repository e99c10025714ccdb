"""Function transforms inside a model: applied when it is compiled, or refused."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan

import torchtrt
from tests.support.versions import since
from torchtrt.errors import UnsupportedProgramError
from torchtrt_reference import VERSIONS

EXPORTS_GRADIENTS = since("2.13", "fails on derivatives with an error of its own")


class Function(nn.Module):
    """A function as a module, in this file because errors name its line."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        """Calls the function."""
        return self.function(*inputs)


APPLIED = {
    "vmap": lambda x: torch.vmap(torch.sin)(x) + 1,
    "vmap-of-a-product": lambda x: torch.vmap(lambda row: row @ row)(x),
    "vmap-of-vmap": lambda x: torch.vmap(torch.vmap(torch.sin))(x),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1],
    "associative-scan": lambda x: (
        associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic") + 1
    ),
}
REFUSED = {
    "grad": lambda x: torch.func.grad(lambda y: (y * y).sum())(x) + 1,
    "jacrev": lambda x: torch.func.jacrev(torch.sin)(x[0]),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # of PyTorch's, about its own code
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "function",
    [
        pytest.param(function, id=name, marks=[EXPORTS_GRADIENTS] if name == "jvp" else [])
        for name, function in APPLIED.items()
    ],
)
def test_a_transform_is_applied(version, function):
    """Exporting leaves its beginning and its end in the program, which run nowhere else."""
    model, x = Function(function).eval(), torch.rand(4, 3)
    exported = torch.export.export(model, (x,), strict=False)
    with torchtrt.use_tensorrt(f"reference@{version}"):
        for module in (model, exported):
            compiled = torchtrt.compile(module, (x,), require_full_compilation=True)
            torch.testing.assert_close(compiled(x), model(x))


def test_a_transform_is_applied_where_sizes_vary():
    """To the smallest and the largest."""
    shapes = torchtrt.Input(min_shape=(1, 3), opt_shape=(4, 3), max_shape=(8, 3))
    model = Function(APPLIED["vmap-of-a-product"]).eval()
    compiled = torchtrt.compile(model, [shapes], require_full_compilation=True)
    for size in (1, 4, 8):
        x = torch.rand(size, 3)
        torch.testing.assert_close(compiled(x), model(x))


@EXPORTS_GRADIENTS
@pytest.mark.parametrize("function", REFUSED.values(), ids=REFUSED)
def test_a_transform_that_cannot_be_exported_is_refused(function):
    """With the line of the model."""
    with pytest.raises(UnsupportedProgramError, match=r"cannot export .*test_transforms\.py"):
        torchtrt.compile(Function(function).eval(), (torch.rand(4, 3),))


def _unused_gradient(x):
    torch.func.vjp(torch.cos, x)[1](torch.ones_like(x))
    return x * 2


def _written_gradient(x):
    return x.clone().copy_(torch.func.grad_and_value(lambda a: a.exp().sum())(x)[1])


@EXPORTS_GRADIENTS
@pytest.mark.parametrize("function", [_unused_gradient, _written_gradient])
def test_a_tensor_inside_a_transform_is_no_constant(function):
    """The program has no call of the transform where the export computed it with the example."""
    with pytest.raises(UnsupportedProgramError, match="cannot export what the model's transform"):
        torchtrt.compile(Function(function).eval(), (torch.rand(4, 3),), min_block_size=1)


class Unfinished(nn.Module):
    """A transform of a tensor that an op has resized."""

    def forward(self, x):
        y = torch.add(x, x, out=torch.empty(0))
        return torch.vmap(lambda a, b: a * b, in_dims=(0, None))(y, torch.ones(4))


def test_a_refused_transform_has_ended():
    """Before, all that the process computed later was a part of it."""
    rows = torchtrt.Input(min_shape=(2, 4), opt_shape=(3, 4), max_shape=(5, 4))
    with pytest.raises(UnsupportedProgramError, match="cannot export what the model's transform"):
        torchtrt.compile(Unfinished().eval(), [rows])

    assert (3,) == torch.rand(3).shape  # random numbers are refused inside a transform
