"""What several files of tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import torchtrt
from tests.support.compilers import compilations
from tests.support.kernels import INFO, OPS
from tests.support.small import Small
from torchtrt.packs import ConverterPack, add_pack, use_packs

__all__ = ["compilations", "kernels", "plugins", "small"]


@pytest.fixture(scope="module")
def small() -> Small:
    """The small model, in eval mode."""
    torch.manual_seed(0)
    return Small().eval()


@pytest.fixture
def kernels() -> Iterator[ConverterPack]:
    """A third party's pack with plugins, gone after the test."""
    pack = ConverterPack("kernels")
    for op in OPS:
        pack.plugin(op)
    with use_packs():
        add_pack(pack, INFO)
        yield pack


@pytest.fixture(params=["reference@10.16.1", "reference@11.4.0"])
def plugins(request: pytest.FixtureRequest, kernels: ConverterPack) -> Iterator[ConverterPack]:
    """The pack, with each TensorRT that has plugins."""
    with torchtrt.use_tensorrt(request.param):
        yield kernels
