"""Whether results differ by more than rounding, for blocks that PyTorch can run with rounded numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from torchtrt.torch_internals import pytree

LIMIT = 0.2
"""The largest difference that counts as rounding, as a share of the largest magnitude of an output."""
_LEAST_SCALE = 1e-4
_STEPS = {torch.bfloat16: 2.0**-8}
_STEP = 2.0**-11
"""The rounding of other numbers: float32 is TF32 in the matrix products of engines."""
_RUNS = 3
_MARGIN = 4.0
"""How many times as much as rounding a difference must be."""


def difference_beyond_rounding(
    actual: Any, expected: Any, rounded: Callable[[], Sequence[Any]]
) -> str:
    """Returns where results differ by more than rounding; ``""`` where they do not. Integers may: they may be ranks.

    Args:
        actual: The outputs of an engine.
        expected: Those of PyTorch.
        rounded: Returns those of PyTorch where all numbers are rounded, several times. Only suspects need them.
    """
    pairs = zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True)
    for index, (mine, theirs) in enumerate(pairs):
        if mine.shape != theirs.shape:
            return (
                f"output {index} has the shape {list(mine.shape)} instead of {list(theirs.shape)}"
            )
        if not theirs.dtype.is_floating_point or not bool(theirs.float().isfinite().any()):
            continue
        wrong = _distance(mine, theirs)
        finite = theirs.float().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        largest = max(float(finite.abs().max()), _LEAST_SCALE)
        if wrong > LIMIT * largest and wrong > _MARGIN * max(
            _distance(pytree.tree_leaves(results)[index], theirs) for results in rounded()
        ):
            return (
                f"output {index} differs by {wrong:.3g}, and its largest element is {largest:.3g}"
            )
    return ""


def _distance(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    """Returns the largest difference where the second tensor is finite; infinite where the first is not a number."""
    right = theirs.float()  # FP8 has no isfinite
    is_finite = right.isfinite()
    difference = mine.float()[is_finite] - right[is_finite]
    return float(difference.abs().nan_to_num(nan=float("inf")).max())


def rounded_runs(block: GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Returns the results of a block in PyTorch whose numbers are rounded, each time at random."""
    return [_Rounding(block, seed).run(*inputs) for seed in range(_RUNS)]


class _Rounding(Interpreter):
    """Runs a block in PyTorch, and changes each number by as much as rounding may change it.

    Differences of numbers that are about equal, and choices among them, then change as much as they may in an engine.

    Args:
        block: The block.
        seed: Where the random changes start.
    """

    def __init__(self, block: GraphModule, seed: int) -> None:
        super().__init__(block)
        self.seed = seed

    def run_node(self, n: Node) -> Any:
        """Runs a node, and changes its result. Whole numbers are exact."""
        result = super().run_node(n)
        is_number = isinstance(result, torch.Tensor) and result.dtype.is_floating_point
        if n.op == "output" or not is_number or result.element_size() == 1:
            return result
        random = torch.Generator(result.device).manual_seed(self.seed)
        self.seed += _RUNS
        signs = torch.rand(result.shape, device=result.device, generator=random).mul_(2).sub_(1)
        change = 1 + signs * _STEPS.get(result.dtype, _STEP)
        return torch.where(result == result.round(), result, (result * change).to(result.dtype))
