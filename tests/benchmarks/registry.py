"""Lookup per node, and import time, as the number of packs grows."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks._measure import Row, run_python, write_packs

LOOKUP = """
import time, warnings
warnings.simplefilter("ignore")
import torch, torchtrt
from docs.demo.models import Decoder
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.settings import CompilationSettings
program = torch.export.export(Decoder().eval(), (torch.ones(2, 8, dtype=torch.int64),))
nodes = [node for node in program.graph.nodes if node.op == "call_function"]
settings = CompilationSettings()
def lookups():
    for node in nodes:
        DYNAMO_CONVERTERS.resolve(node, settings)
lookups()
best = min(
    (lambda start: (lookups(), time.perf_counter() - start)[1])(time.perf_counter()) for _ in range(30)
)
empty = min(
    (lambda start: ([None for node in nodes], time.perf_counter() - start)[1])(time.perf_counter())
    for _ in range(30)
)
print((best - empty) / len(nodes) * 1e6)
"""

IMPORT = """
import time
start = time.perf_counter()
import torch
middle = time.perf_counter()
import torchtrt
torchtrt.packs.load_packs()
print((time.perf_counter() - middle) * 1e3, (middle - start) * 1e3)
"""


def measure() -> Iterator[Row]:
    """Yields the rows of this page of the table."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        folders = {3: None, 30: root / "30", 303: root / "303", 300: root / "300"}
        for total, path in folders.items():
            if path is not None:
                path.mkdir()
                write_packs(path, total - 3, ops=190 if total == 303 else 10)
        for total in (3, 30, 300):
            paths = [folders[total]] if folders[total] else []
            cost = statistics.median(float(run_python(LOOKUP, *paths)) for _ in range(3))
            yield Row(
                f"lookup, validators included, {total} packs", f"{cost:.1f} µs a node", "≤ 5 µs"
            )
        over: dict[int, list[float]] = {3: [], 303: []}
        torch_alone = []
        for turn in range(8):
            for total, times in over.items():
                paths = [folders[total]] if folders[total] else []
                ours, torch = map(float, run_python(IMPORT, *paths).split())
                if turn:  # the first writes the bytecode
                    times.append(ours)
                    torch_alone.append(torch)
        few, many = (statistics.median(times) for times in over.values())
        yield Row("`import torch`", f"{statistics.median(torch_alone):.0f} ms")
        yield Row("`import torchtrt` over it and loading 3 packs", f"{few:.0f} ms", "≤ 100 ms")
        added = f"{many:.0f} ms (+{many - few:.0f} ms)"
        yield Row("the same with 300 more packs of 200 ops", added, "≤ +150 ms")
