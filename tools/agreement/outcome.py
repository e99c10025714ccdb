"""The outcome of a case, as data that can be written, read and compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.agreement.case import Case, Dynamic, Given, ShapeValues

KEPT_VALUES = 256


@dataclass(frozen=True, eq=False)
class Output:
    """One output.

    Attributes:
        dtype: NumPy's name of its type.
        shape: Its shape.
        values: Its values, flat and rounded to 7 digits; evenly spaced samples of a large output; for a random
            output, whether all values are within the bounds.
    """

    dtype: str
    shape: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a case.

    Attributes:
        refused_at: The stage: ``add``, ``build``, ``context``, ``shapes`` or ``run``. Or ``error`` (an exception),
            ``crash`` or ``timeout``; None if the case ran.
        reason: The first error that was logged, or the exception.
        outputs: The outputs of a case that ran.
    """

    refused_at: str | None
    reason: str = ""
    outputs: tuple[Output, ...] = ()


def output_of(array: np.ndarray, within: tuple[float, float] | None) -> Output:
    """Returns an output as it is written down."""
    flat = array.reshape(-1)
    if within is not None:
        low, high = within
        inside = bool(((flat >= low) & (flat <= high)).all())
        return Output(array.dtype.name, array.shape, (float(inside),))
    step = max(1, math.ceil(flat.size / KEPT_VALUES))
    kept = tuple(_rounded(float(value)) for value in flat[::step])
    return Output(array.dtype.name, array.shape, kept)


def _rounded(value: float) -> float:
    # Integers stay exact: an int32 has up to ten digits.
    return value if not math.isfinite(value) or value == int(value) else float(f"{value:.6e}")


def encode(outcome: Outcome) -> dict[str, Any]:
    """Returns an outcome as JSON objects."""
    encoded: dict[str, Any] = {"at": outcome.refused_at}
    if outcome.refused_at:
        encoded["why"] = outcome.reason
    else:
        encoded["out"] = [
            [output.dtype, list(output.shape), [_written(value) for value in output.values]]
            for output in outcome.outputs
        ]
    return encoded


def decode(encoded: Mapping[str, Any]) -> Outcome:
    """Returns the outcome that ``encode`` wrote."""
    outputs = tuple(
        Output(dtype, tuple(shape), tuple(float(value) for value in values))
        for dtype, shape, values in encoded.get("out", ())
    )
    return Outcome(encoded["at"], encoded.get("why", ""), outputs)


def _written(value: float) -> float | int | str:
    if not math.isfinite(value):
        return repr(value)
    return int(value) if value == int(value) else value


def difference(case: Case, got: Outcome, want: Outcome) -> str | None:
    """Returns how two outcomes of a case differ, in one line; None if they agree."""
    if got.refused_at != want.refused_at:
        return f"{_stage(got)} instead of {_stage(want)}"
    if len(got.outputs) != len(want.outputs):
        return f"{len(got.outputs)} outputs instead of {len(want.outputs)}"
    for index, (ours, theirs) in enumerate(zip(got.outputs, want.outputs, strict=True)):
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return f"output {index} is {ours.dtype}{list(ours.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
        tolerance = _tolerance(case, theirs.dtype)
        close = np.isclose(
            ours.values, theirs.values, rtol=tolerance, atol=tolerance, equal_nan=True
        )
        if not close.all():
            at = int(np.argmin(close))
            return (
                f"output {index} differs in {int((~close).sum())} of {close.size} values: "
                f"at {at} {ours.values[at]:g} instead of {theirs.values[at]:g}"
            )
    return None


def _stage(outcome: Outcome) -> str:
    if outcome.refused_at is None:
        return "runs"
    return f"refused at {outcome.refused_at} ({outcome.reason[:120]})"


def _tolerance(case: Case, dtype: str) -> float:
    if case.tolerance is not None:
        return case.tolerance
    types = {dtype, *(_dtype(input_) for input_ in case.inputs.values())}
    if "float16" in types:
        return 2e-3
    return 1e-5 if dtype == "float32" else 0.0


def _dtype(input_: Given) -> str:
    array = input_.value if isinstance(input_, (Dynamic, ShapeValues)) else input_
    return str(array.dtype.name)
