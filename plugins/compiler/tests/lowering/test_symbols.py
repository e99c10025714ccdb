"""Symbolic sizes stay symbolic while the compiler looks at them."""

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torchtrt.graphs.symbols import NewAssumptionError, no_new_assumptions, shape_env_of


@pytest.fixture
def graph():
    """A graph with one symbolic size."""

    class Model(torch.nn.Module):
        def forward(self, x):
            return x + 1

    exported = torch.export.export(
        Model(), (torch.ones(5),), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=9)},)
    )
    return exported.graph


def size(graph):
    """Returns the symbolic size of the graph's input."""
    return next(iter(graph.nodes)).meta["val"].shape[0]


def test_comparing_a_symbolic_size_raises(graph):
    """Without this the comparison would fix the size for the whole program."""
    with (
        no_new_assumptions(graph),
        pytest.raises(
            NewAssumptionError, match=r"that Eq\(s\d+, 5\) is True.*statically_known_true"
        ),
    ):
        bool(size(graph) == 5)

    assert not isinstance(size(graph), int)


def test_making_a_number_of_a_symbolic_size_raises(graph):
    """It would fix the size as well, and the error says to what."""
    with no_new_assumptions(graph), pytest.raises(NewAssumptionError, match=r"that s\d+ is 5\."):
        int(size(graph))

    assert not isinstance(size(graph), int)


def test_what_is_known_may_be_asked(graph):
    """Questions with an answer add no assumption."""
    with no_new_assumptions(graph):
        assert statically_known_true(size(graph) >= 2)
        assert not statically_known_true(size(graph) == 5)


def test_what_holds_for_all_sizes_is_no_assumption(graph):
    """PyTorch does not simplify a minimum of multiples itself."""
    n = size(graph)
    with no_new_assumptions(graph):
        assert torch.sym_min(8 * n, 32 * n) == 8 * n
        assert torch.sym_max(8 * n, 32 * n) != 8 * n
        with pytest.raises(NewAssumptionError, match="Min"):
            bool(torch.sym_min(8 * n, 40) == 8 * n)


def test_afterwards_exporting_can_assume_again(graph):
    """The switch is undone, also after an error."""
    with pytest.raises(ZeroDivisionError), no_new_assumptions(graph):
        1 / 0  # noqa: B018

    assert bool(size(graph) == 5)
    assert shape_env_of(graph).guards
