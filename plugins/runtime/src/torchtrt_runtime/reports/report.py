"""The report of one compilation: stages, blocks, converters, and the ops that stayed in PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torchtrt.errors import TorchOp
from torchtrt_runtime.reports.rows import BlockReport as BlockReport
from torchtrt_runtime.reports.rows import ConvertedOps as ConvertedOps
from torchtrt_runtime.reports.rows import LayerUse as LayerUse
from torchtrt_runtime.reports.rows import NarrowedSize as NarrowedSize
from torchtrt_runtime.reports.rows import VerifiedOutput as VerifiedOutput


@dataclass
class CompilationReport:
    """The decisions of a compilation and their reasons. ``print`` shows tables; ``to_json`` returns plain data.

    Attributes:
        tensorrt: The TensorRT that the engines are for.
        seconds: How long each stage took.
        blocks: The engines.
        converted: The converter and the pack of each converted op.
        in_torch: What stayed in PyTorch.
        layers: The layers that only some versions of TensorRT have, which converters asked for or settings turn off.
        passes: The packs' passes that changed the graph, in the order in which they ran.
        divided: For each all-reduce, how ``async_tensor_parallel`` divides the rows around it or why it does not.
        narrowed: Dynamic sizes whose ranges are narrower than was asked for.
        splits: For each block that TensorRT could not build as one engine, what it was and why.
        tried: With ``tune=True``, what was measured.
        compute_capabilities: The compute capabilities of the GPUs that run the engines, where TensorRT takes them.
        verified: The comparisons that ``verify="reference"`` made.
        inductor: The setting: whether, and how, Inductor compiles what stayed in PyTorch when it is first called.
    """

    tensorrt: str
    seconds: dict[str, float] = field(default_factory=dict)
    blocks: list[BlockReport] = field(default_factory=list)
    converted: list[ConvertedOps] = field(default_factory=list)
    in_torch: list[TorchOp] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)
    narrowed: list[NarrowedSize] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    inductor: bool | str = False
    compute_capabilities: list[str] = field(default_factory=list)
    verified: list[VerifiedOutput] = field(default_factory=list)
    layers: list[LayerUse] = field(default_factory=list)
    divided: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns the report as data that ``json.dumps`` accepts."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Returns the tables as text, as wide as the terminal; without rich, what ``repr`` returns."""
        try:
            from rich.console import Console
        except ModuleNotFoundError:
            return repr(self)
        console = Console(
            color_system=None, force_jupyter=False, markup=False, emoji=False, highlight=False
        )
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip("\n")

    def __rich_console__(self, *_: object) -> Iterator[object]:
        """Yields tables."""
        from torchtrt_runtime.reports import tables as report_tables

        yield report_tables.converter_table(self.tensorrt, self.converted)
        yield report_tables.block_table(self.blocks)
        if self.layers:
            yield report_tables.layer_table(self.layers)
        if self.compute_capabilities:
            yield f"GPUs: compute capability {', '.join(self.compute_capabilities)}"
        if self.passes:
            yield f"Passes over the graph: {', '.join(self.passes)}"
        yield from (f"Rows: {line}" for line in self.divided)
        yield from map(str, self.narrowed)
        yield from self.splits
        yield from self.tried
        if self.verified:
            yield report_tables.verified_table(self.verified)
        if self.blocks or self.in_torch:
            yield report_tables.torch_table(self.in_torch, self.inductor)
        else:
            yield report_tables.NOTHING_TO_COMPUTE
        if self.seconds:
            yield report_tables.stage_table(self.seconds)
