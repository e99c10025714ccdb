"""Checks many of PyTorch's samples in one engine: a build costs seconds whatever is in it, and samples are small.

Each sample is exported and looked at by itself first, which costs milliseconds, so that only those that are converted
whole come together. A group that cannot be exported, built or run is tried in halves, down to single samples; a
sample whose values differ is tried alone.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

import torchtrt
from torchtrt.errors import FullCompilationError, UnsupportedProgramError
from torchtrt.tensorrt import is_real
from torchtrt_compiler.coverage import CRASHED, REJECTED, WRONG
from torchtrt_testing.comparison import difference, eager
from torchtrt_testing.joint_checks import Calls
from torchtrt_testing.op_info import Sample
from torchtrt_testing.outcome import export_sample, outcome, quietly

GPU_FAILED = 70
"""The exit status of a process whose GPU does nothing any more, as after an access to memory that is not there."""


@dataclass(frozen=True)
class Found:
    """The findings about an item's samples.

    Attributes:
        compared: How many were converted whole and compared.
        wrong: What was wrong, of each sample that was.
        only_together: What was wrong of samples that are right alone.
    """

    compared: int = 0
    wrong: tuple[str, ...] = ()
    only_together: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A sample that is converted whole.

    Attributes:
        item: What it was asked for as.
        sample: The sample.
        exported: Its call as an exported program.
        expected: PyTorch's results, and the inputs as they are afterwards.
    """

    item: str
    sample: Sample
    exported: torch.export.ExportedProgram
    expected: list[Any]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a sample: ``wrong`` or ``only_together`` describes a difference; ``compared``: it ran."""

    item: str
    compared: bool = True
    wrong: str = ""
    only_together: str = ""


def check_samples(
    items: dict[str, Sequence[Sample]], **settings: Any
) -> Iterator[tuple[str, Found]]:
    """Yields what was found of each item, as soon as all of its samples are done.

    Args:
        items: The samples of each item, of one dtype: a float16 one lets TensorRT 8.6 compute others in half precision.
        **settings: Settings of the compilation.
    """
    verdicts: dict[str, list[Verdict]] = {item: [] for item in items}
    candidates: list[Candidate] = []
    with quietly():
        for item, samples in items.items():
            for sample in samples:
                found = _look(item, sample, settings)
                if isinstance(found, Candidate):
                    candidates.append(found)
                elif found is not None:
                    verdicts[item].append(found)
    waiting = Counter(candidate.item for candidate in candidates)
    for item in items:
        if not waiting[item]:
            yield item, _found(verdicts[item])
    for verdict in _verdicts(candidates, settings):
        verdicts[verdict.item].append(verdict)
        waiting[verdict.item] -= 1
        if not waiting[verdict.item]:
            yield verdict.item, _found(verdicts[verdict.item])


def _found(verdicts: Sequence[Verdict]) -> Found:
    return Found(
        sum(verdict.compared for verdict in verdicts),
        tuple(verdict.wrong for verdict in verdicts if verdict.wrong),
        tuple(verdict.only_together for verdict in verdicts if verdict.only_together),
    )


def _look(item: str, sample: Sample, settings: dict[str, Any]) -> Candidate | Verdict | None:
    """Returns a sample with what it takes to check it, what is wrong with it, or None where it stays in PyTorch."""
    try:
        expected = eager(sample)
        exported = export_sample(sample)
    except Exception:  # PyTorch does not run or export it
        return None
    candidate = Candidate(item, sample, exported, expected)
    try:
        torchtrt.compile(exported, require_full_compilation=True, dryrun=True, **settings)
    except (FullCompilationError, UnsupportedProgramError):
        return None
    except Exception:
        return _alone(candidate, settings)
    return candidate


def _verdicts(candidates: Sequence[Candidate], settings: dict[str, Any]) -> Iterator[Verdict]:
    """Yields the verdict on each candidate: of a run of all, or of halves where that fails."""
    if len(candidates) == 1:
        yield _alone(candidates[0], settings)
    if len(candidates) < 2:
        return
    try:
        results = _run(candidates, settings)
    except Exception:
        _end_without_gpu()
        middle = len(candidates) // 2
        for half in (candidates[:middle], candidates[middle:]):
            yield from _verdicts(half, settings)
        return
    doubtful = []
    for candidate, actual in zip(candidates, results, strict=True):
        wrong = difference(candidate.sample, candidate.exported, actual, candidate.expected)
        if wrong is None:
            yield Verdict(candidate.item)
        else:
            doubtful.append((candidate, wrong))
    for candidate, wrong in doubtful:
        verdict = _alone(candidate, settings)
        if verdict.compared and not verdict.wrong:
            verdict = Verdict(candidate.item, only_together=_describe(candidate.sample, wrong))
        yield verdict


def _run(candidates: Sequence[Candidate], settings: dict[str, Any]) -> list[list[Any]]:
    """Returns each sample's results, and its inputs as they are afterwards; raises what exporting and TensorRT do."""
    samples = [candidate.sample for candidate in candidates]
    device = torch.device("cuda" if is_real() else "cpu")
    with quietly():
        example = tuple(tensor for sample in samples for tensor in sample.tensors)
        with sdpa_kernel(SDPBackend.MATH):
            models = (each.model for each in samples)
            calls = Calls(models, (len(each.tensors) for each in samples))
            exported = torch.export.export(calls, example, strict=False)
        compiled = torchtrt.compile(exported, require_full_compilation=True, **settings)
        inputs = [[tensor.to(device) for tensor in sample.tensors] for sample in samples]
        results = compiled(*itertools.chain(*inputs))
    pairs = zip(results, inputs, strict=True)
    afterwards = [[*pytree.tree_leaves(result), *tensors] for result, tensors in pairs]
    found: list[list[Any]] = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, afterwards)
    return found


def _alone(candidate: Candidate, settings: dict[str, Any]) -> Verdict:
    """Returns what becomes of a sample in an engine of its own."""
    with quietly():
        found = outcome(candidate.sample, candidate.exported, candidate.expected, **settings)
    if found.kind == CRASHED:
        _end_without_gpu()
    if found.kind in (CRASHED, WRONG):
        return Verdict(candidate.item, wrong=_describe(candidate.sample, found.reason))
    return Verdict(candidate.item, compared=found.kind != REJECTED)


def _describe(sample: Sample, wrong: str) -> str:
    return f"sample {sample.index} ({sample.describe()[:150]}): {wrong}"


def _end_without_gpu() -> None:
    """Ends the process where the GPU does nothing any more: all that follows would fail for that reason."""
    try:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except Exception:
        raise SystemExit(GPU_FAILED) from None
