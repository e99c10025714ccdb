"""The outcomes of PyTorch's samples: each is exported once, then converted, run and compared."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import torchtrt
from torchtrt.errors import FullCompilationError, UnsupportedProgramError
from torchtrt.torch_internals import pytree
from torchtrt_compiler.coverage import CORRECT, CRASHED, NOT_EXPORTABLE, NOTHING, REJECTED, WRONG
from torchtrt_reference import VERSIONS
from torchtrt_testing.checking import engine_device
from torchtrt_testing.comparison import difference, eager
from torchtrt_testing.op_info import Sample
from torchtrt_testing.verification.findings import rejection


@dataclass(frozen=True)
class Outcome:
    """The outcome of one sample on one version.

    Attributes:
        kind: One of ``torchtrt_compiler.coverage``'s letters.
        reason: Why, where it is not correct.
    """

    kind: str
    reason: str = ""


def outcomes(sample: Sample, versions: Sequence[str] = VERSIONS) -> dict[str, Outcome] | None:
    """Returns what becomes of a sample, by version, or None where PyTorch itself refuses to run it."""
    with quietly():
        try:
            expected = eager(sample)
        except Exception:
            return None
        try:
            exported = export_sample(sample)
        except Exception as error:
            reason = f"torch.export: {type(error).__name__}"
            return dict.fromkeys(versions, Outcome(NOT_EXPORTABLE, reason))
        by_version = {}
        for version in versions:
            with torchtrt.use_tensorrt(f"reference@{version}"):
                by_version[version] = outcome(sample, exported, expected)
        return by_version


def export_sample(sample: Sample) -> torch.export.ExportedProgram:
    """Returns a sample's call as an exported program; raises whatever ``torch.export`` does."""
    with sdpa_kernel(SDPBackend.MATH):
        return torch.export.export(sample.model, sample.tensors, strict=False)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Turns gradients and warnings off in a ``with`` block."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def outcome(sample: Sample, exported: Any, expected: list[Any], **settings: Any) -> Outcome:
    """Returns what becomes of a sample on the TensorRT in use.

    Args:
        sample: The sample.
        exported: It as an exported program.
        expected: What ``torchtrt_testing.comparison.eager`` gives for it.
        **settings: Settings of the compilation.
    """
    try:
        actual, has_engines = run_sample(sample, exported, **settings)
    except (FullCompilationError, UnsupportedProgramError) as error:
        return Outcome(REJECTED, rejection(error))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return Outcome(CRASHED, " ".join(text.split())[:300])
    wrong = difference(sample, exported, actual, expected)
    if wrong is not None:
        return Outcome(WRONG, wrong)
    return Outcome(CORRECT if has_engines else NOTHING)


def run_sample(sample: Sample, exported: Any, **settings: Any) -> tuple[list[Any], bool]:
    """Returns a sample's results with its inputs as they are afterwards, and whether it became engines."""
    compiled = torchtrt.compile(exported, require_full_compilation=True, **settings)
    device = engine_device()
    tensors = [tensor.to(device) for tensor in sample.tensors]
    results = [*pytree.tree_leaves(compiled(*tensors)), *tensors]
    on_cpu: list[Any] = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, results)
    return on_cpu, bool(compiled.report.blocks)
