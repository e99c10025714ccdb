"""A slice of the conformance suite: outcomes are those of the pack's coverage file, no worse and no better."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from docs.op_tables import coverage_tables
from tests.support.shards import shards
from tools.conformance import golden
from torchtrt_cli.coverage import totals
from torchtrt_compiler.coverage import (
    CORRECT,
    CRASHED,
    NOT_EXPORTABLE,
    REJECTED,
    WRONG,
    Coverage,
    OpCoverage,
    count,
    kind_of,
    share,
)
from torchtrt_reference import VERSIONS
from torchtrt_testing.op_info import ops, samples_of
from torchtrt_testing.outcome import Outcome, outcomes

KEPT = golden.read()
PARTS = 16
SHARE = {"8.6.0": 0.89, "10.16.1": 0.9, "11.4.0": 0.9}
"""The minimum share of all samples that is converted and correct, on each version."""

same_pytorch = pytest.mark.skipif(
    str(torch.__version__).partition("+")[0] != KEPT.torch,
    reason=f"the kept outcomes are of the samples of PyTorch {KEPT.torch}",
)


def one_sample(name: str) -> tuple[torch.dtype, int, int] | None:
    """Returns the dtype, sample and version at which an op is tested: another mix for every op."""
    op = KEPT.ops[name]
    positions = [
        (dtype, index)
        for dtype, of_versions in op.samples.items()
        for index, letter in enumerate(of_versions[0])
        if letter != NOT_EXPORTABLE  # torch.export takes its time to refuse
    ]
    if not positions:
        return None
    number = zlib.crc32(name.encode())
    dtype, index = positions[number % len(positions)]
    return getattr(torch, dtype), index, number // len(positions) % len(VERSIONS)


@same_pytorch
@pytest.mark.parametrize("part", shards(PARTS, quick=1))
def test_outcomes_are_the_kept_ones(part: int) -> None:
    """One sample of each op, on one of the versions: a worse outcome is a fault, a better one is to be kept."""
    torch.set_num_threads(1)
    changed = []
    for name in list(KEPT.ops)[part::PARTS]:
        if (position := one_sample(name)) is None:
            continue
        dtype, index, version = position
        sample = samples_of(name, dtype)[index]
        by_version = outcomes(sample, [VERSIONS[version]])
        assert by_version is not None
        (outcome,) = by_version.values()
        kept = KEPT.ops[name].samples[str(dtype).removeprefix("torch.")][version][index]
        if kind_of(kept) != outcome.kind:
            how = "worse" if golden.is_worse(outcome.kind, kept) else "better"
            changed.append(f"{sample} @{VERSIONS[version]} is {how}: {outcome} after {kept!r}")
    assert not changed, "\n".join((*changed, "If this is right, run: make conformance"))


@same_pytorch
def test_every_op_of_the_database_is_kept() -> None:
    """No op of the suite is missing from the coverage file, and no other op is in it."""
    without_samples = {
        name
        for name, op in ops().items()
        if not any(op.supports_dtype(getattr(torch, dtype), "cpu") for dtype in DTYPE_NAMES)
    }
    assert set(KEPT.ops) <= set(ops())
    assert {name for name in set(ops()) - set(KEPT.ops) if name not in without_samples} <= REFUSED


DTYPE_NAMES = ("float32", "float16", "int64", "bool")
REFUSED: set[str] = set()
"""Ops whose samples PyTorch itself does not run on a CPU."""


@pytest.mark.parametrize("kind", ["wrong", "crashed"])
def test_nothing_is_wrong_and_nothing_crashes(kind: str) -> None:
    """What cannot be converted exactly is rejected with a reason."""
    assert {version: count(letters)[kind] for version, letters in totals(KEPT)} == dict.fromkeys(
        VERSIONS, 0
    )


def test_reasons_are_of_no_machine() -> None:
    """No reason contains a place in a user's files."""
    assert 'File "' not in "".join(coverage_tables())


@pytest.mark.parametrize("version", range(len(VERSIONS)), ids=VERSIONS)
def test_most_samples_are_converted(version: int) -> None:
    """Of the samples that compute something, so many run in engines, and are correct."""
    counts = count(dict(totals(KEPT))[VERSIONS[version]])
    counted = sum(counts[label] for label in ("correct", "rejected", "wrong", "crashed"))
    assert counts["correct"] / counted >= SHARE[VERSIONS[version]]


def test_the_page_shows_what_is_kept() -> None:
    """The site's table has a row for each op, with its shares."""
    lines = list(coverage_tables())
    assert f"PyTorch {KEPT.torch}, {len(KEPT.ops)} ops:" == lines[0]
    rows = [line.split(" | ") for line in lines if line.startswith("| `")][len(VERSIONS) :]
    shown = {name.strip("|` "): shares for name, _, *shares, _ in rows}
    positions = range(len(VERSIONS))
    assert shown == {
        name: [share(op.letters(position)) for position in positions]
        for name, op in KEPT.ops.items()
    }


def test_samples_are_the_same_each_time() -> None:
    """Values, and not only shapes: a kept outcome is of one sample."""
    first, second = (samples_of("add", torch.float32) for _ in range(2))
    assert [sample.describe() for sample in first] == [sample.describe() for sample in second]
    for one, other in zip(first, second, strict=True):
        for mine, theirs in zip(one.tensors, other.tensors, strict=True):
            assert torch.equal(mine, theirs)


def faults_of(kind: str, reason: str = "") -> list[tuple[str, str, int, str, dict[str, Outcome]]]:
    """Returns a run of one sample."""
    return [("add", "float32", 0, "", dict.fromkeys(VERSIONS, Outcome(kind, reason)))]


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (REJECTED, CORRECT, CORRECT),
        (CORRECT, REJECTED, CORRECT),
        (REJECTED, WRONG, "a"),
        (WRONG, REJECTED, "a"),
        (REJECTED, CRASHED, "a"),
    ],
)
def test_what_is_kept_only_improves(tmp_path: Path, before: str, after: str, kept: str) -> None:
    """A run with a worse outcome is not written; one with a better outcome is."""
    paths = {pack: tmp_path / f"{pack}.json" for pack in golden.PATHS}
    assert golden.keep(faults_of(before, "the rule"), False, paths) == 0
    worse = golden.keep(faults_of(after, "the rule"), False, paths)
    assert golden.read(paths).ops["add"].samples["float32"] == (kept,) * len(VERSIONS)
    assert bool(worse) == (kept != after and not (after == REJECTED and kept == "a"))


def test_a_wrong_result_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite finds a result that differs from PyTorch's."""
    sample = samples_of("add", torch.float32)[0]

    def function(tensor: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return tensor * (3 if isinstance(tensor, FakeTensor) else 2)

    object.__setattr__(sample, "function", function)
    by_version = outcomes(sample, VERSIONS[:1])
    assert by_version is not None
    assert [outcome.kind for outcome in by_version.values()] == [WRONG]


def test_a_coverage_survives_being_written() -> None:
    """Reading what was written gives the same."""
    op = OpCoverage({"bool": (".a", ".-", "XC")}, ('a "reason"',))
    coverage = Coverage("2.13.0", VERSIONS, {"add": op, "sub": OpCoverage({})})
    assert Coverage.from_json(golden.to_json(coverage)) == coverage
