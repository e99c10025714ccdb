"""The pytest plugin: registers the mark of tests on the real TensorRT, and does nothing else."""

from __future__ import annotations

import pytest

MARK = "tensorrt"


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark, so that ``pytest -m tensorrt`` chooses the tests on the real TensorRT."""
    config.addinivalue_line("markers", f"{MARK}: needs the real TensorRT and an NVIDIA GPU")
