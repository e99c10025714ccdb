"""Checks many of PyTorch's samples in one engine: a build costs seconds whatever is in it, and samples are small.

Each sample is exported and looked at alone first, which costs milliseconds, so that only those that are converted whole
come together. A group that cannot be exported, built or run is tried in halves, down to single samples; a sample whose
values differ is tried alone.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import torchtrt
from torchtrt.torch_internals import pytree
from torchtrt_testing.checking import engine_device
from torchtrt_testing.comparison import difference, eager
from torchtrt_testing.joint_checks import Calls
from torchtrt_testing.op_info import Sample
from torchtrt_testing.outcome import export_sample, quietly, run_sample
from torchtrt_testing.verification.findings import (
    AGREES,
    DIFFERS,
    NOT_APPLICABLE,
    Finding,
    finding,
    of_error,
)
from torchtrt_testing.verification.workers import gpu_answers

GPU_FAILED = 70
"""The exit status of a process whose GPU does not answer any more: all that follows would fail for that reason."""


@dataclass(frozen=True)
class Candidate:
    """A sample that is converted whole.

    Attributes:
        item: The item that it belongs to.
        sample: The sample.
        exported: Its call as an exported program.
        expected: PyTorch's results, and the inputs as they are afterwards.
    """

    item: str
    sample: Sample
    exported: torch.export.ExportedProgram
    expected: list[Any]

    def check(self, settings: Mapping[str, Any]) -> str:
        """Returns ``AGREES`` if an engine of its own has PyTorch's results.

        Raises:
            AssertionError: The results differ.
        """
        with quietly():
            actual, _ = run_sample(self.sample, self.exported, **settings)
            wrong = difference(self.sample, self.exported, actual, self.expected)
        if wrong:
            raise AssertionError(wrong)
        return AGREES


def check_samples(
    items: Mapping[str, Sequence[Sample]], settings: Mapping[str, Any]
) -> Iterator[tuple[str, dict[int, Finding]]]:
    """Yields each item with the outcome of each sample, as soon as all of its samples have one.

    Args:
        items: The samples of each item, of one dtype: a float16 one lets TensorRT 8.6 compute others in half precision.
        settings: Settings of the compilation.
    """
    findings: dict[str, dict[int, Finding]] = {item: {} for item in items}
    candidates: list[Candidate] = []
    with quietly():
        for item, samples in items.items():
            for sample in samples:
                looked = _look(item, sample, settings)
                if isinstance(looked, Candidate):
                    candidates.append(looked)
                else:
                    findings[item][sample.index] = looked
    waiting = Counter(candidate.item for candidate in candidates)
    yield from ((item, findings[item]) for item in items if not waiting[item])
    for candidate, sample_finding in _outcomes(candidates, settings):
        item = candidate.item
        findings[item][candidate.sample.index] = sample_finding
        waiting[item] -= 1
        if not waiting[item]:
            yield item, findings[item]


def _look(item: str, sample: Sample, settings: Mapping[str, Any]) -> Candidate | Finding:
    """Returns a sample with what it takes to check it, or its outcome where it does not become engines."""
    try:
        expected = eager(sample)
        exported = export_sample(sample)
    except Exception as error:
        return Finding(NOT_APPLICABLE, f"PyTorch does not export it: {type(error).__name__}")
    try:
        torchtrt.compile(exported, require_full_compilation=True, dryrun=True, **settings)
    except Exception as error:
        return of_error(error)
    return Candidate(item, sample, exported, expected)


def _outcomes(
    candidates: Sequence[Candidate], settings: Mapping[str, Any]
) -> Iterator[tuple[Candidate, Finding]]:
    """Yields the outcome of each candidate: from one engine of all, or of halves where that fails."""
    if len(candidates) == 1:
        yield candidates[0], _alone(candidates[0], settings)
    if len(candidates) < 2:
        return
    try:
        results = _run(candidates, settings)
    except Exception as error:
        _end_without_gpu(str(of_error(error)))
        middle = len(candidates) // 2
        for half in (candidates[:middle], candidates[middle:]):
            yield from _outcomes(half, settings)
        return
    doubtful = []
    for candidate, actual in zip(candidates, results, strict=True):
        wrong = difference(candidate.sample, candidate.exported, actual, candidate.expected)
        if wrong is None:
            yield candidate, Finding(AGREES)
        else:
            doubtful.append((candidate, wrong))
    for candidate, wrong in doubtful:
        alone = _alone(candidate, settings)
        if alone.kind == AGREES:
            alone = Finding(DIFFERS, f"in an engine with other samples, and not alone: {wrong}")
        yield candidate, alone


def _run(candidates: Sequence[Candidate], settings: Mapping[str, Any]) -> list[list[Any]]:
    """Returns each sample's results, and its inputs as they are afterwards; raises what exporting and TensorRT do."""
    samples = [candidate.sample for candidate in candidates]
    device = engine_device()
    with quietly():
        example = tuple(tensor for sample in samples for tensor in sample.tensors)
        with sdpa_kernel(SDPBackend.MATH):
            models = (sample.model for sample in samples)
            calls = Calls(models, (len(sample.tensors) for sample in samples))
            exported = torch.export.export(calls, example, strict=False)
        compiled = torchtrt.compile(exported, require_full_compilation=True, **settings)
        inputs = [[tensor.to(device) for tensor in sample.tensors] for sample in samples]
        results = compiled(*itertools.chain(*inputs))
    pairs = zip(results, inputs, strict=True)
    afterwards = [[*pytree.tree_leaves(result), *tensors] for result, tensors in pairs]
    on_cpu: list[list[Any]] = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, afterwards)
    return on_cpu


def _alone(candidate: Candidate, settings: Mapping[str, Any]) -> Finding:
    """Returns the outcome of a sample in an engine of its own."""
    sample_finding = finding(lambda: candidate.check(settings))
    if sample_finding.kind != AGREES:
        _end_without_gpu(str(sample_finding))
    return sample_finding


def _end_without_gpu(cause: str) -> None:
    if not gpu_answers():
        print(f"The GPU does not answer any more. {cause}", file=sys.stderr)
        raise SystemExit(GPU_FAILED)
