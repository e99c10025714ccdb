"""What tests read from a compiled model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch

from torchtrt.errors import InputError
from torchtrt_follow import programs
from torchtrt_runtime import EngineModule


def engines_of(compiled: torch.nn.Module) -> list[EngineModule]:
    """Returns the engines of a compiled model."""
    return [module for module in compiled.modules() if isinstance(module, EngineModule)]


def exports_of_followed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns a list that has an entry for each export of a followed model from now on."""
    exports: list[Any] = []
    export = programs.export
    monkeypatch.setattr(programs, "export", lambda *args: exports.append(args) or export(*args))
    return exports


def assert_same(compiled: Any, model: Any, *inputs: Any, tolerance: float = 1e-4) -> None:
    """Checks a call of a compiled model against eager PyTorch."""
    with torch.no_grad():
        actual, expected = compiled(*inputs), model(*inputs)
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def accepted_calls(
    compiled: Any, model: Any, calls: Iterable[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Returns the calls that a compiled model does not refuse, and checks these against eager PyTorch.

    Their results are the model's, and so is what they leave in their inputs.
    """
    accepted = []
    for inputs in calls:
        ours, theirs = (
            [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
            for _ in range(2)
        )
        try:
            actual = compiled(*ours)
        except InputError:
            continue
        torch.testing.assert_close((actual, ours), (model(*theirs), theirs))
        accepted.append(inputs)
    return accepted
