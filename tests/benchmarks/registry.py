"""Lookup per node, and import time, as the number of packs grows."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks._measure import Row, run_python, write_packs

LOOKUP = """
import copy, time, warnings
warnings.simplefilter("ignore")
import torch, torchtrt
import torch.utils._pytree as pytree
from docs.demo.models import Decoder
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.settings import CompilationSettings

def new_graph():
    graph = copy.deepcopy(program.graph)
    for node in graph.nodes:
        value = node.meta.get("val")
        node.meta["val"] = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, value)
    return graph

program = torch.export.export(Decoder().eval(), (torch.ones(2, 8, dtype=torch.int64),))
graphs = [new_graph() for _ in range(30)]
settings = CompilationSettings()

def calls(graph):
    return [node for node in graph.nodes if node.op == "call_function"]

def seconds(nodes, answer):
    start = time.perf_counter()
    for node in nodes:
        answer(node, settings)
    return time.perf_counter() - start

def nothing(node, settings):
    return None

def best(graphs):
    each = [calls(graph) for graph in graphs]
    lookups = min(seconds(nodes, DYNAMO_CONVERTERS.resolve) for nodes in each)
    return (lookups - min(seconds(nodes, nothing) for nodes in each)) / len(each[0]) * 1e6

seconds(calls(program.graph), DYNAMO_CONVERTERS.resolve)
print(best(graphs), best(graphs * 10))
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
            costs = [[float(cost) for cost in run_python(LOOKUP, *paths).split()] for _ in range(3)]
            first, again = map(statistics.median, zip(*costs, strict=True))
            yield Row(
                f"lookup, validators included, {total} packs",
                f"{again:.1f} µs a node, {first:.1f} µs the first time",
                "≤ 5 µs",
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
