"""The outcome of a case on a TensorRT, and when two TensorRTs disagree about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from torchtrt.errors import (
    BuildError,
    ConversionError,
    EngineError,
    FullCompilationError,
    UnsupportedProgramError,
)

AGREES = "agrees"
BUILT = "built, not run"
IN_PYTORCH = "stays in PyTorch"
DIFFERS = "differs"
REFUSED = "refused"
FAILED = "raised an error"
CRASHED = "ended the process"
LATE = "no answer in time"
NOT_APPLICABLE = "not applicable"
KINDS = (
    AGREES,
    BUILT,
    IN_PYTORCH,
    DIFFERS,
    REFUSED,
    FAILED,
    CRASHED,
    LATE,
    NOT_APPLICABLE,
)
"""The possible outcomes of a case."""
_WRONG = frozenset({DIFFERS, REFUSED, FAILED, CRASHED, LATE})
COMPUTED = frozenset({AGREES, BUILT})
"""The outcomes of cases whose engines were built, and compared where they run."""


REASONS = 3
"""The maximum number of reasons of a rejection that are kept: the first ones."""


class NotApplicableError(Exception):
    """A case cannot be tried here; the message has the reason."""


@dataclass(frozen=True)
class Finding:
    """The outcome of a case on one TensorRT.

    Attributes:
        kind: One of ``KINDS``.
        message: The reason or the error; empty where there is none.
    """

    kind: str
    message: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


def disagrees(own: Finding, reference: Finding | None) -> bool:
    """Returns whether a finding is to be reported.

    Args:
        own: The outcome on the TensorRT in use.
        reference: The outcome on the reference; ``None`` if it was not asked.

    Returns:
        True for each outcome other than PyTorch's values or a rejection, and where the reference has another one.
    """
    if own.kind in _WRONG:
        return True
    if reference is None:
        return False
    if own.kind in COMPUTED:
        return reference.kind not in COMPUTED
    return own.kind != reference.kind


def finding(check: Callable[[], str]) -> Finding:
    """Returns the outcome of a check, which returns ``AGREES`` or ``BUILT`` or raises."""
    try:
        return Finding(check())
    except Exception as error:
        return of_error(error)


def of_error(error: Exception) -> Finding:
    """Returns the outcome that an error stands for."""
    text = " ".join(str(error).split())
    if isinstance(error, NotApplicableError):
        return Finding(NOT_APPLICABLE, text)
    if isinstance(error, FullCompilationError | UnsupportedProgramError):
        return Finding(IN_PYTORCH, rejection(error))
    if isinstance(error, AssertionError):
        return Finding(DIFFERS, text)
    name = type(error).__name__
    is_refusal = isinstance(error, BuildError | ConversionError | EngineError)
    return Finding(REFUSED if is_refusal else FAILED, f"{name}: {text}")


def rejection(error: FullCompilationError | UnsupportedProgramError) -> str:
    """Returns why nodes stayed in PyTorch: each op, and the reason of the last converter that was tried."""
    if isinstance(error, UnsupportedProgramError):
        return str(error)
    reasons = dict.fromkeys(
        f"{missing_op.op.removesuffix('.default')}: {missing_op.reasons[-1].splitlines()[-1]}"
        for missing_op in error.missing
    )
    text = "; ".join(list(reasons)[:REASONS])
    return re.sub(r"reference@[\d.]+", "this TensorRT", text)
