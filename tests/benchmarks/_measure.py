"""What all benchmarks share: timing in turn, and rows of results."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from tools.written_sections import with_section

PAGE = Path(__file__).parents[2] / "docs/benchmarks.md"


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, the result, and the target it is held against."""

    what: str
    result: str
    target: str = ""


def seconds_of(call: Callable[[], object]) -> float:
    """Returns how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turn(
    measures: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """Returns what each measure gave, round by round; they take turns, so that drift meets all alike."""
    results: dict[str, list[float]] = {name: [] for name in measures}
    for turn in range(warm_up + rounds):
        for name, measure in measures.items():
            result = measure()
            if turn >= warm_up:
                results[name].append(result)
    return results


def seconds_in_turn(
    calls: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1
) -> dict[str, float]:
    """Returns the median seconds of each call, taken in turn."""
    measures = {name: partial(seconds_of, call) for name, call in calls.items()}
    times = in_turn(measures, rounds, warm_up)
    return {name: statistics.median(values) for name, values in times.items()}


def circumstances() -> str:
    """Returns when and where something is measured, as a sentence."""
    return (
        f"Measured on {datetime.date.today():%Y-%m-%d}: {os.cpu_count()} cores ({platform.machine()}), "
        f"{platform.system()}, Python {platform.python_version()}, torch {torch.__version__} with "
        f"{torch.get_num_threads()} threads."
    )


def write_section(command: str, text: str) -> None:
    """Puts what a command measured in its place in docs/benchmarks.md: between two lines that name the command."""
    PAGE.write_text(with_section(PAGE.read_text(), command, text))


def run_python(code: str, *paths: Path) -> str:
    """Returns what a fresh Python prints, with ``paths`` in front of its import path, keeping bytecode as pip does."""
    search = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def write_packs(folder: Path, count: int, ops: int = 10) -> None:
    """Installs third-party packs into a folder, each with STANDARD converters for ten of ATen's ops and some own."""
    for index in range(count):
        name = f"bench{index}"
        package = folder / f"torchtrt_converters_{name}"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "convert.py").write_text("def convert(ctx, target, args, kwargs, name): ...\n")
        (package / "_pack.py").write_text(
            "from torchtrt.packs import ConverterPack, hookimpl\n"
            f"pack = ConverterPack('{name}', api=(1, 0))\n"
            "@hookimpl\n"
            "def torchtrt_converter_pack():\n"
            "    return pack\n"
            "@hookimpl\n"
            "def torchtrt_register_converters(pack):\n"
            "    ops = ('add.Tensor', 'mul.Tensor', 'sub.Tensor', 'div.Tensor', 'relu.default', 'linear.default',\n"
            "           'view.default', 'softmax.int', 'gelu.default', 'layer_norm.default')\n"
            "    for op in ops:\n"
            f"        pack.add('aten::' + op, 'torchtrt_converters_{name}.convert:convert')\n"
            f"    for index in range({ops}):\n"
            f"        pack.add(f'{name}::op{{index}}', 'torchtrt_converters_{name}.convert:convert')\n"
        )
        metadata = folder / f"torchtrt_converters_{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: torchtrt-converters-{name}\nVersion: 1.0\n"
        )
        (metadata / "entry_points.txt").write_text(
            f"[torchtrt.converters]\n{name} = torchtrt_converters_{name}._pack\n"
        )
