"""Sizes of 0 and 1, which torch.export takes no size for: a program is compiled for them where it is the model's."""

import dataclasses
import itertools
import re
import warnings

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import InputError
from torchtrt_reference import VERSIONS


def rows(minimum, columns=3):
    """Returns an input with rows that vary in number."""
    shapes = ((minimum, columns), (4, columns), (16, columns))
    return torchtrt.Input(min_shape=shapes[0], opt_shape=shapes[1], max_shape=shapes[2])


def doubled_at_first(x):
    """Writes to two rows, or to the only one."""
    result = x * 1
    result[:2].mul_(2)
    return result


OTHERS = {
    "squeeze": lambda x: (x * 2).sum(1).squeeze(),
    "squeeze-dim": lambda x: (x * 2).squeeze(0),
    "branch": lambda x: x * 2 if x.shape[0] == 1 else x * 3,
    "branch-on-product": lambda x: x * 2 if x.numel() == 3 else x * 3,
    "first-rows": lambda x: x[:2] + 1,
    "last-rows": lambda x: x[-2:] + 1,
    "second-row": lambda x: x[1:2] + 1,
    "write": doubled_at_first,
    "write-to-a-copy": lambda x: ((y := x * 2), y.T.contiguous().add_(1), y)[-1],
    "constant": lambda x: x * (torch.ones(3) if x.shape[0] == 1 else torch.zeros(3)),
    "branch-inside": lambda x: torch.cond(
        x.sum() > 0, lambda y: y * (2 if y.shape[0] == 1 else 3), lambda y: y - 1, (x,)
    ),
    "argument": lambda x: x.cumsum(0 if x.shape[0] == 1 else 1),
}
"""Models that are another program for one row than for several."""
SAME = {
    "product": lambda x: x.relu() @ x.T,
    "number": lambda x: x * (1 / x.shape[0]),
    "tensor-of-a-size": lambda x: x.sum() / torch.tensor(x.shape[0]),
    "whole-slice": lambda x: torch.arange(x.shape[0])[:, None] + x,
    "first-positions": lambda x: torch.arange(16).float()[: x.shape[0], None] + x,
    "contiguous": lambda x: x.T.contiguous().view(-1) + 1,
    "mask": lambda x: torch.ones(x.shape[0], x.shape[0]).tril() @ x,
    "first-row": lambda x: x[0] + x,
    "write": lambda x: (x * 1).add_(1),
    "write-and-whole-slice": lambda x: (x * 1).add_(torch.arange(x.shape[0])[:, None]),
    "write-and-contiguous": lambda x: (x * 1).add_(1) * x.T.contiguous().T,
    "write-before-a-view": lambda x: (x * 1).add_(1).expand(2, -1, -1).reshape(-1, 3) + x[:1],
    "contiguous-inside-a-function": lambda x: nn.functional.multi_head_attention_forward(
        *[x[None, :, :2]] * 3,
        2,
        1,
        torch.ones(6, 2),
        torch.ones(6),
        torch.ones(1, 1, 2),
        torch.ones(1, 1, 2),
        False,
        0.0,
        torch.ones(2, 2),
        None,
        training=False,
    )[0],
    "chosen": lambda x: x[x > 0.5] + 1,
    "branch-inside": lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)),
}
"""Models that are one program, although exporting spells some of them in another way where a size is known."""


def assert_same_at(compiled, model, *sizes):
    """Checks calls with these numbers of rows against eager PyTorch."""
    for size in sizes:
        x = torch.rand(size, 3)
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("function", OTHERS.values(), ids=OTHERS)
def test_a_size_of_1_for_which_the_model_is_another_program_is_not_compiled(version, function):
    """A warning and the report say so, and a call with it is refused."""
    model = Function(function).eval()
    with (
        torchtrt.use_tensorrt(f"reference@{version}"),
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always")
        compiled = torchtrt.compile(model, [rows(1)], min_block_size=1)

    assert any("You asked for 1 to 16 in dimension 0" in str(warning.message) for warning in said)
    assert [(1, 16), (2, 16)] == [
        size for warning in compiled.report.narrowed for size in (warning.asked, warning.compiled)
    ]
    assert re.search("in (forward|<lambda>)", compiled.report.narrowed[0].model_line)
    assert_same_at(compiled, model, 2, 5)
    with pytest.raises(InputError, match="2 to 16"):
        compiled(torch.rand(1, 3))


@pytest.mark.parametrize("function", SAME.values(), ids=SAME)
def test_a_size_of_1_for_which_the_model_is_one_program_is_compiled(function):
    """Nothing is narrowed, and the results are eager PyTorch's."""
    model = Function(function).eval()
    compiled = torchtrt.compile(model, [rows(1)], min_block_size=1)

    assert [] == compiled.report.narrowed
    assert_same_at(compiled, model, 1, 2, 5)


def test_full_compilation_is_of_a_size_of_1_too():
    """Otherwise it is an error."""
    with pytest.raises(InputError, match="You asked for 1 to 16"):
        torchtrt.compile(
            Function(OTHERS["branch"]).eval(), [rows(1)], require_full_compilation=True
        )


def test_a_size_of_0_is_compared_too():
    """A branch on it excludes it alone."""
    model = Function(lambda x: x * 2 if x.shape[0] == 0 else x.sum(0)).eval()
    with pytest.warns(UserWarning, match="You asked for 0 to 16"):
        compiled = torchtrt.compile(model, [rows(0)], min_block_size=1)

    assert_same_at(compiled, model, 1, 2)
    with pytest.raises(InputError):
        compiled(torch.rand(0, 3))
    plain = Function(lambda x: x * 2).eval()
    assert_same_at(torchtrt.compile(plain, [rows(0)], min_block_size=1), plain, 0, 1, 2)


def test_a_size_of_0_by_which_the_program_divides_is_left_out():
    """The length of each group of rows is a quotient that has no value for 0 rows."""

    def padded(x):
        y = nn.functional.pad(x, (0, 0, 0, -x.shape[0] % 4))
        return y.view(y.shape[0] // 4, -1, 3).sum(1)

    with pytest.warns(UserWarning, match="You asked for 0 to 4"):
        compiled = torchtrt.compile(
            Function(padded).eval(),
            [torchtrt.Input(min_shape=(0, 3), opt_shape=(4, 3), max_shape=(4, 3))],
            min_block_size=1,
        )

    assert_same_at(compiled, padded, 2, 4)


def test_two_sizes_of_1_are_compared_together():
    """A branch on both is in the program of neither."""

    def branch(x, y):
        return x.sum() * 2 if x.shape[0] * y.shape[0] == 1 else x.sum() + y.sum()

    with pytest.warns(UserWarning, match="You asked for 1 to 16"):
        compiled = torchtrt.compile(Function(branch).eval(), [rows(1), rows(1)], min_block_size=1)

    (row,) = compiled.report.narrowed
    assert "inputs_0.shape[0]*inputs_1.shape[0] != 1" == row.condition
    with pytest.raises(InputError, match="under the condition"):
        compiled(torch.rand(1, 3), torch.rand(1, 3))
    x, y = torch.rand(1, 3), torch.rand(2, 3)
    torch.testing.assert_close(compiled(x, y), branch(x, y))


def one_line(x):
    """Asks one question about two sizes, which is only true beside one row."""
    return x * 2 if (x.shape[1] - 1) % 4 == x.shape[0] + 2 else x * 3


def test_a_branch_that_only_one_row_can_take_is_a_condition():
    """One row is accepted beside the numbers of columns for which the answer is the same."""
    sizes = torchtrt.Input(min_shape=(1, 5), opt_shape=(3, 7), max_shape=(3, 9))
    with pytest.warns(UserWarning, match=r"in one_line.*\.shape\[1\] - 1\) % 4 != "):
        compiled = torchtrt.compile(Function(one_line).eval(), [sizes], min_block_size=1)

    for rows_, columns in itertools.product((1, 2, 3), range(5, 10)):
        x = torch.rand(rows_, columns)
        if (rows_, columns) == (1, 8):
            with pytest.raises(InputError, match="under the condition"):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), one_line(x))


def test_a_question_behind_a_question_about_one_row_is_never_reached():
    """Exporting never asks the second one, so one row is left out beside any number of columns."""

    def nested(x):
        return x * 2 if x.shape[0] == 1 and x.shape[1] == 8 else x * 3

    sizes = torchtrt.Input(min_shape=(1, 5), opt_shape=(3, 7), max_shape=(3, 9))
    with pytest.warns(UserWarning, match="Compiled for 2 to 3:"):
        compiled = torchtrt.compile(Function(nested).eval(), [sizes], min_block_size=1)

    with pytest.raises(InputError, match="2 to 3"):
        compiled(torch.rand(1, 7))


@dataclasses.dataclass
class Columns:
    """Inputs in a class that PyTorch takes apart."""

    values: torch.Tensor


torch.export.register_dataclass(Columns, serialized_type_name="small_sizes.Columns")


def test_a_branch_on_inputs_in_a_class_is_a_condition():
    """PyTorch takes the dynamic sizes of such a class as a list."""

    class Branch(nn.Module):
        def forward(self, columns):
            return one_line(columns.values)

    sizes = torch.export.Dim("rows", min=1, max=4), torch.export.Dim("columns", min=5, max=9)
    with pytest.warns(UserWarning, match=r"columns_values\.shape\[1\] - 1\) % 4 != "):
        torchtrt.compile(
            Branch().eval(),
            [Columns(torch.rand(3, 7))],
            dynamic_shapes={"columns": [dict(enumerate(sizes))]},
            min_block_size=1,
        )


def test_a_size_of_0_that_the_model_asks_about_is_left_out():
    """Beside all other sizes, although the model asks more."""

    def branch(x):
        return x.sum(0) * (2 if x.shape[0] == 0 and x.shape[1] > 6 else 3)

    sizes = torchtrt.Input(min_shape=(0, 2), opt_shape=(3, 5), max_shape=(4, 9))
    with pytest.warns(UserWarning, match=r"in branch.*Compiled for 1 to 4"):
        compiled = torchtrt.compile(Function(branch).eval(), [sizes], min_block_size=1)

    assert_same_at(compiled, branch, 1, 2)
    plain = Function(lambda x: x.sum(0) * 3).eval()
    compiled = torchtrt.compile(plain, [sizes], min_block_size=1)
    assert_same_at(compiled, plain, 0, 1)


def test_programs_are_compared_at_more_than_the_usual_sizes():
    """With six columns, the two slices are equal."""

    def branch(x):
        return x[:, :5] * 2 if x.shape[0] == 1 else x[:, : x.shape[1] - 1] * 2

    sizes = torchtrt.Input(min_shape=(1, 6), opt_shape=(3, 6), max_shape=(4, 9))
    with pytest.warns(UserWarning, match="Compiled for 2 to 4"):
        torchtrt.compile(Function(branch).eval(), [sizes], min_block_size=1)


@pytest.mark.parametrize("point", [*itertools.product((0, 1), (0, 1))])
def test_two_small_sizes_are_compared_together(point):
    """Each of the four combinations may be another program than those of either size."""

    def branch(x):
        return x.sum() * (2 if tuple(x.shape) == point else 3)

    sizes = torchtrt.Input(min_shape=(0, 0), opt_shape=(3, 3), max_shape=(4, 4))
    with pytest.warns(UserWarning, match="Compiled for ([12] to 4|0 to 4, where .* != 1)"):
        compiled = torchtrt.compile(Function(branch).eval(), [sizes], min_block_size=1)

    with pytest.raises(InputError):
        compiled(torch.rand(point))


def test_sizes_that_the_guards_refuse_beside_a_size_of_1_do_not_exclude_it():
    """With the optimal number of columns, a call with one row is refused; with fewer it is accepted."""
    model = Function(lambda x: x * 2 if x.shape[0] > x.shape[1] // 3 else x * 3).eval()
    sizes = torchtrt.Input(min_shape=(1, 2), opt_shape=(6, 4), max_shape=(8, 5))
    with pytest.warns(UserWarning, match="Compiled for 1 to 8, where"):
        compiled = torchtrt.compile(model, [sizes], min_block_size=1)

    x = torch.rand(1, 2)
    torch.testing.assert_close(compiled(x), model(x))
    with pytest.raises(InputError, match="under the condition"):
        compiled(torch.rand(1, 4))


def test_sizes_that_the_model_takes_only_together_are_1_together():
    """The model refuses one row of one input beside several of the other, so no call has it."""
    weight = torch.rand(6, 2)

    def function(x, y):
        return torch.cat([x, y.flatten().reshape(x.shape[0], -1)], 1) @ weight

    model = Function(function).eval()
    compiled = torchtrt.compile(
        model, [rows(1), rows(1)], min_block_size=1, require_full_compilation=True
    )

    for count in (1, 2, 5):
        x, y = torch.rand(count, 3), torch.rand(count, 3)
        torch.testing.assert_close(compiled(x, y), model(x, y))
    with pytest.raises(InputError):
        compiled(torch.rand(4, 3), torch.rand(1, 3))
    with pytest.warns(UserWarning, match="You asked for 1 to 16"):
        torchtrt.compile(
            Function(lambda x, y: function(x, y) * (2 if x.shape[0] == 1 else 3)).eval(),
            [rows(1), rows(1)],
            min_block_size=1,
        )


@pytest.mark.parametrize("name", ["squeeze", "first-rows", "last-rows", "second-row", "write"])
def test_an_exported_program_is_compared_with_itself(name):
    """Its graph does something else with one row; a branch on a size is none of its any more."""
    model = Function(OTHERS[name]).eval()
    rows_of = torch.export.Dim("rows", min=1, max=16)
    exported = torch.export.export(
        model, (torch.rand(4, 3),), dynamic_shapes={"inputs": ({0: rows_of},)}, strict=False
    )
    with pytest.warns(UserWarning, match="You asked for 1 to 16"):
        compiled = torchtrt.compile(exported, min_block_size=1)

    assert_same_at(compiled, model, 2, 5)
    with pytest.raises(InputError, match="2 to 16"):
        compiled(torch.rand(1, 3))


@pytest.mark.parametrize("name", sorted(SAME))
def test_an_exported_program_is_compiled_for_one_row(name):
    """Where its graph is right for it."""
    model = Function(SAME[name]).eval()
    rows_of = torch.export.Dim("rows", min=1, max=16)
    exported = torch.export.export(
        model, (torch.rand(4, 3),), dynamic_shapes={"inputs": ({0: rows_of},)}, strict=False
    )
    compiled = torchtrt.compile(exported, min_block_size=1)

    assert [] == compiled.report.narrowed
    assert_same_at(compiled, model, 1, 2, 5)


def test_a_model_that_takes_no_single_row_is_not_compiled_for_one():
    """Its own error is none of compiling: statistics of one row."""
    model = Function(lambda x: nn.functional.batch_norm(x, None, None, training=True)).eval()
    with pytest.warns(UserWarning, match="You asked for 1 to 16"):
        compiled = torchtrt.compile(model, [rows(1)], min_block_size=1)

    with pytest.raises(InputError, match="2 to 16"):
        compiled(torch.rand(1, 3))


def test_of_several_ranges_those_of_other_programs_are_left_out():
    """And where none remains, that is an error."""
    shapes = [((1, 3), (1, 3), (1, 3)), ((2, 3), (4, 3), (16, 3))]
    model = Function(OTHERS["branch"]).eval()
    with pytest.warns(UserWarning, match="You asked for 1 to 16"):
        compiled = torchtrt.compile(model, [torchtrt.Input(ranges=shapes)], min_block_size=1)

    assert_same_at(compiled, model, 2, 5)
    with pytest.raises(InputError):
        compiled(torch.rand(1, 3))


def test_a_program_that_made_constants_in_another_default_dtype():
    """What PyTorch's default dtype was at the export counts, not what it is now."""
    model = Function(lambda x: x.relu() + torch.linspace(0, 1, 3)[0])
    sizes = (({0: torch.export.Dim("rows", min=1)},),)
    torch.set_default_dtype(torch.float16)
    try:
        program = torch.export.export(model, (torch.ones(4, 3),), dynamic_shapes=sizes)
    finally:
        torch.set_default_dtype(torch.float32)

    inputs = torchtrt.Input(
        min_shape=(1, 3), opt_shape=(4, 3), max_shape=(16, 3), dtype=torch.float16
    )
    compiled = torchtrt.compile(program, [inputs], min_block_size=1)

    assert compiled(torch.ones(1, 3).half()).dtype is torch.float16


def test_a_size_that_the_model_refuses_prints_no_traceback(caplog):
    """PyTorch logs the error of its trial, which the warning of the compilation replaces."""

    def product(x):
        return x @ (torch.ones(3, 3) if x.shape[0] > 1 else torch.ones(4, 4))

    with pytest.warns(UserWarning, match="You asked for 1 to 16"):
        torchtrt.compile(Function(product).eval(), [rows(1)], min_block_size=1)

    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("how", ["input", "program", "derived"])
def test_one_row_or_two_are_two_sizes(how):
    """PyTorch takes the size of such a program for 2 and no other; a decomposition would return as many rows."""
    model = Function(lambda x: torch.eye(x.shape[0]) + x.sum()).eval()
    sizes = torch.export.Dim("n", min=1, max=2)
    example, step = torch.rand(2), 1
    if how == "input":
        rows = torchtrt.Input(min_shape=(1,), opt_shape=(1,), max_shape=(2,))
        compiled = torchtrt.compile(model, [rows], min_block_size=1)
    elif how == "program":
        program = torch.export.export(model, (example,), dynamic_shapes=(({0: sizes},),))
        compiled = torchtrt.compile(program, min_block_size=1)
    else:
        step = 2
        shapes = (({0: 2 * sizes},),)
        compiled = torchtrt.compile(model, [torch.rand(4)], dynamic_shapes=shapes, min_block_size=1)

    for count in (1, 2):
        x = torch.rand(count * step)
        torch.testing.assert_close(compiled(x), model(x))


def test_a_write_through_windows_is_right_for_one_row_or_two():
    """PyTorch's own rewriting needs the number of rows, and to it one row or two are always two."""

    class Windows(nn.Module):
        def forward(self, x):
            windows = x.unfold(0, 1, 1)
            turned = windows.transpose(0, -1)
            windows[0].add_(2)
            return torch.addcmul(turned, x, x)

    some = torchtrt.Input(min_shape=(1,), opt_shape=(2,), max_shape=(2,))
    model = Windows().eval()
    compiled = torchtrt.compile(model, [some], min_block_size=1)

    for count in (1, 2):
        x = torch.rand(count)
        written = x.clone()
        torch.testing.assert_close(compiled(x), model(written))
        torch.testing.assert_close(x, written)


@pytest.mark.parametrize("is_program", [False, True], ids=["model", "program"])
def test_a_size_of_1_for_which_a_copy_becomes_a_view_is_not_compiled(is_program):
    """``reshape`` copies several of these rows, and a write to the copy does not reach the input."""
    model = Function(lambda x: (x.reshape(-1).neg_(), x * 1)[1]).eval()
    shapes = (({0: torch.export.Dim("rows", min=1, max=16)},),)
    inputs = (torch.rand(3, 4).t(),)
    if is_program:
        model, shapes = torch.export.export(model, inputs, dynamic_shapes=shapes), None

    with pytest.warns(UserWarning, match="You asked for 1 to 16"):
        compiled = torchtrt.compile(model, inputs, dynamic_shapes=shapes, min_block_size=1)

    x = torch.rand(3, 5).t()
    torch.testing.assert_close(compiled(x), x)
    with pytest.raises(InputError, match="2 to 16"):
        compiled(torch.rand(3, 1).t())


@pytest.mark.parametrize("least", [0, 1])
def test_a_size_of_at_most_two_stays_symbolic_where_pytorch_compares_it(least):
    """PyTorch retraces a program with such a write, and asserts the range first: a size up to 2 would become 2."""

    class Written(nn.Module):
        def forward(self, x, y):
            z = x * 2
            z[:, 0].add_(y[:, 0])
            return z.relu() + y

    model = Written().eval()
    rows = torchtrt.Input(min_shape=(least, 3), opt_shape=(1, 3), max_shape=(2, 3))
    compiled = torchtrt.compile(model, [rows, rows], min_block_size=1)

    assert not compiled.report.narrowed
    for count in range(least, 3):
        x, y = torch.rand(2, count, 3)
        torch.testing.assert_close(compiled(x, y), model(x, y))
    with pytest.raises(InputError, match=f"is 3, but the model was compiled for {least} to 2"):
        compiled(*torch.rand(2, 3, 3))


def test_two_sizes_of_one_or_two_are_not_taken_for_equal():
    """In a program from elsewhere, PyTorch knows both of them to be 2."""

    class Copied(nn.Module):
        def forward(self, x, y):
            return torch.empty_like(y).copy_(x)

    sizes = torch.export.Dim("n", min=1, max=2), torch.export.Dim("m", min=1, max=2)
    exported = torch.export.export(
        Copied().eval(),
        (torch.rand(2), torch.rand(2, 2)),
        dynamic_shapes=({0: sizes[0]}, {0: sizes[0], 1: sizes[1]}),
    )
    compiled = torchtrt.compile(exported, min_block_size=1)

    with pytest.raises(InputError, match="is 1, but the model was compiled for 2"):
        compiled(torch.rand(1), torch.rand(1, 2))
