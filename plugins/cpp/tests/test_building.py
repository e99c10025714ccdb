"""Builds of the library that cannot be: the errors say what is missing."""

from __future__ import annotations

import shutil

import pytest

from plugins.cpp.tests.conftest import STAND_IN
from torchtrt_cpp import BuildError, build


def test_a_build_without_cmake_names_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BuildError, match="cmake is not on the PATH"):
        build(tmp_path / "out", STAND_IN, cuda=False)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not on this machine")
def test_a_build_without_headers_says_who_has_them(tmp_path):
    with pytest.raises(BuildError, match=r"There is no NvInfer\.h in .*TensorRT's archive"):
        build(tmp_path / "out", tmp_path, cuda=False)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not on this machine")
def test_a_build_that_fails_shows_the_end_of_its_output(tmp_path):
    """PyTorch's CUDA libraries are missing, or else the header in the empty folder of CUDA."""
    with pytest.raises(BuildError, match=r"(?s)failed:.*(CMake Error|cuda_runtime_api\.h)"):
        build(tmp_path / "out", STAND_IN, tmp_path / "libnvinfer.so", cuda_include=tmp_path)

    assert not (tmp_path / "out").exists()
