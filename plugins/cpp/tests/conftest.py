"""The library, compiled once against the stand-in of TensorRT, and a process that runs it."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from filelock import FileLock

from plugins.cpp.tests import engine_process
from torchtrt_cpp import build, source_dir

STAND_IN = Path(__file__).with_name("stand_in")
EXAMPLES = Path(__file__).parents[1] / "examples"


class Built(NamedTuple):
    """The folder that the library is installed in, and the libraries."""

    prefix: Path
    library: Path
    stand_in: Path


@pytest.fixture(scope="session")
def built() -> Built:
    """The library, compiled for these sources and this PyTorch once on this machine."""
    if os.name != "posix" or not all(map(shutil.which, ("cmake", "g++"))):
        pytest.skip("cmake and g++ compile the library, and are not both on this machine")
    folder = (
        Path(tempfile.gettempdir())
        / f"torchtrt-cpp-{os.getuid()}-{_digest(source_dir(), STAND_IN)}"
    )
    made = Built(folder, folder / "lib/libtorchtrt.so", folder / "lib/libnvinfer.so")
    if not made.library.exists():
        building = Path(tempfile.mkdtemp(dir=folder.parent))
        _build(building)
        with contextlib.suppress(OSError):  # another worker of the tests was faster
            building.rename(folder)
        shutil.rmtree(building, ignore_errors=True)
    return made


def _digest(*folders: Path) -> str:
    """Returns a name for the files in folders and this PyTorch and its place: programs link to its libraries."""
    digest = hashlib.sha256(f"{torch.__version__} {torch.__file__}".encode())
    for folder in folders:
        for path in sorted(folder.iterdir()):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build(folder: Path) -> None:
    library = folder / "lib" / "libnvinfer.so"
    library.parent.mkdir()
    source = STAND_IN / "stand_in.cpp"
    command = [
        "g++",
        "-std=c++20",
        "-O1",
        "-g",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libnvinfer.so",
        source,
        "-o",
        library,
    ]
    subprocess.run(command, check=True)
    build(folder, STAND_IN, library, cuda=False)


@pytest.fixture(scope="session")
def programs(built: Built) -> Path:
    """The folder with the compiled examples, which find the library by its CMake package."""
    folder = built.prefix / f"programs-{_digest(EXAMPLES)}"
    with FileLock(f"{folder}.lock"):
        if not (folder / "run_script").exists():
            command = ["cmake", "-S", EXAMPLES, "-B", folder, f"-DCMAKE_PREFIX_PATH={built.prefix}"]
            subprocess.run(command, check=True)
            subprocess.run(["cmake", "--build", folder], check=True)
    return folder


@pytest.fixture(scope="session")
def process(built: Built) -> Iterator[ProcessPoolExecutor]:
    """A process with the library and without torchtrt."""
    with ProcessPoolExecutor(
        1,
        multiprocessing.get_context("spawn"),
        engine_process.load,
        (str(built.library), str(built.stand_in)),
    ) as executor:
        yield executor
