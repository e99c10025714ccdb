"""Decompositions as PyTorch writes them: in place, with several outputs, with constants; and why one does not help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchtrt
from torchtrt.errors import FullCompilationError


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Calls the function."""
        return self.function(*inputs)


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """Returns a function with everything in engines."""
    return torchtrt.compile(Function(function).eval(), inputs, require_full_compilation=True)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: torch.nanmean(x, 1), (torch.randn(3, 4),)),  # writes in place
        (lambda x, y: F.poisson_nll_loss(x, y, full=True), (torch.randn(3, 4), torch.rand(3, 4))),
        (lambda x, y: F.cross_entropy(x, y), (torch.randn(3, 4), torch.tensor([0, 3, 1]))),
        (lambda x, y: torch.block_diag(x, y), (torch.randn(3, 4), torch.randn(2, 1))),
    ],
    ids=["in-place", "in-place-and-more", "several-outputs", "constants"],
)
def test_a_decomposition_is_used_however_it_is_written(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]
) -> None:
    """Writes become functional ops, unused outputs go, and constants are computed."""
    torch.testing.assert_close(compiled(function, *inputs)(*inputs), function(*inputs))


def test_the_reason_of_a_part_is_told() -> None:
    """A decomposition that does not help says which part is not converted, and why."""
    with pytest.raises(
        FullCompilationError, match=r"needs aten\.reshape\.default: .* 8 dimensions"
    ):
        compiled(lambda x: F.pixel_shuffle(x, 2), torch.randn(1, 1, 1, 1, 4, 2, 2))


def test_the_reason_of_a_decomposition_that_does_not_apply_is_told() -> None:
    """Where a pack's decomposition gives a reason, the report has it."""
    with pytest.raises(FullCompilationError, match="does not apply: new elements have no values"):
        compiled(lambda x: torch.ops.aten.resize.default(x, [100]), torch.randn(3))


class Counter(nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the input times the number of calls."""
        self.calls.add_(x.abs().clamp(1, 1))
        return x * self.calls


def test_writing_results_back_is_no_computation() -> None:
    """A model that writes to its buffers can be compiled with everything in engines."""
    model = torchtrt.compile(
        Counter().eval(), (torch.randn(3),), require_full_compilation=True, min_block_size=1
    )
    x = torch.randn(3)
    torch.testing.assert_close(model(x), x)
    torch.testing.assert_close(model(x), x * 2)
