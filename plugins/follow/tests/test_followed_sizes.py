"""Sizes of a followed model: which vary, and when it is compiled again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchtrt
from plugins.follow.tests.followed import X, agree, followed, made, programs
from tests.support.compiled import exports_of_followed
from torchtrt.errors import InputError


def test_sizes_that_differ_vary_from_the_second_on():
    """The bounds are powers of 2; a new program replaces the one whose sizes it takes."""
    model = made()
    follower = followed(model)
    seen = []
    for rows in (3, 5, 4, 7, 8, 9, 1, 3):
        agree(follower, model, torch.rand(rows, 4))
        seen.append(programs(follower)[-1])
    assert 1 == len(programs(follower))
    assert 4 == len({id(program_) for program_ in seen})  # 3, 2 to 8, to 16, and from 1


def test_declared_sizes_are_compiled_once():
    """As ranges, as Dim and as Input; sizes outside get programs of their own."""
    model = made()
    for declared in (
        {0: (1, 9)},
        {0: (1, 2, 9)},
        {0: torch.export.Dim("rows", min=1, max=9)},
        torchtrt.Input(min_shape=(1, 4), opt_shape=(3, 4), max_shape=(9, 4)),
    ):
        follower = followed(model, dynamic_shapes={"x": declared})
        for rows in (3, 9, 1):
            agree(follower, model, torch.rand(rows, 4))
        assert 1 == len(programs(follower))
    agree(follower, model, torch.rand(12, 4))
    assert 2 == len(programs(follower))


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"y": {0: (1, 2)}}, "names 'y'"),
        ({"x": {7: (1, 2)}}, "dimension 7"),
        ({"x": {0: (4, 2)}}, "no range"),
        ({"x": {0: 3}}, "Give .min, max"),
    ],
)
def test_a_declaration_that_does_not_fit_is_an_error(declared, message):
    """Not a reason to run in PyTorch."""
    with pytest.raises(InputError, match=message):
        agree(followed(made(), dynamic_shapes=declared, fallback=False), made(), X)


def test_a_size_that_the_model_fixes_gets_programs_of_its_own():
    """There is no range to compile for."""

    class Fixing(nn.Module):
        def forward(self, x):
            return x.reshape(-1) * 2 if x.shape[0] == 3 else x + int(x.shape[0])

    model = made(Fixing)
    follower = followed(model)
    for rows in (3, 5, 6, 3, 5):
        agree(follower, model, torch.rand(rows, 4))


def test_a_program_for_a_size_between_those_of_another_stays(monkeypatch):
    """The other one is in its range, and does not take it."""

    class Branching(nn.Module):
        def forward(self, x):
            return x.sin() if x.shape[0] == 3 else x.cos()

    model = made(Branching)
    follower, exports = followed(model), exports_of_followed(monkeypatch)
    for rows in (3, 5, 3, 6):
        agree(follower, model, torch.rand(rows, 4))
    assert 2 == len(programs(follower)) == len(exports)


def test_sizes_that_broadcast_get_programs_of_their_own():
    """A size that is 1 in one call and not in another is no size that torch.export could vary."""

    class Adding(nn.Module):
        def forward(self, x, y):
            return x.sin() + y

    model = made(Adding)
    follower = followed(model, fallback=False)
    for rows, others in ((3, 3), (3, 1), (3, 3), (1, 3), (6, 6), (6, 1)):
        agree(follower, model, torch.rand(rows, 4), torch.rand(others, 4))
