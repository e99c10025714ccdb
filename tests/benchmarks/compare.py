"""Torch-TensorRT's registry and interpreter beside ours: the same graphs, in turn, in one run.

``make compare`` downloads Torch-TensorRT and runs this. ``tests.benchmarks.peer`` lets it run without CUDA.
"""

from __future__ import annotations

import copy
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import truediv
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node

import torchtrt
from tests.architectures.zoo import ZOO
from tests.benchmarks._measure import circumstances, in_turn, run_python, seconds_of, write_section
from tests.benchmarks.peer import STAND_INS, Peer, stand_in
from torchtrt import CompilationSettings
from torchtrt.conversion.interpreter import TRTInterpreter
from torchtrt.graphs.nodes import resolution_of
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import logger
from torchtrt.tensorrt.shims import create_network
from torchtrt_compiler.lowering import resolve_nodes
from torchtrt_runtime.size_ranges import profile_input

MODELS = ("resnet", "bert")
IMPORTS = 9
ROUNDS = 25
PROGRAMS = 7
STAGES = ("lowering", "partitioning", "conversion")
TOLERANCE = 1e-4

IMPORT = """
import time
import torch
from pathlib import Path
from tests.benchmarks.peer import stand_in

stand_in(Path({folder!r}))
{before}
start = time.perf_counter()
{code}
print("seconds", time.perf_counter() - start)
"""
COMPILER = "import torch.export, torch._dynamo, torch._decomp"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        what: What was measured.
        theirs: Seconds, round by round.
        ours: Seconds, in the same rounds.
        unit: The unit to show, and how many of it are a second.
        nodes: Over how many nodes the seconds are spread; in the whole if 0.
    """

    what: str
    theirs: Sequence[float]
    ours: Sequence[float]
    unit: tuple[str, float] = ("ms", 1e3)
    nodes: int = 0

    def __str__(self) -> str:
        ratio = statistics.median(map(truediv, self.theirs, self.ours))
        return (
            f"| {self.what} | {self.shown(self.theirs)} | {self.shown(self.ours)} | {ratio:.2g}× |"
        )

    def shown(self, seconds: Sequence[float]) -> str:
        """Returns the median, the lowest and the highest."""
        unit, scale = self.unit
        scaled = [second * scale / max(1, self.nodes) for second in seconds]
        middle, low, high = (
            f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
            for value in (statistics.median(scaled), min(scaled), max(scaled))
        )
        return f"{middle} {unit} ({low} to {high})"


def import_seconds(folder: Path, before: str, code: str) -> float:
    """Returns how long ``code`` takes in a fresh Python that has run ``before``."""
    printed = run_python(IMPORT.format(folder=str(folder), before=before, code=code))
    return float(printed.split("seconds")[-1])


def imports(folder: Path) -> Iterator[Row]:
    """Yields the rows about importing; the stand-in for ``tensorrt`` is imported before the clock starts."""
    for what, before, ours in (
        (
            "importing it, over `torch`",
            "import tensorrt",
            "import torchtrt; torchtrt.packs.load_packs()",
        ),
        (
            "importing all that compiling needs, over `torch`, `torch.export` and `torch._dynamo`",
            f"import tensorrt; {COMPILER}",
            "import torchtrt; torchtrt.compile; torchtrt.packs.load_packs()",
        ),
    ):
        codes = {"theirs": "import torch_tensorrt", "ours": ours}
        times = in_turn(
            {who: partial(import_seconds, folder, before, code) for who, code in codes.items()},
            IMPORTS,
        )
        yield Row(what, times["theirs"], times["ours"])


class Ours:
    """The same steps with torchtrt."""

    settings = CompilationSettings()

    def convert(self, graph_module: GraphModule, inputs: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        """Returns the network of a lowered graph, whose nodes are looked up, and what owns its weights."""
        resolve_nodes(graph_module, self.settings)
        placeholders = graph_module.graph.find_nodes(op="placeholder")
        profiles = [
            profile_input(node.name, tensor, [{}])
            for node, tensor in zip(placeholders, inputs, strict=True)
        ]
        network = create_network(trt.Builder(logger()))
        interpreted = TRTInterpreter(graph_module, network, profiles, self.settings).run()
        return interpreted.network, interpreted.context


def difference(network: Any, inputs: Sequence[torch.Tensor], expected: torch.Tensor) -> float:
    """Returns the largest difference between what a network computes and what is expected."""
    builder = trt.Builder(logger())
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    context = trt.Runtime(logger()).deserialize_cuda_engine(plan).create_execution_context()
    for number, tensor in enumerate(inputs):
        context.set_tensor_address(network.get_input(number).name, tensor.data_ptr())
    result = torch.empty_like(expected, memory_format=torch.contiguous_format)
    context.set_tensor_address(network.get_output(0).name, result.data_ptr())
    assert context.execute_async_v3(0)
    return float((result - expected).abs().max())


def look_up(lookup: Callable[[Node], object], nodes: Sequence[Node]) -> None:
    """Looks up each node in a registry."""
    for node in nodes:
        lookup(node)


def conversions(name: str, peer: Peer) -> Iterator[Row]:
    """Yields the rows about one model, whose sizes are fixed."""
    (architecture,) = (entry for entry in ZOO if entry.name == name)
    model, inputs = architecture.model(), architecture.example()
    ours = Ours()
    lowered = peer.lower(torch.export.export(model, inputs))
    graphs = {"theirs": lowered, "ours": copy.deepcopy(lowered)}
    nodes = {
        who: [node for node in graph.graph.nodes if node.op == "call_function"]
        for who, graph in graphs.items()
    }
    count = len(nodes["theirs"])
    resolve_nodes(graphs["ours"], ours.settings)
    assert all(map(resolution_of, nodes["ours"])), "a node has no converter of ours"
    assert count == sum(node.op == "call_function" for node in graphs["ours"].graph.nodes)
    assert all(map(peer.registry.get, nodes["theirs"])), "a node has no converter of theirs"
    convert = {"theirs": peer.convert, "ours": ours.convert}
    expected = model(*inputs)
    expected = expected if isinstance(expected, torch.Tensor) else expected[0]
    layers = {}
    for who, function in convert.items():
        network, _weights = function(graphs[who], inputs)
        layers[who] = network.num_layers
        assert TOLERANCE > difference(network, inputs, expected), f"{who}: wrong values"
    graph = f"{name}, {count} nodes"

    lookups = {
        "theirs": peer.registry.get,
        "ours": partial(DYNAMO_CONVERTERS.resolve, settings=ours.settings),
    }
    times = in_turn(
        {
            who: partial(seconds_of, partial(look_up, lookup, nodes[who]))
            for who, lookup in lookups.items()
        },
        ROUNDS,
    )
    yield Row(f"{graph}: lookup of a node", times["theirs"], times["ours"], ("µs", 1e6), count)

    times = in_turn(
        {
            who: partial(seconds_of, partial(function, graphs[who], inputs))
            for who, function in convert.items()
        },
        ROUNDS,
    )
    what = f"{graph}: conversion of a node, lookups included ({layers['theirs']} and {layers['ours']} layers)"
    yield Row(what, times["theirs"], times["ours"], nodes=count)

    def theirs_from_program() -> float:
        program = torch.export.export(model, inputs)
        return seconds_of(lambda: peer.convert(peer.lower(program), inputs))

    def ours_from_program() -> float:
        program = torch.export.export(model, inputs)
        seconds = torchtrt.compile(program, inputs).report.seconds
        return sum(seconds[stage] for stage in STAGES)

    times = in_turn({"theirs": theirs_from_program, "ours": ours_from_program}, PROGRAMS)
    what = f"{name}: from the exported program to the network, each with its own lowering"
    yield Row(what, times["theirs"], times["ours"])


def main() -> None:
    """Measures, prints, and writes the page's section."""
    folder = Path(sys.argv[1]).resolve()
    lines = ["| what | Torch-TensorRT | torchtrt | |", "|---|---|---|---|"]
    rows = list(imports(folder))
    stand_in(folder)
    peer = Peer()
    with torch.no_grad():
        for name in MODELS:
            rows += conversions(name, peer)
    for row in rows:
        print(row)
    lines += map(str, rows)
    version = peer.torch_tensorrt.__version__
    where = (
        f"{circumstances()} Torch-TensorRT {version} and torchtrt {torchtrt.__version__}, both on the reference "
        f"TensorRT {trt.__version__}, in turn: {IMPORTS} fresh processes for each import, {PROGRAMS} "
        f"rounds from the program, {ROUNDS} for the rest. Medians, from the lowest to the highest, and how many "
        "times as long Torch-TensorRT takes, in the median round."
    )
    stood_in = "\n".join(
        [
            "| in the place of | is |",
            "|---|---|",
            *(f"| {what} | {is_} |" for what, is_ in STAND_INS.items()),
        ]
    )
    write_section("make compare", "\n".join([where, "", *lines, "", stood_in]) + "\n")


if __name__ == "__main__":
    main()
