"""What the tests of saving, caching and refitting share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torchtrt
from plugins.runtime.tests.recording import Tape
from tests.support.processes import run_python
from torchtrt_runtime.executors import cuda_graphs

VERSIONS = ("reference@8.6.0", "reference@10.16.1", "reference@11.4.0")


@pytest.fixture(params=VERSIONS)
def every_tensorrt(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each version of the reference TensorRT, in use."""
    with torchtrt.use_tensorrt(request.param):
        yield request.param


@pytest.fixture
def fresh() -> Callable[..., str]:
    """Runs Python code in a fresh process and returns what it printed."""

    def run(code: str, *arguments: Any, **environment: str) -> str:
        done = run_python(
            *("-W", "error", "-c", code),
            *map(str, arguments),
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same weights in every run."""
    torch.manual_seed(0)


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets Inductor find no compiler of C++, as on many machines, and nothing that it compiled before."""
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    with config.patch({"cpp.cxx": (str(tmp_path / "no-compiler"),)}):
        yield


@pytest.fixture
def tape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts captured graphs from 0, and lets the tape stand for PyTorch's streams."""
    monkeypatch.setattr(Tape, "made", 0)
    for name, value in (("_device_in_use", -1), ("_stream_in_use", 0), ("_is_capturing", False)):
        monkeypatch.setattr(cuda_graphs, name, lambda *_, value=value: value)
