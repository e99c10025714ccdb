"""What the tests of saving, caching and refitting share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchtrt

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
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same weights in every run."""
    torch.manual_seed(0)
