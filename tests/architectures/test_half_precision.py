"""Every architecture in half precision, by the setting ``autocast``."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import torchtrt
from tests.architectures.zoo import ZOO
from torchtrt_compiler.exporting.export import export


def architectures():
    """Yields each architecture; ``make test-models`` runs every sixth of them, and all in full precision."""
    for number, architecture in enumerate(ZOO):
        marks = [pytest.mark.slow] if number % 6 else []
        yield pytest.param(architecture, marks=marks, id=architecture.name)


@pytest.mark.parametrize("architecture", [*architectures()])
def test_an_architecture_in_half_precision_is_within_one_percent(architecture, version):
    """Inputs and outputs keep their dtypes, nothing stays in PyTorch, and sizes may vary."""
    model, inputs = architecture.model(), architecture.example()
    exported = export(model, inputs, {}, architecture.dynamic_shapes())
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*inputs))

    half = torchtrt.compile(exported, autocast=torch.float16, require_full_compilation=True)

    for got, wanted in zip(pytree.tree_leaves(half(*inputs)), expected, strict=True):
        assert wanted.dtype is got.dtype
        assert torch.dist(got, wanted) <= 0.01 * wanted.norm()
