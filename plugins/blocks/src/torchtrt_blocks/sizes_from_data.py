"""The most that sizes can be that depend on data: what is chosen from a tensor is no more than the tensor has.

PyTorch derives it while it exports a program, where the sizes of the inputs may have no limits yet, and not for the
ops of other libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from torchtrt.conversion import arguments_of, value_of
from torchtrt_blocks.branches import branch_results
from torchtrt_blocks.sizes import maximum, maximum_product

aten = torch.ops.aten

Most = Callable[[Node], int | None]
"""Returns the most that the sizes can be that a node makes of data, or ``None`` if nothing bounds them."""


def _elements(node: Node) -> int | None:
    return maximum_product(value_of(node.args[0]).shape)


def _slices(node: Node) -> int | None:
    op = arguments_of(node)
    dim = getattr(op, "dim", None)
    return _elements(node) if dim is None else maximum(value_of(op.self).shape[dim])


def _places_of_masks(node: Node) -> int | None:
    masks = [
        value
        for value in map(value_of, arguments_of(node).indices)
        if isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.uint8)
    ]
    counts = [maximum_product(mask.shape) for mask in masks]
    finite = [count for count in counts if count is not None]
    return max(finite) if finite and len(finite) == len(counts) else None


def _broadcast_elements(node: Node) -> int | None:
    op = arguments_of(node)
    shapes = [list(value_of(argument).shape) for argument in (op.self, op.mask)]
    rank = max(map(len, shapes))
    aligned = zip(*([1] * (rank - len(shape)) + shape for shape in shapes), strict=True)
    return maximum_product([torch.sym_max(*pair) for pair in aligned])


_MOST: Mapping[Any, Most] = {
    aten.nonzero.default: _elements,
    aten.index.Tensor: _places_of_masks,
    aten.masked_select.default: _broadcast_elements,
    aten._unique2.default: _elements,
    aten.unique_consecutive.default: _slices,
    aten.unique_dim.default: _slices,
}


def limit_sizes_from_data(graph: Graph, further: Mapping[Any, Most] | None = None) -> None:
    """Sets the maximum of the sizes that a graph makes of data, which checks and engines ask for.

    Args:
        graph: The graph.
        further: For ops beside those of Core ATen what returns the most at a node.
    """
    from torchtrt.graphs import shape_env_of  # slow to import

    rules = {**_MOST, **(further or {})}
    environment: Any = shape_env_of(graph)
    for node in graph.nodes:
        if node.target is torch.ops.higher_order.cond:
            limits = _of_branches(node)
        elif node.target in rules:
            limits = dict.fromkeys(_new_symbols(node), rules[node.target](node))
        else:
            continue
        for symbol, most in limits.items():
            if most is not None:
                environment.constrain_symbol_range(symbol, 0, most)


def asserted_size(node: Node) -> str | None:
    """Rejects an op that makes a size of data where the program asserts which one it is.

    PyTorch then takes the size for this number, and so does all that follows. An engine would compute something else
    for other sizes, and not refuse them as PyTorch does.
    """
    from torchtrt.graphs import shape_env_of  # slow to import

    environment: Any = shape_env_of(node.graph)
    symbols = _new_symbols(node)
    if symbols and not any(environment.var_to_range[symbol].is_singleton() for symbol in symbols):
        return None
    return "the program is for one size of the result only, which the data must have"


def _new_symbols(node: Node) -> set[Any]:
    """Returns the symbols of the sizes that a node makes of data."""
    from torchtrt.graphs import sizes_from_data  # slow to import

    read = sizes_from_data([source.meta.get("val") for source in node.all_input_nodes])
    return sizes_from_data(node.meta["val"]) - read


def _of_branches(node: Node) -> dict[Any, int | None]:
    """Returns the most of each size that is that of one branch or the other."""
    symbols = _new_symbols(node)
    results = zip(node.meta["val"], *branch_results(node), strict=True)
    limits: dict[Any, int | None] = {}
    for values in results if symbols else ():
        for size, *either in zip(*(value.shape for value in values), strict=True):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if expression in symbols:
                most = [maximum(branch_size) for branch_size in either]
                finite = [limit for limit in most if limit is not None]
                limits[expression] = max(finite) if len(finite) == len(most) else None
    return limits
