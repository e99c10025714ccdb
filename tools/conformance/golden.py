"""The kept outcomes of a run: each pack's ``coverage.json``, which may only improve, and the page of all."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch

from tools.conformance.running import Found
from torchtrt_compiler.coverage import (
    CORRECT,
    CRASHED,
    FILE,
    LABELS,
    NOT_EXPORTABLE,
    NOTHING,
    REJECTED,
    WRONG,
    Coverage,
    OpCoverage,
    kind_of,
)
from torchtrt_reference import VERSIONS
from torchtrt_testing.op_info import ops
from torchtrt_testing.outcome import Outcome

ROOT = Path(__file__).parents[2]
PATHS = {
    "linalg": ROOT / "plugins/contrib/linalg/src/torchtrt_converters_linalg" / FILE,
    "special": ROOT / "plugins/contrib/special/src/torchtrt_converters_special" / FILE,
    "complex": ROOT / "plugins/contrib/complex/src/torchtrt_converters_complex" / FILE,
    "aten_core": ROOT / "plugins/aten_core/src/torchtrt_converters_aten_core" / FILE,
}
"""The file of each pack."""
OWNERS = {
    "linalg": (
        "cholesky*", "geqrf", "linalg.c[ho]*", "linalg.det", "linalg.e*", "linalg.h*", "linalg.inv*", "linalg.l*",
        "linalg.matrix_[pr]*", "linalg.pinv*", "linalg.qr", "linalg.s*", "linalg.tensor*", "logdet", "lu*", "ormqr",
        "pinverse", "qr", "svd*", "triangular_solve",
    ),
    "special": (
        "digamma", "erf?*", "i0", "igamma*", "lgamma", "logit", "mvlgamma*", "polygamma*", "special.*",
    ),
    "complex": ("complex", "fft.*", "polar", "stft", "view_as_complex"),
    "aten_core": ("*",),
}  # fmt: skip
"""The names of the ops in a pack's file; the first pack whose patterns match owns an op."""

_RANK = {CRASHED: 0, WRONG: 1, REJECTED: 2, NOT_EXPORTABLE: 2, NOTHING: 3, CORRECT: 3}
"""How good an outcome is."""


def read(paths: Mapping[str, Path] = PATHS) -> Coverage:
    """Returns what is kept, of all packs together; ``paths`` has the file of each."""
    files = [path.read_text(encoding="utf-8") for path in paths.values() if path.exists()]
    parts = [Coverage.from_json(text) for text in files]
    merged = {name: op for part in parts for name, op in part.ops.items()}
    torch_version = parts[0].torch if parts else ""
    return Coverage(torch_version, VERSIONS, {name: merged[name] for name in sorted(merged)})


def owner(name: str) -> str:
    """Returns the pack in whose file an op is."""
    return next(
        pack
        for pack, patterns in OWNERS.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    )


def write(coverage: Coverage, paths: Mapping[str, Path] = PATHS) -> None:
    """Writes the file of each pack."""
    for pack, path in paths.items():
        own = {name: op for name, op in coverage.ops.items() if owner(name) == pack}
        part = Coverage(coverage.torch, coverage.versions, own)
        path.write_text(to_json(part), encoding="utf-8")


def is_worse(outcome: str, kept: str) -> bool:
    """Returns whether an outcome is worse than the one that is kept, both as letters."""
    return _RANK[kind_of(outcome)] < _RANK[kind_of(kept)]


def keep(entries: Iterable[Found], accept_worse: bool, paths: Mapping[str, Path] = PATHS) -> int:
    """Replaces what is kept of the ops that were run, except of those with a worse outcome."""
    kept = read(paths).ops
    merged = dict(kept)
    refused = []
    for name, op in collect(entries).items():
        worse = list(_worse(name, kept[name], op)) if name in kept else []
        print("\n".join(worse), end="\n" if worse else "")
        if worse and not accept_worse:
            refused.append(name)
        else:
            merged[name] = op
    coverage = Coverage(
        str(torch.__version__).partition("+")[0],
        VERSIONS,
        {name: merged[name] for name in sorted(merged) if name in ops()},
    )
    write(coverage, paths)
    if refused:
        print(f"Worse than before, so what is kept of them stays: {', '.join(refused)}")
    return 1 if refused else 0


def to_json(coverage: Coverage) -> str:
    """Returns the text of a file: one line for each op and dtype, and for each reason."""
    lines = [
        "{",
        f'"torch": {json.dumps(coverage.torch)},',
        f'"versions": {json.dumps(coverage.versions)},',
        '"ops": {',
    ]
    for name, op in sorted(coverage.ops.items()):
        lines.append(f"{json.dumps(name)}: {{")
        lines += [f" {json.dumps(dtype)}: {json.dumps(s)}," for dtype, s in op.samples.items()]
        lines.append(' "reasons": [')
        lines += [f"  {json.dumps(reason)}," for reason in op.reasons]
        lines[-1] = lines[-1].removesuffix(",")
        lines.append(" ]},")
    lines[-1] = lines[-1].removesuffix(",") if coverage.ops else lines[-1]
    return "\n".join((*lines, "}}", ""))


def collect(entries: Iterable[Found]) -> dict[str, OpCoverage]:
    """Returns what became of each op's samples."""
    samples: dict[str, dict[str, list[list[Outcome]]]] = {}
    for name, dtype, _, _, by_version in entries:
        if by_version is not None:
            of_versions = samples.setdefault(name, {}).setdefault(dtype, [[] for _ in VERSIONS])
            for outcomes, version in zip(of_versions, VERSIONS, strict=True):
                outcomes.append(by_version[version])
    return {name: _op_coverage(by_dtype) for name, by_dtype in samples.items()}


def _op_coverage(by_dtype: dict[str, list[list[Outcome]]]) -> OpCoverage:
    """Returns one letter for each sample: its outcome, or for a rejected one the letter of its reason."""
    reasons: dict[str, str] = {}

    def letter(outcome: Outcome) -> str:
        if outcome.kind != REJECTED:
            return outcome.kind
        # Reasons beyond the alphabet share its last letter.
        return reasons.setdefault(outcome.reason, chr(min(ord("a") + len(reasons), ord("z"))))

    samples = {
        dtype: tuple("".join(map(letter, outcomes)) for outcomes in of_versions)
        for dtype, of_versions in by_dtype.items()
    }
    return OpCoverage(samples, tuple(reasons)[:26])


def _worse(name: str, before: OpCoverage, after: OpCoverage) -> Iterator[str]:
    for dtype, of_versions in after.samples.items():
        old = before.samples.get(dtype, ("",) * len(VERSIONS))
        for version, letters, kept in zip(VERSIONS, of_versions, old, strict=True):
            if len(letters) != len(kept):
                continue  # other samples
            for index, (new, former) in enumerate(zip(letters, kept, strict=True)):
                if is_worse(new, former):
                    labels = LABELS[kind_of(former)], LABELS[kind_of(new)]
                    yield f"{name} {dtype} #{index} @{version}: was {labels[0]}, is {labels[1]}"
