"""Every architecture becomes engines alone and equals eager, on every TensorRT, with fixed and with varying sizes.

``TORCHTRT_TENSORRT=real pytest tests/architectures`` runs the same on an NVIDIA GPU.
"""

import pytest
import torch
from torch.utils import _pytree as pytree

import torchtrt
from tests.architectures.zoo import ZOO
from torchtrt.tensorrt import is_real
from torchtrt_compiler.exporting.export import export

TOLERANCE = 1e-4
"""The largest difference, relative to the largest value."""
REAL = {"disable_tf32": True, "tactic_sources": 0}
"""Settings for the real TensorRT: full precision, and no tactics of libraries that may be missing."""


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    """Keeps TF32 off on PyTorch's side too."""
    if not is_real():
        return
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


FIXED_IN = 12
"""``make test-models`` compiles each architecture for dynamic sizes, and one of so many for fixed ones."""


def ways():
    """Returns each architecture, with whether its sizes vary, as parameters."""
    return [
        pytest.param(
            architecture,
            varying,
            marks=() if varying or place % FIXED_IN == 0 else pytest.mark.slow,
            id=f"{architecture.name}-{'varying' if varying else 'fixed'}",
        )
        for place, architecture in enumerate(ZOO)
        for varying in (False, True)
    ]


@pytest.mark.parametrize(("architecture", "varying"), ways())
def test_an_architecture_becomes_engines_alone_and_equals_eager(architecture, varying, version):
    """On each version of TensorRT."""
    check(architecture, varying)


def check(architecture, varying):
    """Compiles an architecture with nothing in PyTorch; compares the outputs at the least, usual and maximum sizes."""
    device = "cuda" if is_real() else "cpu"
    settings = REAL if is_real() else {}
    model = architecture.model().to(device)
    example = on(device, architecture.example())
    exported = export(model, example, {}, architecture.dynamic_shapes() if varying else None)

    compiled = torchtrt.compile(exported, require_full_compilation=True, **settings)

    for batch, length in architecture.sizes() if varying else architecture.sizes()[1:2]:
        inputs = on(device, architecture.example(batch, length))
        with torch.no_grad():
            assert_close(compiled(*inputs), model(*inputs))


def on(device, tensors):
    """Returns the tensors on the device."""
    return tuple(tensor.to(device) for tensor in tensors)


def assert_close(actual, expected):
    """Checks every output, relative to its largest value."""
    actual, expected = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    assert [each.shape for each in expected] == [each.shape for each in actual]
    for got, wanted in zip(actual, expected, strict=True):
        scale = wanted.abs().max().item()
        torch.testing.assert_close(got, wanted, rtol=0, atol=TOLERANCE * scale)
