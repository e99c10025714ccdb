"""The TensorRTs that a pack is tested on."""

from __future__ import annotations

from typing import Any

import pytest

from torchtrt.tensorrt import is_real
from torchtrt_reference import VERSIONS
from torchtrt_testing.marks import MARK


def tensorrts() -> list[Any]:
    """Returns the TensorRTs to test on, as parameters of a test that gives them to ``torchtrt.use_tensorrt``.

    They are every version of the reference or, where the real TensorRT is in use, that one, under
    the mark ``tensorrt``.
    """
    if is_real():
        return [pytest.param("real", marks=getattr(pytest.mark, MARK))]
    return [f"reference@{version}" for version in VERSIONS]
