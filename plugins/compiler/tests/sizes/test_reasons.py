"""The reasons for sizes that are left out are true, and what they advise works."""

import warnings

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import InputError, SizeWarning
from torchtrt_compiler.sizes.model_checks import is_check


class Asserted(nn.Module):
    """A check at one end of the sizes."""

    def forward(self, x):
        """At most six rows."""
        assert x.shape[0] < 7
        return x.relu()


class Checked(nn.Module):
    """Checks at both ends of the sizes."""

    def forward(self, x):
        """From three to six rows."""
        torch._check(x.shape[0] >= 3)
        torch._check(x.shape[0] <= 6)
        return x.relu()


class Grouped(nn.Module):
    """An op that refuses sizes."""

    def forward(self, x):
        """Rows of six elements."""
        return x.view(-1, 6)


class CheckedBranch(nn.Module):
    """A check at one end, and another program at the other."""

    def forward(self, x):
        """Another function for many rows."""
        torch._check(x.shape[0] >= 3)
        return x.sigmoid() if x.shape[0] > 6 else x.relu()


class Product(nn.Module):
    """Two inputs with a size in common."""

    def forward(self, x, y):
        """The sum over the rows."""
        return x.mT @ y


def rows(low, usual, high):
    """Returns an input of four columns."""
    return torchtrt.Input(min_shape=(low, 4), opt_shape=(usual, 4), max_shape=(high, 4))


def compiled_with_warning(model, inputs):
    """Returns a compiled model, and the text of its warning."""
    with pytest.warns(SizeWarning) as shown:
        compiled = torchtrt.compile(model.eval(), inputs, min_block_size=1)
    return compiled, str(shown[0].message)


@pytest.mark.parametrize(("model", "refused"), [(Asserted, 7), (Checked, 7), (Grouped, 2)])
def test_sizes_that_the_model_itself_refuses_are_said_to_be(model, refused):
    """No other compilation takes them, so that none is advised."""
    compiled, text = compiled_with_warning(model(), [rows(2, 3, 9)])

    (row,) = compiled.report.narrowed
    assert row.is_refused
    assert "the model itself refuses some of these sizes" in text
    assert "fail in PyTorch, too" in text
    assert "second time" not in text
    with pytest.raises(InputError, match="the model itself refuses"):
        compiled(torch.rand(refused, 4))


def test_a_branch_at_one_end_is_the_reason_for_both():
    """It is the one that can be changed."""
    compiled, text = compiled_with_warning(CheckedBranch(), [rows(1, 4, 9)])

    (row,) = compiled.report.narrowed
    assert not row.is_refused
    line = CheckedBranch.forward.__code__.co_firstlineno + 3
    assert f"line {line}, in forward" in row.model_line
    assert "second time" in text


class Reshaped(nn.Module):
    """A write that reaches what is returned for one row only."""

    def forward(self, x):
        """Twice the values, and one more for a row alone."""
        y = x * 2
        y.t().reshape(-1).add_(1)
        return y


def test_a_compilation_for_the_other_sizes_alone_takes_them():
    """With one row as the optimal size of this range, it is refused again."""
    model, row = Reshaped(), torch.rand(1, 4)
    compiled, text = compiled_with_warning(model, [rows(1, 1, 9)])
    assert "compile the model a second time, for them alone or for one of them" in text
    with pytest.raises(InputError):
        compiled(row)
    alone = torchtrt.compile(model, [row], min_block_size=1)
    torch.testing.assert_close(alone(row), model(row))


class Selecting(nn.Module):
    """A branch for one row, beside an op that refuses two."""

    def forward(self, x):
        """The third row, unless there is one only."""
        return x * 2 if x.shape[0] == 1 else x.select(0, 2)


def test_a_size_of_another_branch_is_not_said_to_be_refused():
    """Although an op of this branch would refuse it, like the size next to those that are compiled."""
    compiled, text = compiled_with_warning(Selecting(), [rows(1, 4, 8)])

    (row,) = compiled.report.narrowed
    assert (3, 8) == row.compiled
    assert not row.is_refused
    assert "in forward" in row.model_line
    assert "differently" in text


@pytest.mark.parametrize(
    ("x", "y", "narrowed"),
    [
        (rows(1, 3, 8), rows(2, 3, 6), {"x": "y"}),
        (rows(2, 3, 6), rows(1, 3, 8), {"y": "x"}),
        (rows(1, 3, 6), rows(2, 3, 8), {"x": "y", "y": "x"}),
        (
            torchtrt.Input(ranges=[((2, 4), (2, 4), (3, 4)), ((5, 4), (6, 4), (7, 4))]),
            torchtrt.Input(ranges=[((2, 4), (2, 4), (3, 4)), ((8, 4), (8, 4), (9, 4))]),
            {"x": "y", "y": "x"},
        ),
    ],
    ids=["first", "second", "both", "ranges"],
)
def test_a_size_in_common_names_the_input_with_another_range(x, y, narrowed):
    """The model's code has nothing to do with it."""
    compiled, text = compiled_with_warning(Product(), [x, y])

    others = {row.input: row.depends_on for row in compiled.report.narrowed}
    assert others == {name: f"dimension 0 of input {other!r}" for name, other in narrowed.items()}
    assert "where you asked for other sizes" in text
    assert "differently" not in text


def test_more_sizes_of_the_other_input_as_well_are_compiled():
    """As the warning advises."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", SizeWarning)
        compiled = torchtrt.compile(
            Product().eval(), [rows(1, 3, 8), rows(1, 3, 8)], min_block_size=1
        )

    x = torch.rand(8, 4)
    torch.testing.assert_close(compiled(x, x), x.mT @ x)


class Either(nn.Module):
    """A check of one of two sizes."""

    def forward(self, x):
        """Many rows, or several columns."""
        assert x.shape[0] >= 4 or x.shape[1] > 1
        return x + 1


class Among(nn.Module):
    """A check of a size that may be one of several numbers."""

    def forward(self, x):
        """Raises for few rows of one column."""
        if x.shape[0] < 4 and x.shape[1] < 2:
            raise ValueError
        return x + 1


@pytest.mark.parametrize("model", [Either, Among])
def test_a_part_of_a_check_does_not_refuse_what_another_part_takes(model):
    """The guard is on the first part alone."""
    compiled, text = compiled_with_warning(model(), [rows(1, 6, 9)])

    (row,) = compiled.report.narrowed
    assert (4, 9) == row.compiled
    assert not row.is_refused
    assert "differently" in text
    torch.testing.assert_close(model()(torch.zeros(1, 4)), torch.ones(1, 4))


@pytest.mark.parametrize(
    ("check", "decides"),
    [
        ("assert n > 3 and m > 1", True),
        ("assert n > 3 or m > 1", False),
        ("assert not (n > 3 or m > 1)", True),
        ("assert 3 < n < 9", True),
        ("assert n in (4, 8)", False),
        ("assert n not in (4, 8)", True),
        ("assert all(size % 2 == 0 for size in x.shape)", True),
        ("assert any(size % 2 == 0 for size in x.shape)", False),
        ("assert n > 3 if m else n > 4", False),
        ("if n < 4 or m < 2: raise ValueError", True),
        ("if n < 4 and m < 2: raise ValueError", False),
        ("if 3 < n < 9: raise ValueError", False),
        ("torch._check(n > 3 and m > 1)", True),
        ("torch._check(n > 3 or m > 1)", False),
        ("if n < 4: print(n)", False),
    ],
)
def test_a_line_is_a_check_if_each_part_of_its_condition_decides(tmp_path, check, decides):
    """A size that a part of ``or`` refuses is taken by another one."""
    path = tmp_path / "model.py"
    path.write_text(f"{check}\n")
    assert is_check(f'File "{path}", line 1, in forward') is decides


class Joint(nn.Module):
    """A check of two sizes together."""

    def forward(self, x, y):
        """More rows of the second input."""
        assert y.shape[0] > x.shape[0]
        return x + 1, y + 1


def test_a_size_of_1_beside_another_one_is_no_reason_to_leave_sizes_out():
    """PyTorch takes the first size for 2 or more, and concludes that the second one is 3 or more."""
    compiled, _ = compiled_with_warning(Joint(), [rows(1, 4, 4), rows(1, 5, 7)])

    (row,) = compiled.report.narrowed
    assert (2, 7) == row.compiled
    assert row.is_refused
    results = compiled(torch.zeros(1, 4), torch.zeros(2, 4))
    assert all(map(torch.equal, results, (torch.ones(1, 4), torch.ones(2, 4))))


class Selected(nn.Module):
    """Two ops: one fails for few rows, and one for few columns."""

    def forward(self, x):
        """Counts, and the last column but two."""
        return torch.arange(x.shape[0] + x.shape[1] - 5), x.select(1, x.shape[1] - 3)


class Chosen(nn.Module):
    """A branch that takes any number of columns, and one that has five of them."""

    def forward(self, x):
        """Five columns, or as many as there are."""
        return torch.cond(x.sum() > 9, lambda x: x[:, -5:].sum(0), lambda x: x.amax(0), (x,))


class Triangular(nn.Module):
    """An op without a rule for its shape, and a size that is 1 for the optimal number of rows."""

    def forward(self, x):
        """Indices, and the sum."""
        return torch.triu_indices(2, x.shape[0] // 4), x + 1


@pytest.mark.parametrize(
    ("model", "sizes", "taken"),
    [
        (Triangular, ((3, 2), (7, 2), (9, 2)), (9, 2)),
        (Selected, ((1, 2), (1, 8), (5, 11)), (5, 2)),
        (Chosen, ((2, 1), (5, 9), (6, 9)), (2, 3)),
    ],
)
def test_sizes_that_the_model_takes_in_some_call_are_not_said_to_be_refused(model, sizes, taken):
    """With other sizes beside them, or where it runs the other branch."""
    names = ("min_shape", "opt_shape", "max_shape")
    declared = torchtrt.Input(**dict(zip(names, sizes, strict=True)))
    compiled, text = compiled_with_warning(model(), [declared])

    assert not any(row.is_refused for row in compiled.report.narrowed)
    assert "fail in PyTorch" not in text
    model()(torch.zeros(taken))


class Parts(nn.Module):
    """The last part of four is empty for two rows."""

    def forward(self, x):
        """Twice the part."""
        return x.tensor_split(4, 0)[-1] * 2


def test_a_program_for_no_size_names_all_of_its_conditions():
    """They contradict each other, although some of the sizes satisfy each."""
    with pytest.raises(InputError, match=r"where .* and .*, and you asked for none of them"):
        torchtrt.compile(Parts().eval(), [rows(1, 2, 9)], min_block_size=1)
