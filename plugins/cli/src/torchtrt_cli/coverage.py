"""``torchtrt coverage [OP]``: how many of PyTorch's own samples of each op a pack converts, and why not the others.

A pack with known coverage has a file ``coverage.json`` in its package. docs/publish-a-pack.md describes it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import resources
from typing import Any

from torchtrt.packs import loaded_packs
from torchtrt.packs.info import PACKS
from torchtrt_cli.output import console, print_json, table
from torchtrt_compiler.coverage import (
    FILE,
    LABELS,
    Coverage,
    OpCoverage,
    count,
    share,
)


def run(arguments: argparse.Namespace) -> int:
    """Prints the coverage."""
    unreadable: list[str] = []
    by_pack = coverages(unreadable)
    if arguments.op is not None:
        by_pack = {
            pack: replace(coverage, ops=dict(named(coverage, arguments.op)))
            for pack, coverage in by_pack.items()
        }
    for message in unreadable:
        print(f"torchtrt: {message}", file=sys.stderr)
    by_pack = {pack: coverage for pack, coverage in by_pack.items() if coverage.ops}
    if arguments.json:
        print_json({pack: as_json(coverage) for pack, coverage in by_pack.items()})
    for pack, coverage in by_pack.items() if not arguments.json else ():
        out = console()
        if arguments.op is None:
            out.print(op_table(pack, coverage))
            out.print(total_table(coverage))
        else:
            for name in coverage.ops:
                out.print(dtype_table(pack, coverage, name))
                for reason, n in coverage.ops[name].reason_counts():
                    out.print(f"{n} × {reason}")
    if not by_pack:
        subject = "any op" if arguments.op is None else arguments.op
        print(
            f"torchtrt: No pack in use declares its coverage of {subject}. "
            "PyTorch's tests have names such as softmax and nn.functional.relu.",
            file=sys.stderr,
        )
        return 2 if unreadable else 1
    return 0


def coverages(unreadable: list[str] | None = None) -> dict[str, Coverage]:
    """Returns the coverage that the packs in use declare, by pack; the list gets what cannot be read."""
    by_pack = {}
    for loaded in loaded_packs():
        try:
            file = resources.files(PACKS.package_name(loaded.info.name)) / FILE
            if file.is_file():
                by_pack[loaded.info.name] = Coverage.from_json(file.read_text(encoding="utf-8"))
        except ModuleNotFoundError:
            continue  # a pack that a program registers itself has no package
        except (ValueError, OSError) as error:
            (unreadable if unreadable is not None else []).append(
                f"{FILE} of {loaded.info.name} ({loaded.info.origin}) cannot be read: {error}. "
                "Report this to the pack's authors."
            )
    return by_pack


def coverages_of(ops: Iterable[str]) -> dict[str, Coverage]:
    """Returns the coverage that the packs in use declare of those ops that are ATen's, by pack.

    Args:
        ops: Qualified names of ops.
    """
    packets = sorted({op.split(".")[1] for op in ops if op.startswith("aten.")})
    return {
        pack: replace(coverage, ops=dict(entry for op in packets for entry in named(coverage, op)))
        for pack, coverage in coverages().items()
    }


def named(coverage: Coverage, op: str) -> Iterator[tuple[str, OpCoverage]]:
    """Yields the ops of a coverage with this name."""
    wanted = op.removeprefix("torch.").removeprefix("ops.").removeprefix("aten.")
    wanted = re.sub(r"^(fft|linalg|special)_", r"\1.", wanted)  # modules, which ATen lacks
    for name, entry in coverage.ops.items():
        names = (name, name.removeprefix("nn.functional."))
        if any(name == wanted or name.startswith(wanted + ".") for name in names):
            yield name, entry


def op_table(pack: str, coverage: Coverage) -> Any:
    """Returns a table of ops: which share of the samples is correct on each version, and what stands in the way."""
    rows = [
        (
            name,
            len(op.letters(0)),
            *(share(op.letters(version)) for version in range(len(coverage.versions))),
            "; ".join(reason for reason, _ in op.reason_counts()[:1]),
        )
        for name, op in coverage.ops.items()
    ]
    headings = ("op", "samples", *coverage.versions, "most frequent reason")
    return table(f"Coverage of PyTorch {coverage.torch} by {pack}", headings, rows)


def total_table(coverage: Coverage) -> Any:
    """Returns a table of what became of all samples, for each version."""
    rows = [
        (version, share(letters), *count(letters).values()) for version, letters in totals(coverage)
    ]
    return table("All ops", ("TensorRT", "share", *LABELS.values()), rows)


def totals(coverage: Coverage) -> Iterator[tuple[str, str]]:
    """Yields each version and the letters of all samples on it."""
    for index, version in enumerate(coverage.versions):
        yield version, "".join(op.letters(index) for op in coverage.ops.values())


def dtype_table(pack: str, coverage: Coverage, name: str) -> Any:
    """Returns a table of what became of one op's samples, for each dtype and version."""
    rows = [
        (dtype, version, share(letters), *count(letters).values())
        for dtype, of_versions in coverage.ops[name].samples.items()
        for version, letters in zip(coverage.versions, of_versions, strict=True)
    ]
    headings = ("dtype", "TensorRT", "share", *LABELS.values())
    return table(f"Coverage of {name} by {pack}", headings, rows)


def as_json(coverage: Coverage) -> dict[str, Any]:
    """Returns a coverage as plain data: counts instead of letters."""
    return {
        "torch": coverage.torch,
        "totals": {version: count(letters) for version, letters in totals(coverage)},
        "ops": {
            name: {
                "samples": {
                    dtype: dict(zip(coverage.versions, map(count, of_versions), strict=True))
                    for dtype, of_versions in op.samples.items()
                },
                "reasons": dict(op.reason_counts()),
            }
            for name, op in coverage.ops.items()
        },
    }
