"""Calls from C++ beside calls from Python, of the same engines; needs the real TensorRT, its headers, and CMake.

Run with ``TORCHTRT_TENSORRT=real python -m tests.benchmarks.cpp TensorRT/include``.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

import torchtrt
import torchtrt_cpp

CALLS = 500
ROUNDS = 5


class Between(nn.Module):
    """Two engines, between which PyTorch runs an op."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(n, 3, height, width)`` to ``(n, 8, height, width)``."""
        return self.second(torch.cumsum(self.first(x).relu(), 1) * 0.1).relu()


def models() -> dict[str, tuple[nn.Module, torch.Tensor, dict[str, Any]]]:
    """Returns for each row a model, its input and the settings."""
    convolutions = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    rows = {"dynamic_shapes": ({0: torch.export.Dim("n", min=1, max=32)},)}
    layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 32), nn.Softmax(-1))
    return {
        "two convolutions, `(4, 3, 64, 64)`": (convolutions, torch.rand(4, 3, 64, 64), {}),
        "two engines and an op of PyTorch, `(2, 3, 32, 32)`": (
            Between(),
            torch.rand(2, 3, 32, 32),
            {"torch_executed_ops": {"aten.cumsum.default"}},
        ),
        "two linear layers, 1 to 32 rows, `(8, 64)`": (layers, torch.rand(8, 64), rows),
    }


def main() -> None:
    """Prints the rows of the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("include", type=Path, help="the folder of NvInfer.h")
    parser.add_argument("--library", type=Path, help="the file libnvinfer.so")
    options = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        folder = Path(name)
        program = built(folder, options.include, options.library)
        for title, (model, x, settings) in models().items():
            print(row(title, model.eval().cuda(), x.cuda(), settings, program, folder), flush=True)


def built(folder: Path, include: Path, library: Path | None) -> Path:
    """Builds the library and the program that calls a model; returns the path of the program."""
    torchtrt_cpp.build(folder / "torchtrt", include, library)
    (folder / "cpp_calls.cpp").write_text(Path(__file__).with_name("cpp_calls.cpp").read_text())
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(calls LANGUAGES CXX)\nfind_package(torchtrt REQUIRED)\n"
        "add_executable(cpp_calls cpp_calls.cpp)\ntarget_link_libraries(cpp_calls PRIVATE torchtrt::torchtrt)\n"
    )
    build = folder / "build"
    prefix = f"-DCMAKE_PREFIX_PATH={folder / 'torchtrt'}"
    subprocess.run(
        ["cmake", "-S", folder, "-B", build, prefix, "-DCMAKE_BUILD_TYPE=Release"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    subprocess.run(["cmake", "--build", build], check=True, stdout=subprocess.DEVNULL)
    return build / "cpp_calls"


def row(
    title: str,
    model: nn.Module,
    x: torch.Tensor,
    settings: dict[str, Any],
    program: Path,
    folder: Path,
) -> str:
    """Returns a row of the table: microseconds of a call from Python and from C++ in turn, and their ratio."""
    compiled = torchtrt.compile(model, (x,), min_block_size=1, tactic_sources=0, **settings)
    torchtrt.save(compiled, folder / "model.ts", format="torchscript")
    torch.save([[x.cpu()], [compiled(x).cpu()]], folder / "values.pt")
    python, cpp, difference = [], [], 0.0
    for _ in range(ROUNDS):
        python.append(microseconds(compiled, x))
        done = subprocess.run(
            [program, folder / "model.ts", folder / "values.pt", "cuda"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        seconds, error = map(float, done.stdout.split()[-2:])
        cpp.append(seconds)
        difference = max(difference, error)
    ratio = median(cpp) / median(python)
    return f"| {title} | {median(python):.1f} µs | {median(cpp):.1f} µs | {ratio:.2f} | {difference:.1g} |"


def microseconds(compiled: nn.Module, x: torch.Tensor) -> float:
    """Returns the time of a call in a loop."""
    for _ in range(50):
        result = compiled(x)
    result.cpu()
    start = time.perf_counter()
    for _ in range(CALLS):
        result = compiled(x)
    result.cpu()
    return (time.perf_counter() - start) / CALLS * 1e6


if __name__ == "__main__":
    main()
