"""Whether float32 gives the integer to which a fraction of sizes is rounded: PyTorch computes it in float64."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from torchtrt.conversion import value_of
from torchtrt_converters_aten_core.torch_internals import sym_sqrt

_MOST = 1 << 18
"""For how many combinations of sizes a number is computed in both ways."""
_FLOATING: dict[Any, Callable[..., Any]] = {
    operator.add: np.add,
    operator.sub: np.subtract,
    operator.mul: np.multiply,
    operator.truediv: np.true_divide,
    operator.neg: np.negative,
    operator.floordiv: np.floor_divide,
    torch.sym_max: np.maximum,
    torch.sym_min: np.minimum,
    torch.sym_float: lambda number: number,
    sym_sqrt: np.sqrt,
    math.floor: np.floor,
    math.ceil: np.ceil,
    math.trunc: np.trunc,
    round: np.round,
    operator.eq: np.equal,
    operator.ne: np.not_equal,
    operator.lt: np.less,
    operator.le: np.less_equal,
    operator.gt: np.greater,
    operator.ge: np.greater_equal,
}


def differs_in_float32(node: Node) -> str | None:
    """Returns why an integer or a condition may not be that of float64, or ``None``.

    Args:
        node: A node that rounds or compares numbers, one of them with a fraction.
    """
    numbers = [value_of(argument) for argument in node.args]
    if not any(isinstance(number, (float, torch.SymFloat)) for number in numbers):
        return None
    sizes = _sizes_in(node)
    grid = _grid(sizes) if sizes else None
    if grid is None:
        return "float32 may round it to another number than float64 for some of the sizes"
    with np.errstate(all="ignore"):
        results = [
            _computed(node, dict(zip(sizes, grid, strict=True)), kind)
            for kind in (np.float32, np.float64)
        ]
    single, double = results
    if single is None or double is None or not np.array_equal(single, double, equal_nan=True):
        return "in float32 it is another number than in float64 for some of the sizes"
    return None


def _sizes_in(node: Node) -> list[Any]:
    """Returns the nodes of integers from which the numbers of a node are computed."""
    sizes: dict[Node, None] = {}
    waiting = [node]
    while waiting:
        for source in waiting.pop().all_input_nodes:
            value = source.meta.get("val")
            if isinstance(value, torch.SymInt) and not _is_rounded(source):
                sizes[source] = None
            else:
                waiting.append(source)
    return [*sizes]


def _is_rounded(node: Node) -> bool:
    """Returns whether an integer is computed from fractions."""
    return any(
        isinstance(source.meta.get("val"), torch.SymFloat) for source in node.all_input_nodes
    )


def _grid(sizes: list[Any]) -> list[Any] | None:
    """Returns arrays with all combinations of the values of sizes; None where there are too many.

    Of a size that a program leaves without a bound, the smallest values stand for all.
    """
    from torchtrt.graphs import size_bounds  # slow to import

    ranges, unbounded = [], int(_MOST ** (1 / len(sizes)))
    for size in sizes:
        least, most = size_bounds(size.meta["val"])
        ranges.append(range(min(least or 0, 0), unbounded if most is None else most + 1))
    if math.prod(map(len, ranges)) > _MOST:
        return None
    return [axis.ravel() for axis in np.meshgrid(*map(np.array, ranges))]


def _computed(number: Any, values: dict[Any, Any], kind: Any) -> Any:
    """Returns the values of a number in a floating-point type; None where an op is unknown."""
    if not isinstance(number, Node):
        return kind(number)
    if number in values:
        return values[number].astype(kind)
    function = _FLOATING.get(number.target)
    arguments = [
        _computed(argument, values, kind) for argument in number.args if argument is not None
    ]
    if function is None or any(argument is None for argument in arguments):
        return None
    return function(*arguments)
