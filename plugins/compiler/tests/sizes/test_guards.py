"""Conditions on sizes under which a program was exported hold in every call of the compiled model."""

import itertools
import math
import warnings

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

import torchtrt
from torchtrt.conversion.inputs import SizeRange
from torchtrt.errors import InputError, UnsupportedProgramError
from torchtrt.expressions.values import holds
from torchtrt.graphs.symbols import shape_env_of
from torchtrt_compiler.lowering import open_program
from torchtrt_compiler.sizes.guard_texts import written_guards
from torchtrt_compiler.sizes.guards import guard_lines
from torchtrt_runtime.checks.sizes import check_decidable

SIZES = ("x.shape[0]", "x.shape[1]", "y.shape[0]", "y.shape[1]")
TERMS = st.one_of(
    st.sampled_from(SIZES),
    st.tuples(st.sampled_from(SIZES), st.sampled_from("+-*"), st.sampled_from(SIZES)).map(" ".join),
    st.tuples(st.sampled_from(SIZES), st.sampled_from(("//", "*", "-")), st.just("2")).map(
        " ".join
    ),
)
CONDITIONS = st.one_of(
    st.tuples(TERMS, st.integers(2, 4), st.integers(0, 1)).map(
        lambda pair: f"({pair[0]}) % {pair[1]} == {pair[2]}"
    ),
    st.tuples(TERMS, st.sampled_from(("<", "<=", "==", "!=")), TERMS).map(" ".join),
    st.tuples(TERMS, st.integers(3, 9)).map(lambda pair: f"max({pair[0]}, 3) > {pair[1]}"),
)
UNIFIERS = ("0", "x.sum(0)[:1] + y.T.sum(1)[:1]", "x + y", "(x.sum(1) + y.sum(1)).sum()", "x.T + y")


class Branches(nn.Module):
    """Takes other branches of Python for other sizes, and ties sizes of its inputs together."""

    def __init__(self, conditions, unifier):
        super().__init__()
        self.conditions = [compile(condition, "<condition>", "eval") for condition in conditions]
        self.unifier = compile(unifier, "<unifier>", "eval")

    def forward(self, x, y):
        result = x.sum() + y.sum() + eval(self.unifier)
        for number, condition in enumerate(self.conditions):
            result = result * (number + 2) if eval(condition) else result + 1
        return result

    def branches(self, x, y):
        """Returns the branch of each condition for inputs of these sizes, or None where eager PyTorch fails."""
        try:
            self(x, y)
        except RuntimeError:
            return None
        sizes = {"x": x, "y": y}
        return [bool(eval(condition, {}, sizes)) for condition in self.conditions]


def compiled(model, inputs, through_file, folder):
    """Returns the model compiled for 2 to 7 in every dimension, from a file or not."""
    everything = {0: Dim.AUTO(min=2, max=7), 1: Dim.AUTO(min=2, max=7)}
    exported = torch.export.export(model, inputs, dynamic_shapes=(everything, everything))
    if through_file:
        torch.export.save(exported, folder / "program.pt2")
        exported = torch.export.load(folder / "program.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torchtrt.compile(exported, min_block_size=1)


@settings(max_examples=25, deadline=None)
@given(
    conditions=st.lists(CONDITIONS, min_size=1, max_size=2),
    unifier=st.sampled_from(UNIFIERS),
    through_file=st.booleans(),
)
def test_a_call_equals_eager_or_takes_another_branch_and_is_refused(
    conditions, unifier, through_file, tmp_path_factory
):
    """Sizes that take the exported branches are accepted, and all others are refused."""
    model = Branches(conditions, unifier).eval()
    inputs = torch.rand(4, 4), torch.rand(4, 4)
    compiled_model = compiled(model, inputs, through_file, tmp_path_factory.mktemp("guards"))
    for rows, columns, other_rows in itertools.product((2, 3, 4, 7), (4, 5), (3, 4, 6)):
        x, y = torch.rand(rows, columns), torch.rand(other_rows, columns)
        if model.branches(x, y) == model.branches(*inputs):
            torch.testing.assert_close(compiled_model(x, y), model(x, y))
        else:
            with pytest.raises(InputError):
                compiled_model(x, y)


class Even(nn.Module):
    """Takes another branch for an odd number of rows."""

    def forward(self, x, y):
        return (x * 2 if x.shape[0] % 2 == 0 else x * 3) + y


def exported_even():
    """Returns the program for 2 to 16 rows, of which it takes the even ones."""
    return torch.export.export(
        Even(),
        (torch.rand(4, 2), torch.rand(4, 2)),
        dynamic_shapes=({0: Dim.AUTO(min=2, max=16)}, {0: Dim.AUTO(min=2, max=16)}),
    )


def test_a_guard_on_sizes_that_became_one_is_checked():
    """PyTorch records the guard for the symbol of x, and replaces that symbol by the one of y."""
    rows = torchtrt.Input(min_shape=(2, 2), opt_shape=(4, 2), max_shape=(16, 2))
    with pytest.warns(UserWarning, match=r"2 to 16, where x\.shape\[0\] % 2 == 0"):
        compiled = torchtrt.compile(Even().eval(), [rows, rows], min_block_size=1)

    torch.testing.assert_close(
        torch.full((6, 2), 3.0), compiled(torch.ones(6, 2), torch.ones(6, 2))
    )
    with pytest.raises(InputError, match=r"x\.shape\[0\] % 2 == 0, but x\.shape\[0\] is 5"):
        compiled(torch.ones(5, 2), torch.ones(5, 2))


def test_a_guard_is_checked_after_saving_the_exported_program(tmp_path):
    """The file holds the guard."""
    torch.export.save(exported_even(), tmp_path / "even.pt2")
    compiled = torchtrt.compile(torch.export.load(tmp_path / "even.pt2"), min_block_size=1)

    assert not compiled.report.narrowed

    with pytest.raises(InputError, match=r"x\.shape\[0\] % 2 == 0"):
        compiled(torch.ones(5, 2), torch.ones(5, 2))


def test_a_guard_is_checked_after_saving_the_compiled_model(tmp_path):
    """The file holds the guard."""
    torchtrt.save(torchtrt.compile(exported_even(), min_block_size=1), tmp_path / "even.pt2")
    loaded = torchtrt.load(tmp_path / "even.pt2")

    with pytest.raises(InputError, match=r"% 2 == 0, but .* may be 4 or 6\."):
        loaded(torch.ones(5, 2), torch.ones(5, 2))


class EvenParts(nn.Module):
    """Takes another branch for other sizes of a positional input, a collected one and one by name."""

    def forward(self, x, *ys, k):
        parts = [(part.relu() if part.shape[0] % 2 == 0 else part).sum() for part in (x, *ys, k)]
        return sum(parts)


def test_guards_are_checked_after_compiling_what_pytorch_opens_of_a_compiled_model(tmp_path):
    """The program has no names of arguments, which guards have."""
    rows = torchtrt.Input(min_shape=(2,), opt_shape=(4,), max_shape=(8,))
    settings = {"min_block_size": 1, "torch_executed_ops": {"aten.relu"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torchtrt.compile(
            EvenParts().eval(), [rows, rows], kwarg_inputs={"k": rows}, **settings
        )
    torchtrt.save(model, tmp_path / "even.pt2")
    compiled = torchtrt.compile(torch.export.load(tmp_path / "even.pt2"), min_block_size=1)

    even = torch.ones(6)
    assert compiled(even, even, k=even) == 18
    for sizes in itertools.product((6, 7), repeat=3):
        if sizes != (6, 6, 6):
            x, y, k = map(torch.ones, sizes)
            with pytest.raises(InputError, match="% 2"):
                compiled(x, y, k=k)


class Nested(nn.Module):
    """Has conditions of every form that PyTorch writes to files."""

    def forward(self, x, *ys, k=None):
        result = x * 2 if x.shape[0] * ys[0].shape[0] % 4 == 0 else x * 3
        if x.shape[0] > ys[0].shape[0] or ys[1]["a"].shape[0] // 2 == 3:
            result = result + 1
        if max(x.shape[0], k.shape[0]) > 3 and min(x.shape[0], 3) != 2:
            result = result + 1
        if x.shape[0] / 2 > 1.5:
            result = result + 1
        return result.sum() + ys[0].sum() + k.sum() + ys[1]["a"].sum()


def test_guards_of_a_file_are_those_that_were_traced():
    """The text of each guard is read as the condition that PyTorch wrote."""
    varying = {0: Dim.AUTO}
    exported = torch.export.export(
        Nested(),
        (torch.rand(4, 2), torch.rand(6, 2), {"a": torch.rand(7)}),
        {"k": torch.rand(5)},
        dynamic_shapes={"x": varying, "ys": (varying, {"a": varying}), "k": varying},
    )
    traced, written = tuple(guard_lines(shape_env_of(exported.graph))), written_guards(exported)
    symbols = sorted(frozenset().union(*(guard.free_symbols for guard in traced)), key=str)

    assert len(traced) == len(written) >= 5
    for sizes in itertools.product((2, 3, 6, 7), repeat=len(symbols)):
        values = dict(zip(symbols, map(sympy.Integer, sizes), strict=True))
        assert [condition.xreplace(values) for condition in traced] == [
            condition.xreplace(values) for condition in written
        ]


FUNCTIONS = {
    "trunc": lambda n, m: int(n / 4) * 4 != 0,
    "floor and ceil": lambda n, m: math.floor(n / 2) == 2 and math.ceil(n / m) >= 1,
    "abs": lambda n, m: abs(n - 4) < 2,
    "round": lambda n, m: round(n / 2) == 2 and round(m / 3, 1) > 1.2,
    "float": lambda n, m: float(n) * 1.5 > m,
    "a quotient of floats": lambda n, m: float(n) / 2.5 >= 1.5,
    "sqrt": lambda n, m: math.sqrt(n) > 1.9,
    "log2": lambda n, m: math.log2(n) > 1,
    "a power": lambda n, m: 2**n > m,
    "a root": lambda n, m: n**0.5 < m,
    "a choice": lambda n, m: torch.sym_ite(n > 3, n, m) > 3,
    "bits": lambda n, m: (n & 1) == 0 and (n | m) > 3 and (n ^ m) != 7,
    "a remainder of floats": lambda n, m: (n / 2) % 2 == 0,
}
"""Functions of sizes that are true for 4 and 5."""


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_guards_of_a_file_may_have_each_function_of_sizes(function, is_strict):
    """A strict export keeps more of them, because Dynamo reads floating-point numbers as symbols, too."""

    class Asks(nn.Module):
        def forward(self, x, y):
            return (x * 2 if function(x.shape[0], y.shape[0]) else x * 3).sum() + y.sum()

    varying = {0: Dim.AUTO(min=2, max=9)}
    examples = torch.rand(4, 2), torch.rand(5, 2)
    exported = torch.export.export(
        Asks(), examples, dynamic_shapes=(varying, varying), strict=is_strict
    )
    traced, written = tuple(guard_lines(shape_env_of(exported.graph))), written_guards(exported)
    symbols = sorted(frozenset().union(*(guard.free_symbols for guard in traced)), key=str)
    for sizes in itertools.product(range(2, 10), repeat=len(symbols)):
        values = dict(zip(symbols, sizes, strict=True))
        assert [holds(condition, values) for condition in traced] == [
            holds(condition, values) for condition in written
        ]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "L['x'].numel() == 3",
        "L['z'].size()[0] == 3",
        "L['x'].size()[7] == 3",
        "len(L['x'].size()) == 2",
        "x ==",
        "L['x'].size()[0]",
        "L['x'] == 3",
        "L['x'] >= 'open(\\'/dev/null\\')'",
        "L['x'].size()[0] == 'L'",
        "L['x'].size()[0] // 0 == 3",
        "max(L['x'].size()[0], key=3) == 4",
        "9**99999999 == L['x'].size()[0]",
        "L['x'].size()[0] ** 1e400 > 1",
        "0" + " + 1" * 100_000 + " == 0",
    ],
    ids=range(15),
)
def test_a_guard_that_cannot_be_read_refuses_the_program(text, tmp_path):
    """A guard that cannot be checked is never dropped, and its text is never evaluated."""
    exported = exported_even()
    exported._guards_code.append(text)
    torch.export.save(exported, tmp_path / "even.pt2")
    exported = torch.export.load(tmp_path / "even.pt2")

    with pytest.raises(UnsupportedProgramError, match="cannot read this condition"):
        open_program(exported)


def test_a_guard_that_no_input_decides_refuses_the_program():
    """It could not be checked in a call."""
    input_size, unknown = sympy.symbols("s0 s1", integer=True)
    profiles = ({input_size: SizeRange(2, 4, 8)},)

    check_decidable((sympy.Gt(input_size, 3),), profiles)
    with pytest.raises(InputError, match="s1 is the size of no input"):
        check_decidable((sympy.Gt(input_size, unknown),), profiles)
