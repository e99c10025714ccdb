"""Inputs that are numbers which vary: each call equals eager PyTorch, or is refused."""

from __future__ import annotations

import io
import operator

import pytest
import torch
from torch import nn
from torch.export import Dim

import torchtrt
from tests.support.compiled import engines_of
from torchtrt.errors import InputError, SizeWarning


def written(x, columns, value):
    """Writes a number to some columns of a copy."""
    copy = x.clone()
    copy[:, columns] = value
    return copy


def written_flat(x, count):
    """Writes 1 to the first elements of a copy."""
    copy = x.clone()
    copy.reshape(-1)[:count] = 1
    return copy


X = torch.rand(2, 8, generator=torch.Generator().manual_seed(0)) - 0.5
USES = {
    "a scalar": (lambda x, n: x * n, range(17)),
    "a size": (lambda x, n: x.new_ones(n, 8) + x.sum(), range(17)),
    "a limit": (lambda x, n: x[:, :n].relu(), range(9)),
    "a limit from behind": (lambda x, n: x[:, -n:].relu(), range(1, 9)),
    "a start": (lambda x, n: x[:, n : n + 2].relu(), range(7)),
    "an index": (lambda x, n: x.select(1, n).relu(), range(8)),
    "a count": (lambda x, n: torch.arange(n, device=x.device) * x.sum(), range(17)),
    "a branch": (lambda x, n: x * 2 if n > 4 else x * 3, range(5)),
    "a limit of a write": (lambda x, n: written(x, slice(n), 7), range(8)),
    "a start of a write": (lambda x, n: written(x, slice(n, None), 7), range(9)),
    "what is written": (lambda x, n: written(x, 1, n), range(17)),
    "one value": (lambda x, n: x * 2 if n == 1 else x * 3, [0, *range(2, 17)]),
}
"""Uses of a number, each with the numbers from 0 to 16 that its program takes for an example of 3."""


class Use(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.use = use

    def forward(self, x, n: int):
        return self.use(x, n)


def taken(compiled, model, numbers=range(18)):
    """Returns the numbers that a compiled model takes, whose results equal those of the model.

    Those for which eager PyTorch raises are left out: PyTorch 2.11 does not record that an index has a limit.
    """
    accepted = []
    for n in numbers:
        try:
            result = compiled(X, n)
            expected = model(X, n)
        except (InputError, IndexError):
            continue
        torch.testing.assert_close(result, expected)
        accepted.append(n)
    return accepted


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
@pytest.mark.parametrize(("use", "accepted"), USES.values(), ids=USES)
def test_a_number_of_a_module_is_an_input_of_its_engine(use, accepted):
    model = Use(use).eval()
    numbers = torchtrt.Number(min=0, opt=3, max=16)
    compiled = torchtrt.compile(model, (X, numbers), min_block_size=1)
    assert not compiled.report.in_torch
    assert taken(compiled, model) == [*accepted]


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
@pytest.mark.parametrize("is_from_file", [False, True])
@pytest.mark.parametrize("use", [use for use, _ in USES.values()], ids=USES)
def test_a_number_of_an_exported_program_is_compiled_as_the_program_accepts_it(use, is_from_file):
    model = Use(use).eval()
    numbers = Dim.AUTO(min=1, max=16)
    program = torch.export.export(model, (X, 3), dynamic_shapes=(None, numbers))
    if is_from_file:
        torch.export.save(program, file := io.BytesIO())
        file.seek(0)
        program = torch.export.load(file)
    compiled = torchtrt.compile(program, min_block_size=1)
    assert not compiled.report.in_torch
    assert len(taken(compiled, model)) > 3


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: x * n if x.is_contiguous() else x,
        lambda x, n: x * n + x.stride(0) + x.storage_offset(),
        lambda x, n: x.as_strided((2, 3), (8, 2)) * n,
        lambda x, n: x.clone().as_strided((n,), (1,)) + 1,
        lambda x, n: written_flat(x, n),
    ],
    ids=["is_contiguous", "stride", "as_strided", "as many places", "a write through reshape"],
)
def test_a_model_that_reads_strides_takes_numbers(use):
    """A number has no memory. The tensor beside it has to be in memory like the example."""
    model = Use(use).eval()
    compiled = torchtrt.compile(model, (X, torchtrt.Number(1, 3, 8)), min_block_size=1)
    assert taken(compiled, model) == [*range(1, 9)]
    with pytest.raises(InputError, match="input that is contiguous"):
        compiled(X.t().contiguous().t(), 3)


def test_dynamic_shapes_declare_a_number():
    model = Use(USES["a scalar"][0]).eval()
    compiled = torchtrt.compile(model, (X, 3), dynamic_shapes=(None, Dim.AUTO(min=2, max=5)))
    assert taken(compiled, model) == [2, 3, 4, 5]


@pytest.mark.parametrize("example", [0, 1])
def test_an_example_may_be_small(example):
    model = Use(USES["a scalar"][0]).eval()
    numbers = (None, Dim.AUTO(min=0, max=5))
    compiled = torchtrt.compile(model, (X, example), dynamic_shapes=numbers)
    assert taken(compiled, model) == [1, 2, 3, 4, 5]


def test_a_model_may_take_numbers_alone():
    class Numbers(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("values", X)

        def forward(self, n: int, m: int):
            return self.values * n + m

    model = Numbers().eval()
    numbers = torchtrt.Number(1, 3, 8)
    compiled = torchtrt.compile(model, (numbers, numbers), min_block_size=1)
    for pair in ((3, 3), (1, 8)):
        torch.testing.assert_close(compiled(*pair), model(*pair))


def test_the_range_of_a_number_becomes_narrower_where_the_model_takes_another_branch():
    model = Use(USES["a branch"][0]).eval()
    with pytest.warns(
        SizeWarning, match=r"You asked for 1 to 16 in input 'n'.*Compiled for 1 to 4"
    ):
        compiled = torchtrt.compile(model, (X, torchtrt.Number(1, 3, 16)), min_block_size=1)
    assert taken(compiled, model) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (9, "Input 'n' is 9, but the model was compiled for 1 to 8"),
        (0, "Input 'n' is 0, but the model was compiled for 1 to 8"),
        (-1, "Input 'n' is -1"),
        (True, "must be an int, not a bool"),
        (2.0, "must be an int, not a float"),
        (torch.tensor(2), "must be an int, not a tensor"),
    ],
)
def test_a_call_with_something_else_is_refused(value, message):
    compiled = torchtrt.compile(Use(USES["a scalar"][0]).eval(), (X, torchtrt.Number(1, 3, 8)))
    with pytest.raises(InputError, match=message):
        compiled(X, value)


@pytest.mark.parametrize("values", [(1, 0, 3), (-1, 1, 2), (1, 2, 3.0), (True, 2, 3)])
def test_a_range_that_is_none_is_refused(values):
    with pytest.raises(InputError, match="Give integers with 0 <= min <= opt <= max"):
        torchtrt.Number(*values)


def test_a_number_without_an_upper_bound_is_refused():
    with pytest.raises(
        InputError, match=r"no upper bound in int32 for input 'n'.*torchtrt\.Number"
    ):
        torchtrt.compile(
            Use(USES["a scalar"][0]).eval(), (X, 3), dynamic_shapes=(None, Dim.DYNAMIC)
        )


def test_a_number_that_the_model_fixes_is_refused():
    with pytest.raises(InputError, match="You asked for 1 to 3 in input 'n', but the model fixes"):
        torchtrt.compile(Use(lambda x, n: x.sum(n - 2)).eval(), (X, torchtrt.Number(1, 2, 3)))


def test_a_number_that_the_model_fixes_is_checked():
    model = Use(lambda x, n: x.sum(n).relu()).eval()
    compiled = torchtrt.compile(model, (X, 1), dynamic_shapes=(None, Dim.AUTO(max=4)))
    assert taken(compiled, model, range(2)) == [1]


class WithName(nn.Module):
    """Takes a number by name, returns numbers, and lets PyTorch run an op between engines."""

    def forward(self, x, *, n: int):
        y = (x[:, :n] * n).cumsum(1)
        return torch.relu(y) + n, n + 1, n


@pytest.fixture
def with_name():
    model = WithName().eval()
    numbers = {"n": torchtrt.Number(1, 3, 8)}
    settings = {"min_block_size": 1, "torch_executed_ops": {"aten.cumsum"}}
    compiled = torchtrt.compile(model, (X,), kwarg_inputs=numbers, **settings)
    assert len(engines_of(compiled)) == 2
    return model, compiled


def is_equal(compiled, model, n):
    result, expected = compiled(X, n=n), model(X, n=n)
    return torch.allclose(result[0], expected[0]) and result[1:] == expected[1:]


def test_pytorch_between_engines_uses_the_number_of_the_call(with_name):
    model, compiled = with_name
    assert all(is_equal(compiled, model, n) for n in (1, 5, 8, 2))


def test_a_saved_model_takes_the_same_numbers(with_name, tmp_path):
    model, compiled = with_name
    torchtrt.save(compiled, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")
    assert is_equal(loaded, model, 7)
    with pytest.raises(InputError, match="Input 'n' is 9"):
        loaded(X, n=9)
    program = torch.export.load(tmp_path / "model.pt2")
    result = program.module()(X, n=torch.empty(7, 0))
    torch.testing.assert_close(result[0], model(X, n=7)[0])


def test_results_are_compared_with_eager_pytorch():
    model = Use(USES["a limit"][0]).eval()
    compiled = torchtrt.compile(
        model, (X, torchtrt.Number(1, 3, 8)), min_block_size=1, verify="reference"
    )
    sizes = {row.sizes[1][0] for row in compiled.report.verified}
    assert sizes == {1, 3, 8}


def test_torch_compile_is_right_for_each_number():
    model = torch.compile(WithName().eval(), backend="torchtrt", dynamic=True)
    assert all(is_equal(model, WithName().eval(), n) for n in (2, 3, 5, 8))


def test_an_engine_takes_a_number_as_the_size_of_an_empty_input():
    compiled = torchtrt.compile(
        Use(USES["a scalar"][0]).eval(), (X, torchtrt.Number(1, 3, 8)), min_block_size=1
    )
    (engine,) = engines_of(compiled)
    shapes = [input_.shape for input_ in engine.inputs]
    assert operator.countOf(shapes, (-1, 0)) == 1


def test_a_range_that_the_program_does_not_take_is_refused():
    """With both ranges; and so is an example outside of its range."""
    model = Use(lambda x, n: x * n).eval()
    program = torch.export.export(model, (X, 7), dynamic_shapes=(None, Dim.AUTO(min=4, max=32)))
    for numbers, limit in (((1, 2, 3), "n >= 4"), ((40, 50, 64), "n <= 32")):
        with pytest.raises(InputError, match=f"for sizes where {limit}, and you asked for none"):
            torchtrt.compile(program, (X, torchtrt.Number(*numbers)))
    with pytest.raises(InputError, match=r"example has 7 in input 'n'.* 8 to 64 was declared"):
        torchtrt.compile(model, (X, 7), dynamic_shapes=(None, Dim.AUTO(min=8, max=64)))


@pytest.mark.parametrize("number", [2**62, 2**63, 2**70])
def test_a_number_of_any_length_is_refused_in_words(number):
    compiled = torchtrt.compile(
        Use(lambda x, n: x * n).eval(), (X, torchtrt.Number(1, 4, 8)), min_block_size=1
    )
    with pytest.raises(InputError, match=f"Input 'n' is {number}"):
        compiled(X, number)


def test_a_number_beside_dynamic_shapes_has_an_entry_there():
    """Without one, ``torch.export`` fixes it."""
    model = Use(lambda x, n: x * n).eval()
    varying = torch.export.Dim.AUTO(min=1, max=8)

    with pytest.raises(InputError, match=r"1 to 8 in input 'n'.* fixes it to 4.*Dim\.AUTO\(min=1"):
        torchtrt.compile(model, (X, torchtrt.Number(1, 4, 8)), dynamic_shapes=(None, None))
    compiled = torchtrt.compile(
        model, (X, torchtrt.Number(1, 4, 8)), dynamic_shapes=(None, varying)
    )
    assert all(torch.equal(compiled(X, n), X * n) for n in (1, 4, 8))


def test_a_number_that_the_code_fixes_is_refused():
    """The line of the model is in the message."""
    model = Use(lambda x, n: x * 2 if n == 4 else x * 3).eval()
    with pytest.raises(InputError, match=r"fixes it to 4 \(File .*test_numbers"):
        torchtrt.compile(model, (X, torchtrt.Number(1, 4, 8)))
