"""Compiles the C++ library with the compiler, the TensorRT and the PyTorch of this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from torchtrt.errors import TorchTRTError

_TENSORRT_PACKAGES = ("tensorrt_libs", "tensorrt_cu13_libs", "tensorrt_cu12_libs", "tensorrt")


class BuildError(TorchTRTError):
    """The C++ library cannot be built here. The text says what is missing."""


def source_dir() -> Path:
    """Returns the folder with the library's sources and its ``CMakeLists.txt``."""
    return Path(__file__).with_name("native")


def build(
    prefix: str | os.PathLike[str],
    tensorrt_include: str | os.PathLike[str],
    tensorrt_library: str | os.PathLike[str] | None = None,
    *,
    cuda_include: str | os.PathLike[str] | None = None,
    cuda: bool = True,
) -> Path:
    """Builds the library, and installs it with its header and its CMake package.

    Args:
        prefix: The folder to install into: ``lib/libtorchtrt.so``, ``include/torchtrt/torchtrt.h`` and
            ``lib/cmake/torchtrt``. ``find_package(torchtrt)`` finds it by ``CMAKE_PREFIX_PATH``.
        tensorrt_include: The folder of ``NvInfer.h``, of the TensorRT that builds the engines.
        tensorrt_library: The file ``libnvinfer.so``; that of the installed Python package if omitted.
        cuda_include: The folder of ``cuda_runtime_api.h``; that of the CUDA toolkit, or of the Python package of
            CUDA's runtime, if omitted.
        cuda: Whether engines run on GPUs. Without it, the library needs a stand-in of TensorRT that runs on the CPU.

    Returns:
        The path of the library.

    Raises:
        BuildError: CMake or a compiler is missing, or a header or library, or the build failed.
    """
    command = _tool("cmake")
    if not (Path(tensorrt_include) / "NvInfer.h").is_file():
        raise BuildError(
            f"There is no NvInfer.h in {tensorrt_include}. TensorRT's archive and its -dev packages have it; the "
            "Python package does not."
        )
    paths = {
        "TORCH_ROOT": Path(torch.__file__).parent,
        "TENSORRT_INCLUDE": Path(tensorrt_include).resolve(),
        "TENSORRT_LIBRARY": Path(tensorrt_library or _tensorrt_library()).resolve(),
    }
    if cuda:
        paths["CUDA_INCLUDE"] = Path(cuda_include or _cuda_include()).resolve()
    definitions = [f"-D{name}={path}" for name, path in paths.items()]
    with tempfile.TemporaryDirectory() as folder:
        configured = f"-DWITH_CUDA={'ON' if cuda else 'OFF'}", "-DCMAKE_BUILD_TYPE=Release"
        _run(command, "-S", str(source_dir()), "-B", folder, *definitions, *configured)
        _run(command, "--build", folder)
        _run(command, "--install", folder, "--prefix", str(prefix))
    return Path(prefix) / "lib" / "libtorchtrt.so"


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise BuildError(
            f"{name} is not on the PATH. Install it, for example with `pip install {name}`."
        )
    return path


def _run(*command: str) -> None:
    """Runs a command of the build.

    Raises:
        BuildError: It failed; the message has the end of its output.
    """
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        output = (result.stdout + result.stderr).strip().splitlines()
        raise BuildError("\n".join((f"`{' '.join(command[:3])} ...` failed:", *output[-40:])))


def _tensorrt_library() -> Path:
    """Returns the library of the installed TensorRT.

    Raises:
        BuildError: None is installed as a Python package.
    """
    for package in _TENSORRT_PACKAGES:
        for folder in _folders_of(package):
            libraries = [path for path in sorted(folder.glob("libnvinfer.so*")) if path.is_file()]
            if libraries:
                return libraries[0]
    raise BuildError(
        "No Python package of TensorRT is installed here. Give tensorrt_library: the file libnvinfer.so."
    )


def _cuda_include() -> Path:
    """Returns the folder of CUDA's headers: of the toolkit, or of a Python package.

    Raises:
        BuildError: There is neither.
    """
    site = Path(sysconfig.get_path("purelib")), Path(torch.__file__).parent.parent
    candidates = [
        *(
            Path(os.environ[name]) / "include"
            for name in ("CUDA_HOME", "CUDA_PATH")
            if name in os.environ
        ),
        *(include for folder in site for include in sorted(folder.glob("nvidia/*/include"))),
        Path("/usr/local/cuda/include"),
        Path("/usr/include"),
        *(folder / "backends/nvidia/include" for folder in _folders_of("triton")),
    ]
    for folder in candidates:
        if (folder / "cuda_runtime_api.h").is_file():
            return folder
    raise BuildError(
        "There is no cuda_runtime_api.h here, which TensorRT's headers include. Install the CUDA toolkit, or "
        "`pip install nvidia-cuda-runtime`, or give cuda_include."
    )


def _folders_of(package: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(package)
    yield from map(Path, (spec and spec.submodule_search_locations) or ())
