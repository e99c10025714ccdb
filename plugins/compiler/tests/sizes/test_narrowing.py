"""Sizes that a model takes in a smaller range than was requested: reported when it is compiled."""

import inspect
import json
import warnings

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import InputError, SizeWarning


class SlicedFromTheEnd(nn.Module):
    """PyTorch exports one program for at least eight elements, another below."""

    def forward(self, x):
        """The rows without the first and the last ones, every other."""
        return x[:, -8:-2:2] + 1


class Guarded(nn.Module):
    """A check of a size."""

    def forward(self, x):
        """At most 100 rows."""
        if x.size(0) > 100:
            raise ValueError
        return x + 1


class Sum(nn.Module):
    """Two inputs whose sizes must be equal."""

    def forward(self, x, y):
        """The sum."""
        return x + y


class Half(nn.Module):
    """Another program for four and five rows."""

    def forward(self, x):
        """The factor depends on half the rows."""
        return x * 2 if x.shape[0] // 2 == 2 else x * 3


class Product(nn.Module):
    """Another program for tensors of 36 elements."""

    def forward(self, x):
        """The factor depends on the number of elements."""
        return x * 2 if x.shape[0] * x.shape[1] == 36 else x * 3


class Nested(nn.Module):
    """Another program for a size that takes more than a line to write."""

    def forward(self, x):
        """The factor depends on the number of windows of windows."""
        size = x.shape[0]
        for _ in range(5):
            size = (size + size % 3 + 7) // 2
        return x * 2 if size == 7 else x * 3


def rows(minimum, maximum):
    """Returns an input with rows of two that vary in number."""
    return torchtrt.Input(min_shape=(minimum, 2), opt_shape=(8, 2), max_shape=(maximum, 2))


CASES = [
    pytest.param(
        SlicedFromTheEnd,
        [torchtrt.Input(min_shape=(3, 2), opt_shape=(3, 9), max_shape=(3, 10))],
        ("x", 1, (2, 10), (8, 10)),
        id="slice",
    ),
    pytest.param(Guarded, [rows(1, 200)], ("x", 0, (1, 200), (1, 100)), id="guard"),
    pytest.param(Sum, [rows(1, 10), rows(3, 8)], ("x", 0, (1, 10), (3, 8)), id="equal"),
]


@pytest.mark.parametrize(("model", "inputs", "expected"), CASES)
def test_a_narrowed_size_is_a_warning_and_in_the_report(model, inputs, expected):
    """It has the input, the dimension, the requested range and the compiled one."""
    with pytest.warns(UserWarning, match="You asked for") as caught:
        compiled = torchtrt.compile(model().eval(), inputs, min_block_size=1)

    (narrowed,) = compiled.report.narrowed
    assert (narrowed.input, narrowed.dim, narrowed.asked, narrowed.compiled) == expected
    assert caught[0].filename == __file__
    assert json.loads(json.dumps(compiled.report.to_json()))["narrowed"][0]["dim"] == expected[1]


@pytest.mark.parametrize(("model", "inputs", "expected"), CASES)
def test_full_compilation_is_of_all_sizes_asked_for(model, inputs, expected):
    """Otherwise it is an error, and the range that it names is accepted."""
    with pytest.raises(InputError, match=f"Compiled for {expected[3][0]} to {expected[3][1]}"):
        torchtrt.compile(model().eval(), inputs, min_block_size=1, require_full_compilation=True)


def test_the_line_of_the_model_is_told():
    """A check of a size that the model makes itself."""
    with pytest.raises(InputError, match=r"test_narrowing.py\", line \d+, in forward"):
        torchtrt.compile(Guarded().eval(), [rows(1, 200)], require_full_compilation=True)


def test_what_is_as_asked_for_is_not_mentioned():
    """A range that starts at 1, and the range that the message names."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for inputs in ([rows(1, 100)], [rows(2, 50)]):
            compiled = torchtrt.compile(
                Guarded().eval(), inputs, min_block_size=1, require_full_compilation=True
            )
            assert not compiled.report.narrowed
            x = torch.rand(inputs[0].max_shape)
            assert torch.equal(compiled(x), x + 1)


def compiled_with_warning(model, inputs):
    """Returns the compiled model, and its only row of narrowed sizes, which is the warning."""
    with pytest.warns(UserWarning, match="You asked for") as caught:
        compiled = torchtrt.compile(model.eval(), inputs, min_block_size=1)
    (row,) = compiled.report.narrowed
    assert str(row) == str(caught[0].message)
    with pytest.raises(InputError, match="You asked for"):
        torchtrt.compile(model, inputs, min_block_size=1, require_full_compilation=True)
    return compiled, row


def ranged(minimum, optimal, maximum):
    """Returns an input with this range of rows of two."""
    return torchtrt.Input(min_shape=(minimum, 2), opt_shape=(optimal, 2), max_shape=(maximum, 2))


def assert_only_calls(compiled, model, accepted, declared):
    """Checks that calls with these numbers of rows return what the model does, and that others are refused."""
    for count in declared:
        x = torch.rand(count, 2)
        if count in accepted:
            torch.testing.assert_close(compiled(x), model(x))
        else:
            with pytest.raises(InputError, match="compile the model a second time"):
                compiled(x)


def test_a_size_that_is_another_one_inside_the_range_is_excluded():
    """The range stays as it was, and the call names the sizes that remain."""
    compiled, row = compiled_with_warning(Half(), [ranged(2, 7, 8)])

    assert (2, 8) == row.compiled
    assert "x.shape[0] // 2 != 2" == row.condition
    assert "test_narrowing.py" in row.model_line
    assert_only_calls(compiled, Half(), {2, 3, 6, 7, 8}, range(2, 9))
    with pytest.raises(InputError, match=r"x\.shape\[0\] is 5\. x\.shape\[0\] may be 3 or 6\."):
        compiled(torch.rand(5, 2))


def test_engines_are_for_the_sizes_that_can_be_called():
    """A condition leaves two sizes of the range."""
    compiled, row = compiled_with_warning(Half(), [ranged(2, 5, 8)])

    assert ((2, 8), (4, 5)) == (row.asked, row.compiled)
    assert [(4, 5, 5)] == [tuple(*profile.values()) for profile in compiled.checks.profiles]
    assert_only_calls(compiled, Half(), {4, 5}, range(2, 9))
    with pytest.raises(
        InputError,
        match=r"for 4 to 5\. You asked for 2 to 8, but .* because of File .*test_narrowing",
    ):
        compiled(torch.rand(6, 2))


def test_several_ranges_may_leave_the_excluded_sizes_out():
    """The condition names them."""
    parts = [((2, 2), (3, 2), (3, 2)), ((6, 2), (7, 2), (8, 2))]
    compiled = torchtrt.compile(
        Half().eval(),
        [torchtrt.Input(ranges=parts)],
        min_block_size=1,
        require_full_compilation=True,
    )

    assert [] == compiled.report.narrowed


def test_a_condition_on_several_sizes_is_a_row():
    """Each of the sizes is accepted with others."""
    sizes = torchtrt.Input(min_shape=(2, 2), opt_shape=(3, 5), max_shape=(9, 9))
    compiled, row = compiled_with_warning(Product(), [sizes])

    assert ((2, 9), (2, 9)) == (row.asked, row.compiled)
    assert "x.shape[0]*x.shape[1] != 36" == row.condition
    assert torch.equal(torch.full((4, 6), 3.0), compiled(torch.ones(4, 6)))
    with pytest.raises(InputError, match="compile the model a second time"):
        compiled(torch.ones(4, 9))


def test_a_condition_between_the_parts_of_several_ranges_is_a_row():
    """None of the ranges that remain has the sizes."""
    parts = [((2, 2), (3, 2), (4, 2)), ((5, 2), (7, 2), (8, 2))]
    _, row = compiled_with_warning(Half(), [torchtrt.Input(ranges=parts)])

    assert (2, 8) == row.compiled


def paired(x, y):
    """Returns pairs of elements, by a program that depends on two other sizes."""
    columns, count = x.shape[1] % 6, y.shape[0]
    return (x * (2 if count != columns and count < x.shape[0] else 3)).reshape(-1, 2)


def paired_rows(x, y):
    """The same, for equal sizes."""
    return (x * (2 if x.shape[1] == y.shape[0] else 3)).reshape(-1, 2)


@pytest.mark.parametrize(
    ("function", "condition"),
    [(paired, "y.shape[0] != x.shape[1] % 6"), (paired_rows, "x.shape[1] == y.shape[0]")],
)
def test_a_condition_is_a_row_if_the_model_refuses_a_part_of_what_it_excludes(function, condition):
    """With the optimal number of rows, it refuses each odd number of columns."""
    sizes = [
        torchtrt.Input(min_shape=(2, 3), opt_shape=(5, 6), max_shape=(6, 7)),
        torchtrt.Input(min_shape=(3,), opt_shape=(6,), max_shape=(10,)),
    ]
    with pytest.warns(UserWarning, match="You asked for"):
        compiled = torchtrt.compile(Dependent(function).eval(), sizes, min_block_size=1)

    assert condition in [row.condition for row in compiled.report.narrowed]


class Dependent(nn.Module):
    """Two sizes, of one input or of two, that a function compares."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y=None):
        """What the function returns."""
        return self.function(x, y)


def compared(x, y):
    """Returns another program for unequal numbers of rows."""
    return x * 2 if x.shape[0] == y.shape[0] else x * 3


def swapped(x, _):
    """Returns a view whose sizes PyTorch compares with the input's."""
    return x.view(x.shape[1], x.shape[0]) * 2


def cut(x, _):
    """Returns all columns of a square, which PyTorch asks."""
    return x[:, : x.shape[0]] * 2


SQUARE = torchtrt.Input(min_shape=(2, 2), opt_shape=(4, 4), max_shape=(8, 8))


def checked(x, y):
    """Returns a sum over equally many rows."""
    assert x.shape[0] == y.shape[0]
    return x + y.sum()


@pytest.mark.parametrize(
    ("function", "inputs", "condition"),
    [
        pytest.param(compared, [ranged(2, 4, 8)] * 2, "x.shape[0] == y.shape[0]", id="branch"),
        pytest.param(swapped, [SQUARE], None, id="view"),
        pytest.param(checked, [ranged(2, 4, 8)] * 2, None, id="assertion"),
        pytest.param(lambda x, y: x + y, [ranged(2, 4, 8)] * 2, None, id="sum"),
        pytest.param(cut, [SQUARE], "x.shape[0] <= x.shape[1]", id="slice"),
    ],
)
def test_sizes_that_became_equal_are_a_row_unless_the_model_refuses_others(
    function, inputs, condition
):
    """PyTorch has one symbol for both of them. A condition of an op is no row, although calls are checked for it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = torchtrt.compile(Dependent(function).eval(), inputs, min_block_size=1)

    assert ([condition] if condition else []) == [row.condition for row in compiled.report.narrowed]
    assert bool(condition) == any("You asked for" in str(warning.message) for warning in caught)


def test_sizes_that_the_model_refuses_between_others_are_not_mentioned():
    """Only the limits are, because they can be asked for."""
    groups = Dependent(lambda x, _: x.reshape(-1, 4, 2) + 1).eval()
    compiled = torchtrt.compile(
        groups, [ranged(8, 12, 16)], min_block_size=1, require_full_compilation=True
    )
    with pytest.raises(InputError, match=r"x\.shape\[0\] may be 8 or 12\."):
        compiled(torch.rand(10, 2))

    _, row = compiled_with_warning(groups, [ranged(7, 12, 18)])
    assert ((7, 18), (8, 16)) == (row.asked, row.compiled)


class Padded(nn.Module):
    """Pads rows to a multiple of four before they become groups of four."""

    def forward(self, x):
        """The groups' sums."""
        if x.shape[0] % 4:
            x = nn.functional.pad(x, (0, 0, 0, 4 - x.shape[0] % 4))
        return x.reshape(-1, 4, 2).sum(1)


def test_a_branch_of_the_model_is_a_row_though_an_op_behind_it_refuses_the_sizes():
    """The other branch takes these sizes."""
    compiled, row = compiled_with_warning(Padded(), [ranged(4, 8, 16)])

    assert "x.shape[0] % 4 == 0" == row.condition
    assert "Declare" not in str(row)
    assert_only_calls(compiled, Padded(), {4, 8, 12, 16}, range(4, 17))


class Area(nn.Module):
    """Another program where few rows are wide."""

    def forward(self, x):
        """The condition excludes some rows alone, and others with some columns."""
        return x * 2 if x.shape[1] * (x.shape[0] - 5) > x.shape[0] else x + 1


def test_a_condition_on_two_sizes_is_a_row_beside_the_range_that_it_narrows():
    """What it excludes within the range is not what it excludes outside."""
    sizes = torchtrt.Input(min_shape=(2, 2), opt_shape=(8, 14), max_shape=(17, 17))
    with pytest.warns(UserWarning, match="You asked for"):
        compiled = torchtrt.compile(Area().eval(), [sizes], min_block_size=1)

    narrowed = compiled.report.narrowed
    assert [(6, 17)] * 2 == [row.compiled for row in narrowed]
    assert ["", "x.shape[1]*(x.shape[0] - 5) > x.shape[0]"] == [row.condition for row in narrowed]


def test_a_long_condition_is_shortened_in_messages():
    """The report holds all of it."""
    compiled, row = compiled_with_warning(Nested(), [ranged(2, 30, 40)])

    assert len(row.condition) > 200
    assert row.condition not in str(row)
    assert " ... " in str(row)
    assert row.condition[-35:] in str(row)
    messages = []
    for count in range(2, 41):
        try:
            compiled(torch.rand(count, 2))
        except InputError as error:
            messages.append(str(error))
    assert messages
    assert max(len(message.replace(__file__, "")) for message in messages) < 450


class FixedProduct(nn.Module):
    """Takes six elements, in any number of rows."""

    def forward(self, x):
        """The number of results fixes a product of two sizes."""
        flat = x.flatten()
        return flat + flat.unbind()[-1]


def test_an_engine_is_built_for_sizes_whose_product_is_fixed():
    """The other sizes with this product make other shapes than the largest ones together."""
    sizes = torchtrt.Input(min_shape=(1, 1), opt_shape=(2, 3), max_shape=(3, 6))
    with pytest.warns(SizeWarning):
        compiled = torchtrt.compile(FixedProduct().eval(), [sizes], min_block_size=1)

    x = torch.rand(2, 3)
    torch.testing.assert_close(compiled(x), FixedProduct()(x))
    assert [((1, 3), (2, 2)), ((1, 6), (3, 3))] == [
        (row.asked, row.compiled) for row in compiled.report.narrowed
    ]
    with pytest.raises(InputError, match="You asked for 1 to 6"):
        compiled(torch.rand(2, 2))


class OtherDecides(nn.Module):
    """Subtracts few rows, and adds many."""

    def forward(self, x, y):
        """The second input decides."""
        return x.sum(0) + y.sum(0) if y.shape[0] > 6 else x.sum(0) - y.sum(0)


def test_a_range_that_is_left_out_has_the_line_that_decides_it():
    """Its sizes of the other inputs are left out with it."""
    x = torchtrt.Input(ranges=[((1, 3), (2, 3), (4, 3)), ((8, 3), (9, 3), (10, 3))])
    y = torchtrt.Input(ranges=[((10, 3), (12, 3), (14, 3)), ((1, 3), (2, 3), (3, 3))])
    with pytest.warns(SizeWarning):
        rows = torchtrt.compile(OtherDecides().eval(), [x, y], min_block_size=1).report.narrowed

    assert [((1, 10), (1, 4)), ((1, 14), (10, 14))] == [(row.asked, row.compiled) for row in rows]
    line = inspect.getsourcelines(OtherDecides.forward)[1] + 2
    assert all(f"line {line}, in forward" in row.model_line for row in rows)


AUTO = torch.export.Dim.AUTO
TWICE = 2 * torch.export.Dim("half", min=2, max=60)


class Nesting(nn.Module):
    """Takes its inputs in a dictionary and a list."""

    def forward(self, tensors, others=None, *, last=None):
        """At most 100 rows of the last one."""
        return Guarded()(last) + tensors["x"].sum() + others[0].sum()


@pytest.mark.parametrize(
    ("shape", "asked", "compiled"),
    [
        pytest.param({0: AUTO(min=1, max=200)}, (1, 200), (1, 100), id="hint"),
        pytest.param({0: AUTO(min=0, max=200)}, (1, 200), (1, 100), id="hint from 0"),
        pytest.param((AUTO(min=3, max=200), None), (3, 200), (3, 100), id="sequence"),
        pytest.param({0: TWICE}, (4, 120), (4, 100), id="derived"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_limits_of_dynamic_shapes_are_what_was_asked_for(shape, asked, compiled, nested):
    """PyTorch keeps only what it exported of a hint, or of a derived dimension."""
    x = torch.rand(8, 2)
    model, inputs, keywords, shapes = Guarded(), (x,), {}, (shape,)
    if nested:
        model, inputs, keywords = Nesting(), ({"x": x + 1}, [x + 2]), {"last": x}
        shapes = {"tensors": {"x": None}, "others": [None], "last": shape}
    with pytest.warns(UserWarning, match="You asked for"):
        narrowed = torchtrt.compile(
            model.eval(), inputs, kwarg_inputs=keywords, dynamic_shapes=shapes, min_block_size=1
        )

    (row,) = narrowed.report.narrowed
    name = "last" if nested else "x"
    assert (name, 0, asked, compiled) == (row.input, row.dim, row.asked, row.compiled)
    assert "in forward" in row.model_line


def test_an_input_has_the_name_of_its_parameter():
    """PyTorch's node of ``input`` is ``input_1``, and a call then found no row for its size."""
    model = nn.Sequential(Guarded(), nn.ReLU()).eval()
    with pytest.warns(SizeWarning, match="dimension 0 of input 'input',"):
        compiled = torchtrt.compile(model, [ranged(2, 8, 200)], min_block_size=1)

    with pytest.raises(InputError, match=r"input 'input' is 150, .* You asked for 2 to 200"):
        compiled(torch.rand(150, 2))


def test_a_hint_from_1_is_compiled_from_1():
    """PyTorch exports it from 2."""
    x, shapes = torch.rand(4, 2), ({0: AUTO(min=1, max=8)},)
    compiled = torchtrt.compile(nn.ReLU().eval(), (x,), dynamic_shapes=shapes, min_block_size=1)

    assert not compiled.report.narrowed
    assert torch.equal(x[:1], compiled(x[:1]))


def test_a_call_without_rows_leads_to_an_input_with_a_range():
    """PyTorch does not keep whether a minimum of 0 was declared."""
    shapes = ({0: torch.export.Dim("batch", min=0, max=8)},)
    x = torch.rand(3, 2)
    compiled = torchtrt.compile(nn.ReLU().eval(), (x,), dynamic_shapes=shapes, min_block_size=1)

    with pytest.raises(InputError, match=r"compiled for 1 to 8\..* 0 in its min_shape"):
        compiled(torch.rand(0, 2))
    from_zero = torchtrt.compile(nn.ReLU().eval(), [ranged(0, 3, 8)], min_block_size=1)
    assert (0, 2) == from_zero(torch.rand(0, 2)).shape


class Scaled(torch.nn.Module):
    """Dynamo interprets its branches."""

    def forward(self, x):
        """Shape ``(n, 3)``, as the result."""
        return torch.cond(
            x.sum() > 0, lambda x: x * (2 if x.shape[0] > 1 else 3), lambda x: x - 1, (x,)
        )


def test_a_question_of_a_branch_has_the_line_of_the_model():
    """And not one of PyTorch's, or of a function mode."""
    rows = torchtrt.Input(min_shape=(1, 3), opt_shape=(4, 3), max_shape=(6, 3))
    with pytest.warns(UserWarning, match="Compiled for 2 to 6"):
        compiled = torchtrt.compile(Scaled().eval(), [rows], min_block_size=1)

    (narrowed,) = compiled.report.narrowed
    assert f'"{__file__}"' in narrowed.model_line
