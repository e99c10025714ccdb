"""The report of one compilation: stages, blocks, converters, and the ops that stayed in PyTorch."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchtrt.errors import TorchOp
from torchtrt_runtime.reports.rows import BlockReport as BlockReport
from torchtrt_runtime.reports.rows import ConvertedOps as ConvertedOps
from torchtrt_runtime.reports.rows import LayerUse as LayerUse
from torchtrt_runtime.reports.rows import NarrowedSize as NarrowedSize
from torchtrt_runtime.reports.rows import VerifiedOutput as VerifiedOutput

if TYPE_CHECKING:
    from torchtrt_runtime.reports.text_tables import Listing

_WIDTH = 120
"""How wide the tables are where no terminal is: in a file, in a log, in a cell of a notebook."""


@dataclass
class CompilationReport:
    """The decisions of a compilation and their reasons.

    ``print`` and notebooks show tables; ``to_json`` returns plain data.

    Attributes:
        tensorrt: The TensorRT that the engines are for.
        seconds: How long each stage took.
        blocks: The engines.
        converted: The converter and the pack of each converted op.
        in_torch: What stayed in PyTorch.
        layers: The layers that only some versions of TensorRT have, which converters asked for or settings turn off.
        passes: The packs' passes that changed the graph, in the order in which they ran.
        divided: For each all-reduce, how ``async_tensor_parallel`` divides the rows around it or why it does not.
        in_float32: What computes in float32 despite ``autocast``, because of its magnitudes or its sums, and why.
        narrowed: Dynamic sizes whose ranges are narrower than was asked for.
        splits: For each block that TensorRT could not build as one engine, what it was and why.
        tried: With ``tune=True``, what was measured.
        compute_capabilities: The compute capabilities of the GPUs that run the engines, where TensorRT takes them.
        verified: The comparisons that ``verify="reference"`` made.
        inductor: The setting: whether, and how, Inductor compiles what stayed in PyTorch when it is first called.
        inputs: The inputs of the compiled model: the name of each, with its dtype and sizes or its only value.
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
    in_float32: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns the report as data that ``json.dumps`` accepts."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Returns the tables as text, as wide as the terminal; without rich, what ``repr`` returns."""
        try:
            from rich.console import Console
        except ModuleNotFoundError:
            return repr(self)
        is_sized = os.environ.get("COLUMNS") or (sys.stdout is not None and sys.stdout.isatty())
        console = Console(
            color_system=None,
            force_jupyter=False,
            markup=False,
            emoji=False,
            highlight=False,
            width=None if is_sized else _WIDTH,
        )
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip("\n")

    @property
    def summary(self) -> str:
        """How many engines there are and how much of the model they run, in a clause."""
        compiled = sum(block.nodes * block.calls for block in self.blocks)
        total = compiled + len(self.in_torch)
        if not total:  # an engine of a plan names no nodes
            return "an engine of a plan" if self.blocks else "nothing to compute"
        everything = f"all {total} nodes" if total > 1 else "the only node"
        if not self.blocks:
            return f"no engine; PyTorch runs {everything}"
        engines = "1 engine runs" if len(self.blocks) == 1 else f"{len(self.blocks)} engines run"
        if not self.in_torch:
            return f"{engines} {everything}"
        return f"{engines} {compiled} of {total} nodes, PyTorch {len(self.in_torch)}"

    def __rich_console__(self, *_: object) -> Iterator[object]:
        """Yields tables."""
        yield from self._parts()

    def _repr_html_(self) -> str:
        """Returns the tables as HTML, which notebooks show."""
        from torchtrt_runtime.reports import text_tables as tables

        return "\n".join(map(tables.as_html, self._parts()))

    def _parts(self) -> Iterator[Listing | str]:
        """Yields lines and tables: first what is in engines and what is not, last how long everything took."""
        from torchtrt_runtime.reports import tables as report_tables

        is_planned = bool(self.blocks) and not any(block.plan_bytes for block in self.blocks)
        yield f"{'Planned' if is_planned else 'Compiled'} for {self.tensorrt}: {self.summary}."
        yield from (f"Input {line}" for line in self.inputs)
        yield from map(str, self.narrowed)
        if self.blocks:
            yield report_tables.block_table(self.blocks)
        yield from self.splits
        if self.blocks or self.in_torch:
            yield report_tables.torch_table(self.in_torch, self.inductor)
        else:
            yield report_tables.NOTHING_TO_COMPUTE
        if self.converted:
            yield report_tables.converter_table(self.converted)
        if self.layers:
            yield report_tables.layer_table(self.layers)
        if self.compute_capabilities:
            yield f"GPUs: compute capability {', '.join(self.compute_capabilities)}"
        if self.passes:
            yield f"Passes over the graph: {', '.join(self.passes)}"
        yield from (f"In float32: {line}" for line in self.in_float32)
        yield from (f"Rows: {line}" for line in self.divided)
        if self.verified:
            yield report_tables.verified_table(self.verified)
        yield from self.tried
        if self.seconds:
            yield report_tables.stage_table(self.seconds)
