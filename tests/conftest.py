"""What several files of tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import torchtrt
from tests.support.kernels import INFO, OPS
from tests.support.small import Small
from torchtrt.packs import ConverterPack, state
from torchtrt.packs.state import add_pack


@pytest.fixture(scope="module")
def small() -> Small:
    """The small model, in eval mode."""
    torch.manual_seed(0)
    return Small().eval()


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ConverterPack:
    """A third party's pack with plugins, gone after the test."""
    monkeypatch.setattr(state._state, "packs", state.current_packs())
    pack = ConverterPack("kernels")
    for op in OPS:
        pack.plugin(op)
    add_pack(pack, INFO)
    return pack


@pytest.fixture(params=["reference@10.16.1", "reference@11.4.0"])
def plugins(request: pytest.FixtureRequest, kernels: ConverterPack) -> Iterator[ConverterPack]:
    """The pack, with each TensorRT that has plugins."""
    with torchtrt.use_tensorrt(request.param):
        yield kernels
