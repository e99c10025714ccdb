"""What the tests of saving, caching and refitting share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchtrt
from plugins.runtime.tests.recording import Tape
from tests.support.compilers import compilations, no_compiler
from tests.support.processes import run_python

__all__ = ["compilations", "every_tensorrt", "fresh", "no_compiler", "seeded", "tape"]

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
def tape() -> None:
    """Counts captured graphs from 0."""
    Tape.made = 0
