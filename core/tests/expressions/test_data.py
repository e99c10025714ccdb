"""Sizes as data: whatever PyTorch's symbolic sizes have is read again and computed, and nothing else is read."""

from __future__ import annotations

import inspect
import json
import math
from collections import Counter
from typing import Any

import pytest
import sympy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy import functions, interp

from tests.support.shards import shards
from tests.support.size_texts import texts, value_of
from torchtrt.errors import UnreadableFileError
from torchtrt.expressions.data import (
    FUNCTIONS,
    InexpressibleError,
    check_size,
    evaluate,
    from_json,
    to_json,
)
from torchtrt.expressions.values import evaluate as evaluate_expression

EXAMPLE = {"n": 12, "m": 5}
POINTS = [(12, 5), (2, 3), (7, 30), (40, 4), (3, 3), (64, 64)]


def symbolic(text: str) -> tuple[Any, list[Any]] | None:
    """Returns the expression that PyTorch has for a text, and its guards; None where PyTorch refuses the text."""
    shapes = ShapeEnv()
    sizes = {}
    for name, example in EXAMPLE.items():
        source = ConstantSource(name)
        symbol = shapes.create_symbol(
            example, source=source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None
        )
        sizes[name] = shapes.create_symintnode(symbol, hint=example, source=source)
    symbols = [size.node.expr for size in sizes.values()]
    try:
        value = value_of(text, **sizes)
    except (ArithmeticError, ValueError, TypeError, AttributeError, AssertionError, RuntimeError):
        return None
    node = getattr(value, "node", None)
    if node is None:
        return None
    return node.expr.subs(dict(zip(symbols, SYMBOLS, strict=True))), [
        guard.expr.subs(dict(zip(symbols, SYMBOLS, strict=True))) for guard in shapes.guards
    ]


SYMBOLS = sympy.symbols("n m", integer=True, positive=True)


def through_json(expression: Any) -> Any:
    """Returns data as a file has it."""
    return json.loads(json.dumps(to_json(expression), allow_nan=False))


@pytest.mark.parametrize("shard", shards(8, quick=1))
def test_what_pytorch_computes_of_sizes_is_read_again_and_has_its_value(shard):
    """For whole numbers exactly what Python computes; the rounding of floats follows SymPy's order of operands."""
    seen: Counter[str] = Counter()

    @settings(
        max_examples=300,
        deadline=None,
        derandomize=not shard,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.sampled_from(["whole", "whole", "float", "condition"]).flatmap(texts))
    def law(text):
        if (made := symbolic(text)) is None:
            return
        expression, guards = made
        data = through_json(expression)
        check_size(data)
        again = from_json(data, dict(zip("nm", SYMBOLS, strict=True)).__getitem__)
        for n, m in POINTS:
            values = dict(zip(SYMBOLS, (n, m), strict=True))
            try:
                if not all(evaluate_expression(guard, values) for guard in guards):
                    continue
                expected = value_of(text, n, m)
                actual = evaluate(data, {"n": n, "m": m}.__getitem__)
            except (ArithmeticError, ValueError):
                continue
            assert actual == evaluate_expression(expression, values)
            assert same(evaluate_expression(again, values), actual)
            if not any(part in text for part in (".", "float", " / ")):
                assert actual == expected
                assert type(actual) in (int, bool)
            elif isinstance(expected, float) and not isinstance(actual, bool):
                assert same(actual, expected)
            seen[type(actual).__name__] += 1
            seen["compared"] += 1

    law()
    assert seen["compared"] > 300
    assert seen["int"] > 100 < seen["bool"] + seen["float"]


def same(left: Any, right: Any) -> bool:
    return left == right or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)


OPERANDS = {
    "ITE": [["StrictLessThan", "n", "m"], ["Equality", "n", 7], ["Equality", "m", 5]],
    "Where": [["StrictLessThan", "n", "m"], "n", 4],
    "Piecewise": [
        ["ExprCondPair", "n", ["LessThan", "n", 7]],
        ["ExprCondPair", "m", ["bool", True]],
    ],
    "ModularIndexing": ["n", 3, 4],
    "RoundDecimal": [["IntTrueDiv", "n", 7], 2],
    "Mod": ["n", 5],
    "PythonMod": [["Add", "n", -20], 5],
    "CleanDiv": [["Mul", 6, "n", "m"], 3],
    "IsNonOverlappingAndDenseIndicator": ["n", "m", "m", 1],
    **{f"OpaqueUnaryFn_{name}": [["IntTrueDiv", 1, "n"]] for name in ("asin", "acos")},
    **{name: [["StrictLessThan", "n", 7], ["LessThan", 5, "m"]] for name in ("And", "Or", "Xor")},
    "Not": [["StrictLessThan", "n", "m"]],
    **{
        name: [["Mul", ["float", 1.5], ["ToFloat", "n"]]]
        for name in ("TruncToInt", "TruncToFloat", "RoundToInt", "FloorToInt", "CeilToInt")
    },
    **{name: [["IntTrueDiv", "n", 7]] for name in ("floor", "ceiling")},
    **{name: ["n"] for name in ("Abs", "Identity", "ToFloat")},
    "Pow": [["Add", "n", 1], 3],
    "PowByNatural": ["n", 2],
    **{name: ["n", 3] for name in ("LShift", "RShift")},
    "FloatPow": [["ToFloat", "n"], ["float", 0.5]],
}
"""Operands of a function, where they are not two sizes, or one of them for a function of floats."""


def with_symbols(data: Any) -> Any:
    if isinstance(data, list):
        return [data[0], *map(with_symbols, data[1:])]
    return ["symbol", data] if data in ("n", "m") and isinstance(data, str) else data


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"ExprCondPair"}))
def test_each_function_computes_what_sympy_does(name):
    """The classes are SymPy's and PyTorch's, and ours the numbers."""
    is_unary = name.startswith("OpaqueUnaryFn")
    operands = OPERANDS.get(name, [["ToFloat", "n"]] if is_unary else ["n", "m"])
    data = with_symbols([name, *operands])
    expression = from_json(data, dict(zip("nm", SYMBOLS, strict=True)).__getitem__)

    assert through_json(expression) == through_json(
        from_json(through_json(expression), sympy.Symbol)
    )
    for n, m in POINTS:
        expected = expression.xreplace(dict(zip(SYMBOLS, map(sympy.Integer, (n, m)), strict=True)))
        assert expected.is_number or expected in (True, False)
        actual = evaluate(data, {"n": n, "m": m}.__getitem__)
        assert same(actual, float(expected) if expected.is_number else bool(expected))


def test_every_function_of_pytorchs_sizes_is_one_of_a_file():
    """Those that PyTorch defines for sizes, and those that it computes sizes by."""
    defined = {
        name
        for name, var in vars(functions).items()
        if inspect.isclass(var)
        and issubclass(var, sympy.Basic)
        and var.__module__ == functions.__name__
    }
    computed = {handler.__name__ for handler in interp.handlers()}
    tensors_only = {function.__name__ for function in (sympy.exp, sympy.log, *TRIGONOMETRIC)}

    assert defined - {"MinMaxBase"} <= FUNCTIONS.keys()
    assert computed - tensors_only <= FUNCTIONS.keys()


TRIGONOMETRIC = (
    *(sympy.sin, sympy.cos, sympy.tan, sympy.asin, sympy.acos, sympy.atan),
    *(sympy.sinh, sympy.cosh, sympy.tanh),
)
"""SymPy's own, which Inductor uses for elements; for sizes, PyTorch has others that do not simplify."""


@pytest.mark.parametrize(
    "expression",
    [
        *(sympy.oo, sympy.nan, sympy.zoo, sympy.E, sympy.I, sympy.pi, functions.int_oo),
        *(sympy.sin(SYMBOLS[0]), sympy.Function("system")(SYMBOLS[0]), sympy.Lambda(SYMBOLS, 1)),
    ],
    ids=str,
)
def test_what_is_no_size_is_not_written(expression):
    """SymPy has more numbers and functions than sizes need."""
    for size in (expression, sympy.Eq(SYMBOLS[0], expression, evaluate=False)):
        with pytest.raises(InexpressibleError, match="which is no function of sizes"):
            to_json(size)


@pytest.mark.parametrize(
    "data",
    [
        *(None, "n", 1.5, {}, [], ["symbol"], ["symbol", "n", 1], ["bool", 1], ["float", "1"]),
        *(
            ["rational", 1, 0],
            ["rational", 1],
            ["float", True],
            ["system", "ls"],
            ["__import__", "os"],
        ),
        *(["Add"], ["Lambda", 1], ["Function", "f"], [["Add"], 1], ["Add", ["Add", "n"]]),
        *(
            ["FloorDiv", 1, 0],
            ["FloorDiv", 1],
            ["Piecewise", 1],
            ["Mod", -1, 3],
            ["Where", 1, 2],
        ),
    ],
    ids=str,
)
def test_data_that_is_no_size_is_refused(data):
    """Before or while an expression is made of it."""
    with pytest.raises(UnreadableFileError, match="it describes a size as"):
        from_json(data, lambda name: sympy.Symbol(name, integer=True))


def nested(count: int) -> Any:
    """Returns data that nests so deep."""
    data: Any = ["symbol", "n"]
    for _ in range(count):
        data = ["FloorDiv", data, 2]
    return data


def test_a_size_that_nests_deeper_than_any_is_refused():
    """It would end in Python's error for too many calls, wherever the size is used."""
    check_size(nested(100))
    for count in (201, 900, 10**5):
        with pytest.raises(UnreadableFileError, match="a size that nests too deep"):
            check_size(nested(count))


@pytest.mark.parametrize(
    "data",
    [
        ["Pow", 9, ["Pow", 9, ["Pow", 9, 9]]],
        ["Pow", ["symbol", "n"], 10**10],
        ["Pow", ["Pow", 2, 4096], 4096],
        ["LShift", 1, 10**12],
        ["Pow", ["rational", 1, 3], 10**9],
        ["FloatPow", 9, ["Add", ["symbol", "n"], 10**9]],
        [*["Mul"], *[10**300] * 100],
        ["FloorDiv", ["Pow", ["Add", ["symbol", "n"], 1], 65], ["symbol", "n"]],
        ["Mul", ["Pow", ["Pow", ["symbol", "n"], 8], 8], ["symbol", "n"]],
    ],
    ids=str,
)
def test_an_immense_number_is_refused(data):
    """Computing it would take all memory, or all time."""
    with pytest.raises(UnreadableFileError, match="a number that is too large"):
        from_json(data, sympy.Symbol)


def test_an_immense_power_of_sizes_is_not_computed():
    """What a file's powers come to depends on the sizes of a call."""
    data = ["Pow", ["symbol", "n"], ["Pow", ["symbol", "n"], ["symbol", "n"]]]
    check_size(data)

    assert evaluate(data, {"n": 3}.__getitem__) == 3**27
    with pytest.raises(OverflowError, match="a number of"):
        evaluate(data, {"n": 12}.__getitem__)
    with pytest.raises(OverflowError, match="a number of"):
        evaluate(["LShift", 1, ["symbol", "n"]], {"n": 10**9}.__getitem__)


def test_symbolic_sizes_are_computed_as_numbers_are():
    """PyTorch traces the sizes of an engine's outputs."""
    shapes = ShapeEnv()
    sizes = {name: shapes.create_unbacked_symint() for name in "nm"}
    data = through_json(functions.Max(1, functions.FloorDiv(SYMBOLS[0] * 3 - SYMBOLS[1], 2)))

    made = evaluate(data, sizes.__getitem__)

    values = {sizes["n"].node.expr: 12, sizes["m"].node.expr: 5}
    assert 15 == evaluate_expression(made.node.expr, values)
