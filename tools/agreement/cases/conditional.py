"""Conditionals and assertions: conditions, branches, types, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, dynamic

X = np.array([1, 2], np.float32)


def conditional(name: str, condition: Any, branches: Any, x: Given = X) -> Case:
    """A conditional; ``branches`` makes its two branches from the gated input."""
    condition_inputs = {"condition": condition} if isinstance(condition, np.ndarray) else {}

    def build(n: Network) -> Any:
        made = n.call(n.definition, "add_if_conditional")
        value = n["condition"] if condition_inputs else n.scalar(condition, bool)
        n.call(made, "set_condition", value)
        inside = n.call(made, "add_input", n["x"]).get_output(0)
        return n.call(made, "add_output", *branches(n, inside))

    return Case(f"conditional/{name}", {"x": x, **condition_inputs}, build)


def exp_or_neg(n: Network, x: Any) -> tuple[Any, Any]:
    """EXP or NEG."""
    return n.out("unary", x, "UnaryOperation.EXP"), n.out("unary", x, "UnaryOperation.NEG")


def exp_or_same(n: Network, x: Any) -> tuple[Any, Any]:
    """EXP or the gated input itself."""
    return n.out("unary", x, "UnaryOperation.EXP"), x


def exp_or_outer(n: Network, x: Any) -> tuple[Any, Any]:
    """EXP or the tensor outside."""
    return n.out("unary", x, "UnaryOperation.EXP"), n["x"]


def outer_only(n: Network, x: Any) -> tuple[Any, Any]:
    """EXP or NEG of the tensor outside, used directly."""
    return exp_or_neg(n, n["x"])


def other_shapes(n: Network, x: Any) -> tuple[Any, Any]:
    """The input or the input twice."""
    return n.out("identity", x), n.out("concatenation", [x, x], axis=0)


def other_ranks(n: Network, x: Any) -> tuple[Any, Any]:
    """The input or a matrix of it."""
    return n.out("identity", x), n.out("shuffle", x, reshape_dims=(1, 2))


def other_types(n: Network, x: Any) -> tuple[Any, Any]:
    """The input or the input as int32."""
    return n.out("identity", x), n.out("cast", x, "DataType.INT32")


def constants(n: Network, x: Any) -> tuple[Any, Any]:
    """Two constants."""
    return n.constant([1.0, 2.0]), n.constant([3.0, 4.0])


def without_condition(n: Network) -> Any:
    """A conditional whose condition is missing."""
    made = n.call(n.definition, "add_if_conditional")
    inside = n.call(made, "add_input", n["x"]).get_output(0)
    return n.call(made, "add_output", *exp_or_neg(n, inside))


def interior_output(n: Network) -> Any:
    """A tensor of a branch as the network's output."""
    made = n.call(n.definition, "add_if_conditional")
    n.call(made, "set_condition", n["condition"])
    inside = n.call(made, "add_input", n["x"]).get_output(0)
    branches = exp_or_neg(n, inside)
    n.call(made, "add_output", *branches)
    return [branches[0]]


def nested(n: Network, x: Any) -> tuple[Any, Any]:
    """A conditional in the first branch."""
    made = n.call(n.definition, "add_if_conditional")
    n.call(made, "set_condition", n["condition"])
    inside = n.call(made, "add_input", x).get_output(0)
    return n.call(made, "add_output", *exp_or_neg(n, inside)).get_output(0), n.out("identity", x)


def nested_inside(n: Network, x: Any) -> tuple[Any, Any]:
    """A conditional in the first branch, whose condition is computed there."""
    made = n.call(n.definition, "add_if_conditional")
    first = n.out("gather", x, n.scalar(0), 0)
    above = n.out("elementwise", first, n.scalar(0.5, np.float32), "ElementWiseOperation.GREATER")
    n.call(made, "set_condition", above)
    inside = n.call(made, "add_input", x).get_output(0)
    return n.call(made, "add_output", *exp_or_neg(n, inside)).get_output(0), n.out("identity", x)


def looped(n: Network, x: Any) -> tuple[Any, Any]:
    """A loop in the first branch."""
    loop = n.call(n.definition, "add_loop")
    n.call(loop, "add_trip_limit", n.scalar(3), "TripLimit.COUNT")
    layer = n.call(loop, "add_recurrence", x)
    layer.set_input(1, n.out("unary", layer.get_output(0), "UnaryOperation.NEG"))
    last = n.call(loop, "add_loop_output", layer.get_output(0), "LoopOutput.LAST_VALUE", 0)
    return last.get_output(0), n.out("identity", x)


def assertion(name: str, condition: Any, inputs: dict[str, Given]) -> Case:
    """An assertion beside an identity."""

    def build(n: Network) -> Any:
        n.layer("assertion", condition(n), "what was asserted")
        return n.layer("identity", n["x"])

    return Case(f"conditional/assertion/{name}", inputs, build)


def has_rows(count: int) -> Any:
    """Whether x has so many rows."""
    return lambda n: n.out(
        "elementwise", n.size(n["x"], 0), n.scalar(count), "ElementWiseOperation.EQUAL"
    )


BRANCHES = (
    exp_or_neg,
    exp_or_same,
    exp_or_outer,
    outer_only,
    other_shapes,
    other_ranks,
    other_types,
    constants,
    nested,
    nested_inside,
    looped,
)
TRUE, FALSE = np.array(True), np.array(False)

CASES = (
    *(
        conditional(f"{branches.__name__.replace('_', ' ')} {bool(value)}", value, branches)
        for branches in BRANCHES
        for value in (TRUE, FALSE)
    ),
    *(conditional(f"constant {value}", value, exp_or_neg) for value in (True, False)),
    *(
        conditional(f"dynamic {bool(value)}", value, exp_or_neg, dynamic(X))
        for value in (TRUE, FALSE)
    ),
    conditional("condition of rank 1", np.array([True]), exp_or_neg),
    conditional("condition of int32", np.array(1, np.int32), exp_or_neg),
    conditional("condition of float32", np.array(1, np.float32), exp_or_neg),
    Case("conditional/without a condition", {"x": X}, without_condition),
    Case("conditional/interior output", {"x": X, "condition": TRUE}, interior_output),
    *(
        assertion(f"constant {value}", lambda n, v=value: n.scalar(v, bool), {"x": X})
        for value in (True, False)
    ),
    *(assertion(f"static size {count}", has_rows(count), {"x": X}) for count in (2, 3)),
    *(assertion(f"dynamic size {count}", has_rows(count), {"x": dynamic(X)}) for count in (2, 3)),
    assertion("execution tensor", lambda n: n["condition"], {"x": X, "condition": TRUE}),
    assertion("of float32", lambda n: n.scalar(1.0, np.float32), {"x": X}),
    assertion("of rank 1", lambda n: n.constant([True, True], bool), {"x": X}),
    assertion("of rank 2", lambda n: n.constant([[True, True]], bool), {"x": X}),
)
