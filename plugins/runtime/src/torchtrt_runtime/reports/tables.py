"""The report of a compilation as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from torchtrt.errors import TorchOp
from torchtrt_runtime.reports.advice import advice
from torchtrt_runtime.reports.rows import BlockReport, ConvertedOps, LayerUse, VerifiedOutput
from torchtrt_runtime.reports.text_tables import Listing

NOTHING_IN_TORCH = "In PyTorch: nothing, every op is in an engine."
NOTHING_TO_COMPUTE = "In PyTorch: nothing. Every result is an input or a constant."


def converter_table(converted: Sequence[ConvertedOps]) -> Listing:
    """Returns a table of the converted ops, their packs, and the dtypes in which they compute."""
    rows = [
        (
            row.op,
            row.count,
            ", ".join(row.dtypes),
            row.pack,
            # The pack has the rest of the module's name.
            (row.converter.partition(".")[2] or row.converter).removeprefix("converters."),
        )
        for row in converted
    ]
    headings = ("op", "nodes", "dtype", "pack", "converter")
    return Listing("Converted", headings, rows)


def block_table(blocks: Sequence[BlockReport]) -> Listing:
    """Returns a table of the engines, or, after a dry run, of what would be engines."""
    is_planned = bool(blocks) and not any(block.plan_bytes for block in blocks)
    counted = any(block.calls > 1 for block in blocks)
    rows = [
        (
            block.name,
            block.nodes,
            *(() if is_planned else (block.layers, block.plan_bytes / 1e6)),
            *((block.calls,) if counted else ()),
        )
        for block in blocks
    ]
    sizes = () if is_planned else ("layers", "MB")
    headings = ("block", "nodes", *sizes, *(("calls",) if counted else ()))
    return Listing("Engines, not built" if is_planned else "Engines", headings, rows)


_LINES = 3
"""The maximum number of lines of a model that a table shows in one row."""


def layer_table(layers: Sequence[LayerUse]) -> Listing:
    """Returns a table of the layers that only some versions of TensorRT have, and why nodes do not become them."""
    rows = []
    for row in layers:
        missed = [
            f"{_counted(nodes)}: {reason}" if nodes else reason
            for reason, nodes in row.missed.items()
        ]
        rows.append((row.capability, len(row.nodes), _some(row.model_lines), "\n".join(missed)))
    headings = ("capability", "nodes", "lines of the model", "not used")
    return Listing("Layers of current TensorRT", headings, rows)


def _counted(nodes: Sequence[str]) -> str:
    return f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"


def torch_table(in_torch: Sequence[TorchOp], inductor: bool | str) -> Listing | str:
    """Returns a table of what stayed in PyTorch, equal reasons together, and what to do about it."""
    if not in_torch:
        return NOTHING_IN_TORCH
    rows = [
        (entry.op, count, entry.reason, _lines_of(entry, in_torch), advice(entry))
        for entry, count in torch_groups(in_torch)
    ]
    headings = ("op", "nodes", "reason", "lines of the model", "what to do")
    return Listing(in_torch_title(inductor), headings, rows)


def _lines_of(group: TorchOp, in_torch: Sequence[TorchOp]) -> str:
    """Returns the first lines of the model that made the nodes of an op and a reason, each once."""
    alike = (entry for entry in in_torch if (entry.op, entry.reason) == (group.op, group.reason))
    return _some(tuple(dict.fromkeys(entry.model_line for entry in alike if entry.model_line)))


def _some(lines: Sequence[str]) -> str:
    more = len(lines) - _LINES
    return "\n".join((*lines[:_LINES], *([f"and {more} more"] if more > 0 else [])))


def in_torch_title(inductor: bool | str) -> str:
    """Returns a heading for what stays in PyTorch, by the setting ``inductor``."""
    if not inductor:
        return "In PyTorch"
    how = "" if inductor is True else f" with {inductor}"
    return f"In PyTorch, compiled by Inductor{how} when first called"


def torch_groups(in_torch: Sequence[TorchOp]) -> list[tuple[TorchOp, int]]:
    """Returns for each op and reason one of the nodes that stayed in PyTorch and how many did, the most first."""
    groups = Counter((entry.op, entry.reason) for entry in in_torch)
    one = {(entry.op, entry.reason): entry for entry in in_torch}
    return [(one[group], count) for group, count in groups.most_common()]


def verified_table(verified: Sequence[VerifiedOutput]) -> Listing:
    """Returns a table of the differences between the reference TensorRT and eager PyTorch."""
    rows = [
        (
            row.output,
            ", ".join(str(list(shape)) for shape in row.sizes),
            f"{row.difference:.3g}",
            f"{row.tolerance:.3g}",
        )
        for row in verified
    ]
    headings = ("output", "input sizes", "difference", "tolerance")
    return Listing(f"Verified on {verified[0].tensorrt}", headings, rows)


def stage_table(seconds: Mapping[str, float]) -> Listing:
    """Returns a table of how long each stage took."""
    rows = [(stage, duration * 1e3) for stage, duration in seconds.items()]
    return Listing("Time", ("stage", "ms"), rows)
