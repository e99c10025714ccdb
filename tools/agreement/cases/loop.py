"""Loops: trip limits, recurrences, iterators, every kind of output, nesting, static and dynamic."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, ShapeValues, dynamic

START = np.array([1, 2], np.float32)
ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)
SUM, PROD = "ElementWiseOperation.SUM", "ElementWiseOperation.PROD"


def trips_of(n: Network, loop: Any, trips: Any) -> Any:
    """A count trip limit: a number, or the name of an input."""
    count = n[trips] if isinstance(trips, str) else n.scalar(trips)
    n.call(loop, "add_trip_limit", count, "TripLimit.COUNT")
    return count


def recurrent(n: Network, loop: Any, start: Any, step: Any) -> tuple[Any, Any]:
    """A recurrence that adds ``step``: its layer and what follows."""
    layer = n.call(loop, "add_recurrence", start)
    following = n.out("elementwise", layer.get_output(0), step, SUM)
    layer.set_input(1, following)
    return layer, following


def output(n: Network, loop: Any, tensor: Any, kind: str, axis: int = 0, length: Any = None) -> Any:
    """A loop output."""
    layer = n.call(loop, "add_loop_output", tensor, f"LoopOutput.{kind}", axis)
    if length is not None:
        layer.set_input(1, length)
    return layer


def counted(
    name: str,
    kind: str,
    trips: Any,
    length: Any = None,
    axis: int = 0,
    of_start: bool | None = None,
    **inputs: Given,
) -> Case:
    """A loop that adds (1, 2) to (1, 2) in every iteration."""

    def build(n: Network) -> Any:
        loop = n.call(n.definition, "add_loop")
        count = trips_of(n, loop, trips)
        layer, following = recurrent(n, loop, n["x"], n["x"])
        from_start = kind == "LAST_VALUE" if of_start is None else of_start
        tensor = layer.get_output(0) if from_start else following
        size = None if kind == "LAST_VALUE" else count if length is None else n.scalar(length)
        return output(n, loop, tensor, kind, axis, size)

    return Case(f"loop/{name}", {"x": START, **inputs}, build)


def iterated(
    name: str,
    x: Given,
    axis: int = 0,
    reverse: bool = False,
    kind: str = "CONCATENATE",
    trips: Any = None,
) -> Case:
    """A running sum over the slices of a tensor."""
    sizes = (x if isinstance(x, np.ndarray) else x.value).shape

    def build(n: Network) -> Any:
        loop = n.call(n.definition, "add_loop")
        count = n.scalar(trips) if trips is not None else n.size(n["x"], axis)
        n.call(loop, "add_trip_limit", count, "TripLimit.COUNT")
        piece = n.call(loop, "add_iterator", n["x"], axis, reverse).get_output(0)
        zeros = n.constant(np.zeros(sizes[:axis] + sizes[axis + 1 :], np.float32))
        _, following = recurrent(n, loop, zeros, piece)
        return output(n, loop, following, kind, axis, count)

    return Case(f"loop/iterator {name}", {"x": x}, build)


def while_below(
    name: str, limit: float, and_count: int | None = None, concatenated: bool = False
) -> Case:
    """Doubles a number while it is below a limit."""

    def build(n: Network) -> Any:
        loop = n.call(n.definition, "add_loop")
        if and_count is not None:
            trips_of(n, loop, and_count)
        layer = n.call(loop, "add_recurrence", n["x"])
        current = layer.get_output(0)
        below = n.out(
            "elementwise", current, n.scalar(limit, np.float32), "ElementWiseOperation.LESS"
        )
        n.call(loop, "add_trip_limit", below, "TripLimit.WHILE")
        doubled = n.out("elementwise", current, n.scalar(2.0, np.float32), PROD)
        layer.set_input(1, doubled)
        if concatenated:
            return output(n, loop, doubled, "CONCATENATE", 0, n.scalar(and_count))
        return output(n, loop, current, "LAST_VALUE")

    return Case(f"loop/while {name}", {"x": np.array(1.0, np.float32)}, build)


def nested(n: Network) -> Any:
    """Two loops, one in the other: (1, 2) + 2 * 3 * (1, 2)."""
    outer = n.call(n.definition, "add_loop")
    trips_of(n, outer, 2)
    carried = n.call(outer, "add_recurrence", n["x"])
    inner = n.call(n.definition, "add_loop")
    trips_of(n, inner, 3)
    layer, _ = recurrent(n, inner, carried.get_output(0), n["x"])
    carried.set_input(1, output(n, inner, layer.get_output(0), "LAST_VALUE").get_output(0))
    return output(n, outer, carried.get_output(0), "LAST_VALUE")


def malformed(name: str, build_inside: Any) -> Case:
    """A loop of three iterations with something wrong in it."""

    def build(n: Network) -> Any:
        loop = n.call(n.definition, "add_loop")
        trips_of(n, loop, 3)
        return build_inside(n, loop)

    return Case(f"loop/malformed/{name}", {"x": START}, build)


def without_next(n: Network, loop: Any) -> Any:
    """A recurrence whose second input is missing."""
    layer = n.call(loop, "add_recurrence", n["x"])
    return output(n, loop, layer.get_output(0), "LAST_VALUE")


def growing(n: Network, loop: Any) -> Any:
    """A recurrence whose shape changes."""
    layer = n.call(loop, "add_recurrence", n["x"])
    current = layer.get_output(0)
    layer.set_input(1, n.out("concatenation", [current, current], axis=0))
    return output(n, loop, current, "LAST_VALUE")


def other_type(n: Network, loop: Any) -> Any:
    """A recurrence whose type changes."""
    layer = n.call(loop, "add_recurrence", n["x"])
    layer.set_input(1, n.out("cast", layer.get_output(0), "DataType.INT32"))
    return output(n, loop, layer.get_output(0), "LAST_VALUE")


def without_length(n: Network, loop: Any) -> Any:
    """A concatenation without a length."""
    _, following = recurrent(n, loop, n["x"], n["x"])
    return output(n, loop, following, "CONCATENATE")


def interior_output(n: Network, loop: Any) -> Any:
    """A tensor of the loop's interior as the network's output."""
    return [recurrent(n, loop, n["x"], n["x"])[1]]


def two_counts(n: Network, loop: Any) -> Any:
    """Two count trip limits."""
    trips_of(n, loop, 2)
    return without_mistake(n, loop)


def without_mistake(n: Network, loop: Any) -> Any:
    """Nothing wrong: what the other cases differ from."""
    layer, _ = recurrent(n, loop, n["x"], n["x"])
    return output(n, loop, layer.get_output(0), "LAST_VALUE")


def unlimited(n: Network) -> Any:
    """A loop without a trip limit."""
    return without_mistake(n, n.call(n.definition, "add_loop"))


def two_outputs(n: Network) -> Any:
    """A last value and a concatenation of one loop."""
    loop = n.call(n.definition, "add_loop")
    count = trips_of(n, loop, 3)
    layer, following = recurrent(n, loop, n["x"], n["x"])
    last = output(n, loop, layer.get_output(0), "LAST_VALUE")
    every = output(n, loop, following, "CONCATENATE", 0, count)
    return [last.get_output(0), every.get_output(0)]


TRIPS = ShapeValues(np.array(3, np.int32), (0,), (5,))
MALFORMED = (
    without_mistake,
    without_next,
    growing,
    other_type,
    without_length,
    interior_output,
    two_counts,
)

CASES = (
    *(counted(f"LAST_VALUE {trips} trips", "LAST_VALUE", trips) for trips in (0, 1, 3, -1)),
    *(
        counted(f"{kind} {trips} trips", kind, trips)
        for kind in ("CONCATENATE", "REVERSE")
        for trips in (0, 1, 3)
    ),
    *(
        counted(f"{kind} axis {axis}", kind, 3, axis=axis)
        for kind in ("CONCATENATE", "REVERSE")
        for axis in (1, 2)
    ),
    *(
        counted(f"{kind} of the recurrence", kind, 3, of_start=True)
        for kind in ("CONCATENATE", "REVERSE")
    ),
    counted("CONCATENATE shorter than the trips", "CONCATENATE", 3, length=2),
    counted("LAST_VALUE of what follows", "LAST_VALUE", 3, of_start=False),
    *(
        counted(f"{kind}, trips as shape input", kind, "count", count=TRIPS)
        for kind in ("LAST_VALUE", "CONCATENATE", "REVERSE")
    ),
    iterated("rows", ROWS),
    iterated("columns", ROWS, 1),
    iterated("rows backwards", ROWS, reverse=True),
    iterated("rows, output reversed", ROWS, kind="REVERSE"),
    iterated("rows backwards, output reversed", ROWS, reverse=True, kind="REVERSE"),
    iterated("dynamic rows", dynamic(ROWS, 0)),
    iterated("dynamic rows backwards", dynamic(ROWS, 0), reverse=True),
    iterated("fewer trips than rows", ROWS, trips=2),
    iterated("fewer trips than rows, backwards", ROWS, reverse=True, trips=2),
    iterated("vector", ROWS[:, 0]),
    while_below("below", 10.0),
    while_below("never", 0.0),
    while_below("below, at most 2", 10.0, 2),
    while_below("below, at most 9", 10.0, 9),
    while_below("below, concatenated", 3.0, 2, concatenated=True),
    Case("loop/nested", {"x": START}, nested),
    Case("loop/without a trip limit", {"x": START}, unlimited),
    Case("loop/two outputs", {"x": START}, two_outputs),
    *(malformed(build.__name__.replace("_", " "), build) for build in MALFORMED),
)
