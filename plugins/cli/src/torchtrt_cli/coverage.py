"""``torchtrt coverage [OP]``: how many of PyTorch's own samples of each op a pack converts, and why not the others.

A pack that knows ships a file ``coverage.json`` in its package. docs/publish-a-pack.md describes it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from torchtrt.packs import loaded_packs
from torchtrt.packs.info import PACKS
from torchtrt_cli.output import console, print_json, table

FILE = "coverage.json"

CORRECT, REJECTED, WRONG, CRASHED, NOT_EXPORTABLE, NOTHING = KINDS = tuple(".rWCX-")
"""What can become of a sample. In the file a rejected one is the letter of its reason: ``a`` for the first."""
COUNTED = (CORRECT, REJECTED, WRONG, CRASHED)
"""What counts in a share. Samples that torch.export refuses, or that compute nothing, do not."""
NAMES = ("correct", "rejected", "wrong", "crashed", "not exportable", "nothing to do")
LABELS = dict(zip(KINDS, NAMES, strict=True))


@dataclass(frozen=True)
class OpCoverage:
    """What became of one op's samples.

    Attributes:
        samples: For each dtype and each version in order, a letter for each sample.
        reasons: Why samples were rejected; the letter ``a`` stands for the first.
    """

    samples: Mapping[str, tuple[str, ...]]
    reasons: tuple[str, ...] = ()

    def letters(self, version: int | None = None) -> str:
        """Returns the letters of all samples, on one version (by its place) or on all."""
        chosen = slice(None) if version is None else slice(version, version + 1)
        return "".join("".join(letters[chosen]) for letters in self.samples.values())

    def reason_counts(self) -> list[tuple[str, int]]:
        """Returns the reasons and how many samples they rejected, the most frequent first."""
        counts = Counter(letter for letter in self.letters() if kind_of(letter) == REJECTED)
        return [(self.reasons[ord(letter) - ord("a")], n) for letter, n in counts.most_common()]


@dataclass(frozen=True)
class Coverage:
    """The coverage that one pack's file tells of.

    Attributes:
        torch: The PyTorch whose samples these are.
        versions: The versions of TensorRT.
        ops: The ops, by the names of PyTorch's OpInfo database.
    """

    torch: str
    versions: tuple[str, ...]
    ops: Mapping[str, OpCoverage]

    @classmethod
    def from_json(cls, text: str) -> Coverage:
        """Returns the coverage in the text of a file.

        Raises:
            ValueError: The text is not of this form.
        """
        try:
            data = json.loads(text)
            ops = {}
            for name, entry in data["ops"].items():
                reasons = tuple(entry.pop("reasons", ()))
                ops[name] = OpCoverage(
                    {dtype: tuple(letters) for dtype, letters in entry.items()}, reasons
                )
            return cls(data["torch"], tuple(data["versions"]), ops)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no coverage: {type(error).__name__}: {error}") from error


def kind_of(letter: str) -> str:
    """Returns what a letter of a file stands for."""
    return REJECTED if letter.islower() else letter


def count(letters: str) -> dict[str, int]:
    """Returns how many samples there are of each kind, by label."""
    counts = Counter(map(kind_of, letters))
    return {label: counts[kind] for kind, label in LABELS.items()}


def share(letters: str) -> str:
    """Returns which share of the samples that count is correct, as a percentage, or ``-`` if none counts."""
    counts = Counter(map(kind_of, letters))
    total = sum(counts[kind] for kind in COUNTED)
    return f"{100 * counts[CORRECT] / total:.1f} %" if total else "-"


def run(arguments: argparse.Namespace) -> int:
    """Prints the coverage."""
    unreadable: list[str] = []
    found = {
        pack: Coverage(coverage.torch, coverage.versions, dict(named(coverage, arguments.op)))
        for pack, coverage in coverages(unreadable).items()
    }
    for message in unreadable:
        print(f"torchtrt: {message}", file=sys.stderr)
    found = {pack: coverage for pack, coverage in found.items() if coverage.ops}
    if arguments.json:
        print_json({pack: as_json(coverage) for pack, coverage in found.items()})
    for pack, coverage in found.items() if not arguments.json else ():
        out = console()
        if arguments.op is None:
            out.print(op_table(pack, coverage))
            out.print(total_table(coverage))
        else:
            for name in coverage.ops:
                out.print(dtype_table(pack, coverage, name))
                for reason, n in coverage.ops[name].reason_counts():
                    out.print(f"{n} × {reason}")
    if not found:
        subject = "any op" if arguments.op is None else arguments.op
        print(f"torchtrt: No pack in use tells of its coverage of {subject}.", file=sys.stderr)
        return 2 if unreadable else 1
    return 0


def coverages(unreadable: list[str] | None = None) -> dict[str, Coverage]:
    """Returns what the packs in use tell of their coverage, by pack; the list gets what cannot be read."""
    found = {}
    for loaded in loaded_packs():
        try:
            file = resources.files(PACKS.package_name(loaded.info.name)) / FILE
            if file.is_file():
                found[loaded.info.name] = Coverage.from_json(file.read_text(encoding="utf-8"))
        except ModuleNotFoundError:
            continue  # a pack that a program registers itself has no package
        except (ValueError, OSError) as error:
            (unreadable if unreadable is not None else []).append(
                f"{FILE} of {loaded.info.name} ({loaded.info.origin}) cannot be read: {error}. "
                "Report this to the pack's authors."
            )
    return found


def named(coverage: Coverage, op: str | None) -> Iterable[tuple[str, OpCoverage]]:
    """Yields the ops of a coverage with this name, or all."""
    if op is None:
        yield from coverage.ops.items()
        return
    wanted = op.removeprefix("torch.").removeprefix("ops.").removeprefix("aten.")
    wanted = re.sub(r"^(fft|linalg|special)_", r"\1.", wanted)  # modules, of which ATen has none
    for name, entry in coverage.ops.items():
        names = (name, name.removeprefix("nn.functional."))
        if any(each == wanted or each.startswith(wanted + ".") for each in names):
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
    for place, version in enumerate(coverage.versions):
        yield version, "".join(op.letters(place) for op in coverage.ops.values())


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
