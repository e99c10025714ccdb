"""Lowering, partitioning and conversion of each architecture of ``tests/architectures``, with sizes that vary.

The models are small, so what is measured is overhead, against that of exporting them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torchtrt
from tests.architectures.zoo import ZOO
from tests.benchmarks._measure import Row

STAGES = ("lowering", "partitioning", "conversion")
ROUNDS = 3


def measure() -> Iterator[Row]:
    """Yields the rows of this page of the table."""
    for architecture in ZOO:
        model, example = architecture.model(), architecture.example()
        runs = []
        for _ in range(ROUNDS):
            compiled = torchtrt.compile(
                model,
                example,
                dynamic_shapes=architecture.dynamic_shapes(),
                require_full_compilation=True,
            )
            runs.append(compiled.report)
        exporting = statistics.median(run.seconds["exporting"] for run in runs)
        ours = statistics.median(sum(run.seconds[stage] for stage in STAGES) for run in runs)
        nodes = sum(block.nodes for block in runs[0].blocks)
        layers = sum(block.layers for block in runs[0].blocks)
        yield Row(
            f"{architecture.name}, {nodes} nodes",
            f"{ours / exporting:.2f}× exporting, {ours * 1e3 / nodes:.2f} ms and "
            f"{layers / nodes:.1f} layers a node",
            "< 1×",
        )
