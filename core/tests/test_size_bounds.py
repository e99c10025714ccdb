"""Bounds of sizes, as packs ask for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchtrt.expressions.bounds import bounding
from torchtrt.graphs import size_bounds, symbol_bounds


def sizes(dim: Any, function: Any = lambda n: n) -> tuple[torch.SymInt, torch.SymInt]:
    """Returns a size of an input, and one that is computed from it."""

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.arange(function(x.shape[0]))

    exported = torch.export.export(Module(), (torch.zeros(5),), dynamic_shapes=({0: dim},))
    placeholder = exported.graph.find_nodes(op="placeholder")[0]
    result: Any = exported.graph.output_node().args[0]
    return placeholder.meta["val"].shape[0], result[0].meta["val"].shape[0]


def test_a_size_of_an_input_may_be_1() -> None:
    """PyTorch takes it for 2 or more, and so for 12 at most where it is subtracted from 14."""
    size, rest = sizes(torch.export.Dim("n", max=12), lambda n: 14 - n)
    assert size_bounds(size) == (1, 12)
    assert size_bounds(rest) == (2, 13)
    assert list(symbol_bounds(rest).values()) == [(1, 12)]
    assert size_bounds(7) == (7, 7)


@pytest.mark.parametrize("least", [0, 1, 4])
def test_the_bounds_of_symbols_can_be_stated(least: int) -> None:
    """They are those of the engine in conversion."""
    size, rest = sizes(torch.export.Dim("n", min=3, max=12), lambda n: 14 - n)
    with bounding({size.node.expr: (least, 13)}):
        assert size_bounds(size) == (least, 13)
        assert size_bounds(rest) == (1, 14 - least)
