"""The memory of the library, under AddressSanitizer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch

from plugins.cpp.tests.conftest import STAND_IN
from torchtrt_cpp import source_dir

TORCH = Path(torch.__file__).parent


@pytest.mark.slow
def test_calls_errors_and_threads_use_no_memory_wrongly_and_leak_none(built, tmp_path):
    """The library, the stand-in and the program are instrumented, and PyTorch is not."""
    program = tmp_path / "memory"
    subprocess.run(
        [
            *(
                "g++",
                "-std=c++20",
                "-O0",
                "-g",
                "-fsanitize=address",
                f"-I{source_dir()}",
                f"-I{STAND_IN}",
            ),
            *("-isystem", TORCH / "include", "-isystem", TORCH / "include/torch/csrc/api/include"),
            *(STAND_IN / "memory.cpp", STAND_IN / "stand_in.cpp", "-o", program),
            *(
                f"-L{TORCH / 'lib'}",
                f"-Wl,-rpath,{TORCH / 'lib'}",
                "-ltorch_cpu",
                "-lc10",
                "-pthread",
            ),
        ],
        check=True,
    )

    # PyTorch's libraries have symbols in common, which are no fault of this one.
    options = {"ASAN_OPTIONS": "detect_odr_violation=0:detect_leaks=1"}
    result = subprocess.run(
        [program], env={**os.environ, **options}, capture_output=True, text=True, check=False
    )

    assert "" == result.stderr
    assert "passed\n" == result.stdout
    assert 0 == result.returncode
