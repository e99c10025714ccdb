"""The sizes for which guards hold are those that a count of all sizes finds."""

import itertools

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchtrt
from tests.support.modules import Function
from torchtrt.conversion.inputs import SizeRange
from torchtrt.errors import InputError, SizeWarning
from torchtrt_compiler.sizes.accepted import accepted_sizes, nearest_point
from torchtrt_compiler.torch_internals import sympy_functions as functions

A, B = sympy.symbols("a b", integer=True, positive=True)
TERMS = st.sampled_from([A, B, A * B, A + B, functions.FloorDiv(A, 2), functions.PythonMod(B, 3)])
GUARDS = st.builds(
    lambda kind, left, right: kind(left, right),
    st.sampled_from([sympy.Eq, sympy.Ne, sympy.Lt, sympy.Ge]),
    TERMS,
    st.one_of(st.integers(1, 12), TERMS),
).filter(lambda guard: guard not in (True, False))


def holds(guard, point):
    """Returns whether SymPy evaluates a guard as true."""
    return bool(guard.xreplace({symbol: sympy.Integer(size) for symbol, size in point.items()}))


@settings(max_examples=60, deadline=None)
@given(guards=st.lists(GUARDS, max_size=3, unique=True))
def test_no_accepted_size_is_left_out(guards):
    """The ranges are from the least to the greatest accepted value of each size, unless a guard is on both.

    An equation of both may leave one value of each.
    """
    profile = {A: SizeRange(1, 4, 9), B: SizeRange(2, 3, 7)}
    accepted_ = accepted_sizes(guards, [profile])

    points = [{A: a, B: b} for a, b in itertools.product(range(1, 10), range(2, 8))]
    accepted = [point for point in points if all(holds(guard, point) for guard in guards)]
    equations = [
        guard for guard in guards if isinstance(guard, sympy.Eq) and len(guard.free_symbols) > 1
    ]
    refusing = [guard for guard in guards if not all(holds(guard, point) for point in points)]
    joint = equations or [guard for guard in refusing if len(guard.free_symbols) > 1]
    assert accepted or joint or not accepted_.profiles
    for symbol, taken in accepted_.profiles[0].items() if accepted_.profiles else ():
        values = {point[symbol] for point in accepted}
        assert any(map(taken.contains, values)) if equations else all(map(taken.contains, values))
        assert joint or {*taken} <= values
    for guard in {*guards} - {*accepted_.conditions}:
        assert all(holds(guard, point) for point in accepted)


def test_without_guards_the_profiles_are_as_they_were():
    """Nothing is refused."""
    profile = {A: SizeRange(1, 4, 9)}

    assert ((profile,), ()) == accepted_sizes((), [profile])


def test_a_profile_of_which_guards_refuse_each_size_is_left_out():
    """A size inside a range is left to the check of the call."""
    profiles = [{A: SizeRange(4, 6, 8)}, {A: SizeRange(1, 1, 1)}, {A: SizeRange(6, 6, 12)}]
    accepted = accepted_sizes([sympy.Ne(A, 1), sympy.Ne(A, 7)], profiles)

    assert [SizeRange(4, 6, 8), SizeRange(6, 6, 12)] == [
        profile[A] for profile in accepted.profiles
    ]


@pytest.mark.parametrize("number", [7, 16_000, 299_999])
def test_a_number_in_a_guard_is_tried_in_a_range_of_many_sizes(number):
    """Not each size of such a range is tried."""
    profile = {A: SizeRange(2, 6, 300_000)}
    accepted = accepted_sizes([sympy.Ne(A, number)], [profile])

    assert ((profile,), (sympy.Ne(A, number),)) == (accepted.profiles, accepted.conditions)


def test_a_guard_on_many_combinations_is_tried_at_the_ends():
    """A hundred million combinations are too many to count."""
    profile = {A: SizeRange(2, 6, 10_000), B: SizeRange(2, 6, 10_000)}
    guard = sympy.Lt(A * B, 100_000_000)

    assert (guard,) == accepted_sizes([guard], [profile]).conditions


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (A >= 90_000, (90_000, 90_000, 10**9)),
        (sympy.Gt(A, 90_000), (90_001, 90_001, 10**9)),
        (A < 90_000, (2, 6, 89_999)),
        (sympy.Ge(90_000, A), (2, 6, 90_000)),
        (A < 2, None),
        (A > 10**9, None),
        (sympy.Ge(A, 0, evaluate=False), (2, 6, 10**9)),
    ],
)
def test_a_limit_of_a_long_range_is_exact(limit, expected):
    """No call is checked for it besides."""
    profiles, conditions = accepted_sizes([limit], [{A: SizeRange(2, 6, 10**9)}])

    assert profiles == (() if expected is None else ({A: SizeRange(*expected)},))
    assert () == conditions


def test_a_condition_on_all_combinations_that_holds_is_not_checked_again():
    """One of which only some combinations were tried is."""
    few, many = SizeRange(2, 5, 9), SizeRange(2, 5, 100_000)

    assert () == accepted_sizes([A * B < 82], [{A: few, B: few}]).conditions
    assert (A * B > 1,) == accepted_sizes([A * B > 1], [{A: many, B: many}]).conditions


def test_the_ends_of_ranges_satisfy_an_equation():
    """TensorRT builds for them, and for the accepted sizes that are the closest to the optimal ones."""
    few = {A: SizeRange(1, 5, 9), B: SizeRange(1, 3, 7)}
    product = accepted_sizes([sympy.Eq(A * B, 12)], [few])
    multiple = accepted_sizes([sympy.Eq(functions.PythonMod(A * B, 4), 0)], [few])
    difference = accepted_sizes([sympy.Eq(A - B, 2)], [few])

    assert ({A: SizeRange(4, 4, 4), B: SizeRange(3, 3, 3)},) == product.profiles
    assert ({**few, A: SizeRange(1, 4, 9)},) == multiple.profiles
    assert ({A: SizeRange(3, 5, 9), B: SizeRange(1, 3, 7)},) == difference.profiles


def test_a_quotient_by_zero_is_refused():
    """So is the call."""
    guard = sympy.Ge(functions.FloorDiv(8, A - 3), -9)
    accepted = accepted_sizes([guard], [{A: SizeRange(2, 6, 8)}])

    assert (guard,) == accepted.conditions


def test_functions_of_pytorch_are_evaluated():
    """Some of them are printed with names of modules."""
    guard = sympy.Ne(functions.CeilToInt(functions.IntTrueDiv(A, 3)), 2)
    other = sympy.Gt(functions.Where(A > 3, A, 2), 1)
    accepted = accepted_sizes([guard, other], [{A: SizeRange(2, 6, 8)}])

    assert (guard,) == accepted.conditions
    assert SizeRange(2, 7, 8) == accepted.profiles[0][A]


def test_guards_on_floating_point_numbers_are_evaluated():
    """``int(x.shape[0] * 0.5)`` makes one."""
    half = functions.TruncToInt(0.5 * functions.ToFloat(A))

    accepted = accepted_sizes([sympy.Eq(half, 4)], [{A: SizeRange(1, 8, 20)}])

    assert ({A: SizeRange(8, 8, 9)},) == accepted.profiles


def test_the_accepted_sizes_that_are_the_closest_to_the_optimal_ones():
    """The optimal ones, if guards hold for them; nothing if they hold for none."""
    profile = {A: SizeRange(2, 4, 9), B: SizeRange(1, 5, 8)}

    assert {A: 4, B: 5} == nearest_point([A < B], profile)
    assert {A: 4, B: 3} == nearest_point([A > B], profile)
    assert nearest_point([sympy.Eq(A * B, 73)], profile) is None


@pytest.mark.parametrize("power", [0.5, -0.5])
def test_a_condition_without_a_value_refuses_a_size(power):
    """The root of a negative number is complex, and compares with nothing."""
    model = Function(lambda x: x * 2 if (x.shape[0] - 3) ** power < 3 else x * 3).eval()
    rows = torchtrt.Input(min_shape=(2, 4), opt_shape=(4, 4), max_shape=(8, 4))
    with pytest.warns(SizeWarning):
        compiled = torchtrt.compile(model, [rows], min_block_size=1)

    for size in range(4, 9):
        x = torch.rand(size, 4)
        torch.testing.assert_close(compiled(x), model(x))
    with pytest.raises(InputError):
        compiled(torch.rand(2, 4))
