"""Inputs that do not fit are refused with the place and the sizes that would fit."""

import dataclasses

import pytest
import sympy
import torch
from torch import nn

import torchtrt
from torchtrt.conversion.inputs import SizeRange
from torchtrt.errors import InputError
from torchtrt.expressions.values import holds
from torchtrt_runtime.checks.inputs import InputChecks
from torchtrt_runtime.checks.tensors import make_tensor_matcher
from torchtrt_runtime.torch_internals import sympy_functions


class Model(nn.Module):
    """Takes ids and a mask of equal shape, a table and an option."""

    def forward(self, ids, mask, table, flag=True):
        """Returns something that uses all of them."""
        return (ids * mask).sum() + table.sum() * flag


@pytest.fixture(scope="module")
def checks():
    """Checks for (batch 1..8, length 2..16) int64 ids and mask, a (3, 2 * length) table, and a flag."""
    batch, length = (
        torch.export.Dim("batch", min=1, max=8),
        torch.export.Dim("length", min=2, max=16),
    )
    ids = torch.ones(4, 6, dtype=torch.int64)
    exported = torch.export.export(
        Model(),
        (ids, ids, torch.ones(3, 12), True),
        dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}, {1: 2 * length}, None),
    )
    placeholders = exported.graph.find_nodes(op="placeholder")
    symbols = [size.node.expr for size in placeholders[0].meta["val"].shape]
    ranges = dict(zip(symbols, (SizeRange(1, 4, 8), SizeRange(2, 6, 16)), strict=True))
    return InputChecks.of(placeholders, (ranges,))


def inputs(batch=2, length=5, mask=None, table=None, flag=True):
    """Returns inputs that fit, but for the given arguments."""
    ids = torch.ones(batch, length, dtype=torch.int64)
    mask = ids if mask is None else mask
    return [ids, mask, torch.ones(3, 2 * length) if table is None else table, flag]


@pytest.mark.parametrize("batch", [1, 4, 8])
@pytest.mark.parametrize("length", [2, 16])
def test_every_size_in_range_fits(checks, batch, length):
    """The minimum and maximum sizes are inside, a batch of one too."""
    checks.check(inputs(batch, length))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            inputs(batch=9),
            r"dimension 0 of input 'ids' is 9, but the model was compiled for 1 to 8",
        ),
        (inputs(length=1), r"dimension 1 of input 'ids' is 1.*2 to 16"),
        (
            inputs(mask=torch.ones(2, 4, dtype=torch.int64)),
            r"dimension 1 of input 'mask' is 4, but it must equal the size of dimension 1 of input 'ids', which is 5",
        ),
        (
            inputs(table=torch.ones(3, 9)),
            r"dimension 1 of input 'table' is 9, but it must be .* = 10",
        ),
        (
            inputs(table=torch.ones(4, 10)),
            r"dimension 0 of input 'table' is 4, but the model was compiled for 3",
        ),
        (
            inputs(mask=torch.ones(2, 5)),
            r"'mask' is torch.float32, but the model was compiled for torch.int64",
        ),
        (inputs(mask=torch.ones(2, dtype=torch.int64)), r"'mask' has 1 dimension.*compiled for 2"),
        (inputs(mask=1.5), r"'mask' must be a tensor, not a float"),
        (inputs(mask=[1]), r"'mask' must be a tensor, not a list"),
        (inputs(flag=False), r"'flag' is False, but the model was compiled for True"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_place(checks, wrong, message):
    """Each message names the input, the dimension, and what would fit."""
    with pytest.raises(InputError, match=message):
        checks.check(wrong)


def test_a_refused_shape_is_refused_again(checks):
    """Only shapes that passed are remembered."""
    for _ in range(2):
        with pytest.raises(InputError):
            checks.check(inputs(batch=9))


def test_a_condition_without_a_value_does_not_hold(checks):
    """PyTorch divides by the size to check it, so the model was not exported for a size of zero."""
    length = checks.inputs[0][1].sizes[1]
    condition = sympy.Ne(sympy_functions.FloorDiv(12, length - 2), 1)
    strict = dataclasses.replace(checks, guards=(condition,))

    strict.check(inputs(length=5))
    for wrong in (2, 14):
        with pytest.raises(InputError, match=rf"under the condition .*, but .* is {wrong}"):
            strict.check(inputs(length=wrong))


def test_the_remainder_of_a_negative_number_is_pythons():
    """PyTorch asserts that there is none, because to it a size is no smaller than 2."""
    length = sympy.Symbol("length", integer=True, positive=True)
    condition = sympy.Eq(sympy_functions.Mod(length - 1, 3), 2)

    assert holds(condition, {length: 0})
    assert not holds(condition, {length: 1})


def test_an_input_that_is_not_given_is_missing():
    """As None stands for in models that take inputs by name."""
    compiled = torchtrt.compile(torch.nn.ReLU().eval(), (torch.ones(3),), min_block_size=1)

    with pytest.raises(InputError, match=r"Input '\w+' must be a tensor, and is missing"):
        compiled(None)


def test_numbers_are_told_apart_by_more_than_their_values():
    """0.0 equals -0.0, and 1 / 0.0 does not equal 1 / -0.0; NaN is NaN."""

    class Divided(torch.nn.Module):
        def forward(self, x, number):
            return torch.relu(x) / torch.tensor(number)

    x = torch.ones(2)
    compiled = torchtrt.compile(Divided().eval(), (x, 0.0), min_block_size=1)
    assert compiled(x, 0.0).tolist() == [torch.inf] * 2
    for number in (-0.0, 0, False, torch.nan):
        with pytest.raises(InputError, match=r"but the model was compiled for 0\.0"):
            compiled(x, number)
    compiled = torchtrt.compile(Divided().eval(), (x, torch.nan), min_block_size=1)
    assert compiled(x, float("nan")).isnan().all()


def test_a_matcher_takes_what_differs_in_numbers_and_addresses_alone():
    """Everything else that an engine or a recording depends on is another kind of input."""
    x, y = torch.rand(2, 3), torch.arange(4)
    matches = make_tensor_matcher([x, y])
    z = torch.complex(x, x)

    assert matches(torch.rand(2, 3), torch.zeros(4, dtype=torch.int64))
    for other in (
        torch.rand(3, 2),
        torch.rand(3, 2).t(),
        torch.rand(2, 3, 1),
        x.double(),
        x.to("meta"),
        x.to_sparse(),
        torch.nn.Parameter(x),
        x.clone().requires_grad_(),
        x.as_subclass(Tagged),
        None,
        2.0,
    ):
        assert not matches(other, y)
    assert make_tensor_matcher([z.conj().imag])(z.conj().imag)
    assert not make_tensor_matcher([z.imag])(z.conj().imag)
    for mode in (torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)):
        with mode:
            assert not matches(x, y)
    with torch.no_grad():
        assert matches(x, y)


@pytest.mark.parametrize("value", [None, 1, torch.rand(2).to_sparse(), torch.rand(2).to("meta")])
def test_what_is_not_compared_matches_nothing_or_itself(value):
    """The caller then looks for itself."""
    matches = make_tensor_matcher([torch.rand(2), value])

    assert matches(torch.rand(2), value) == getattr(value, "is_meta", False)
    assert make_tensor_matcher([])()


def test_conditions_on_quotients_that_are_cut_are_evaluated():
    """``int(x.shape[0] / 4)`` makes them, in strict exporting."""
    rows = sympy.Symbol("rows", integer=True, positive=True)
    quarter = sympy_functions.TruncToInt(sympy_functions.IntTrueDiv(rows, 4))
    condition = sympy.Eq(3 * sympy_functions.Max(1, sympy_functions.FloorDiv(rows, quarter)), 12)

    assert holds(condition, {rows: 8})
    assert not holds(condition, {rows: 11})
    assert not holds(condition, {rows: 3})


class Tagged(torch.Tensor):
    """A subclass of tensors."""


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_compiled_model_takes_inputs_of_other_kinds_in_any_order():
    """The kind of the last call is known at once, and has no effect on the next one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    batch = torchtrt.Input(min_shape=(1, 4), opt_shape=(2, 4), max_shape=(8, 4))
    compiled = torchtrt.compile(model, [batch], require_full_compilation=True)
    kinds = [
        torch.rand(2, 4),
        torch.rand(4, 2).t(),
        torch.rand(8, 4),
        torch.rand(16, 4)[::2],
        torch.rand(2, 4, dtype=torch.complex64).conj().imag,
        nn.Parameter(torch.rand(2, 4), requires_grad=False),
        torch.rand(1, 4),
    ]
    for x in (kinds + kinds[::-1]) * 2:
        torch.testing.assert_close(compiled(x), model(x).detach())
        nested = torch.nested.nested_tensor([torch.rand(4), torch.rand(4)])
        for wrong in (x.double(), x[:, :3], torch.rand(9, 4), nested):
            with pytest.raises(InputError):
                compiled(wrong)
        with torch.inference_mode():
            torch.testing.assert_close(compiled(x), model(x))
