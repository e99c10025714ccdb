"""Numbers of which an exported program takes only one value: guards on them hold in every call."""

from __future__ import annotations

import io
import itertools

import pytest
import torch
from torch import nn
from torch.export import Dim

import torchtrt
from tests.support.compiled import accepted_calls
from torchtrt.errors import InputError

CONDITIONS = {
    "n == rows + 2": lambda rows, n: n == rows + 2,
    "n + rows == 6": lambda rows, n: n + rows == 6,
    "n == 2 * rows": lambda rows, n: n == 2 * rows,
    "n * rows > 7": lambda rows, n: n * rows > 7,
    "n // rows == 2": lambda rows, n: n // rows == 2,
    "n < rows + 3": lambda rows, n: n < rows + 3,
    "n == 4": lambda rows, n: n == 4,
    "2 - n == -2": lambda rows, n: 2 - n == -2,
    "n >= 4": lambda rows, n: n >= 4,
    "n % 2 == 0": lambda rows, n: n % 2 == 0,
}
"""Conditions that are true for 2 rows and 4."""
VARYING = Dim.AUTO(min=1, max=6)


class Branch(nn.Module):
    def __init__(self, condition):
        super().__init__()
        self.condition = condition

    def forward(self, x, *numbers: int):
        copy = x.clone()
        copy[:, 1].add_(1)
        return copy * 2 if self.condition(x.shape[0], *numbers) else copy * 3


def exported(model, numbers, is_strict):
    """Returns a program for 2 rows and some numbers, all of which vary."""
    varying = {0: VARYING}, tuple(VARYING for _ in numbers)
    return torch.export.export(
        model.eval(), (torch.ones(2, 6), *numbers), dynamic_shapes=varying, strict=is_strict
    )


def through_file(program):
    """Returns the program as a file has it."""
    torch.export.save(program, file := io.BytesIO())
    file.seek(0)
    return torch.export.load(file)


def taken(program, model, count=1):
    """Returns the rows and the numbers that the compiled program takes, whose results equal those of the model."""
    compiled = torchtrt.compile(program, min_block_size=1)
    sizes = itertools.product(range(2, 7), *[range(1, 7)] * count)
    calls = ((torch.ones(rows, 6), *numbers) for rows, *numbers in sizes)
    return [(x.shape[0], *numbers) for x, *numbers in accepted_calls(compiled, model, calls)]


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
@pytest.mark.parametrize("is_from_file", [False, True])
@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
def test_a_strict_export_fixes_a_number_and_what_depends_on_it(condition, is_from_file):
    """No op reads the number, so that the program has that of the example in the place of a symbol."""
    model = Branch(condition)
    program = exported(model, [4], is_strict=True)
    accepted = taken(through_file(program) if is_from_file else program, model)
    assert accepted == [(rows, 4) for rows in range(2, 7) if condition(rows, 4)]


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("condition", [lambda _, n: n == 4, lambda _, n: 2 - n == -2])
def test_a_number_that_a_guard_fixes_is_read_from_a_file(condition, is_strict):
    model = Branch(condition)
    accepted = taken(through_file(exported(model, [4], is_strict)), model)
    assert accepted == [(rows, 4) for rows in range(2, 7)]


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
@pytest.mark.parametrize("is_from_file", [False, True])
@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        (lambda rows, n, m: n == m + rows, (4, 2)),
        (lambda rows, n, m: n == m, (4, 4)),
        (lambda rows, n, m: n == rows and rows == m, (2, 2)),
    ],
    ids=["a sum", "two equal numbers", "a size that is both"],
)
def test_numbers_that_depend_on_each_other_are_fixed(condition, numbers, is_from_file):
    """PyTorch may give the size the symbol of a number."""
    model = Branch(condition)
    program = exported(model, numbers, is_strict=True)
    accepted = taken(through_file(program) if is_from_file else program, model, len(numbers))
    assert accepted == [(rows, *numbers) for rows in range(2, 7) if condition(rows, *numbers)]


def test_a_range_for_a_number_that_a_strict_export_fixed_is_refused():
    program = exported(Branch(CONDITIONS["n >= 4"]), [4], is_strict=True)
    with pytest.raises(InputError, match=r"1 to 6 in .* fixes it to 4.* without strict=True"):
        torchtrt.compile(program, [torch.ones(2, 6), torchtrt.Number(1, 4, 6)])
