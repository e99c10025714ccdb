"""Computes, once, what depends on no input."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from torchtrt.contract import constant_of
from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.nodes import is_never_folded, writes
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.targets import qualified_name
from torchtrt.torch_internals import OpOverload
from torchtrt_compiler.lowering.aliasing import is_contiguous
from torchtrt_compiler.torch_internals import like_constructors

GROWTH_LIMIT = 1 << 16
"""A folded value may have this many elements, or as many as its largest input, whichever is more.

Folding must not turn a small weight and an ``expand`` into a large weight."""
_FILLING = frozenset(op for op in like_constructors if "empty" not in str(op))
"""Ops that read the dtype and the device of their first argument, and perhaps its sizes, but none of its numbers."""


_WORDS = (torch.uint8, torch.int32)
"""The dtypes in which libraries pack weights of fewer bits."""
_QUANTIZED = (torch.int8, torch.float8_e4m3fn)
"""The dtypes of quantized weights."""
SMALLEST_PACKED = 1024
"""Integers of fewer elements are no packed weights."""


class Unpacked(NamedTuple):
    """A constant in floating point that follows from a weight of packed integers.

    Attributes:
        name: The weight.
        packed_bytes: The bytes of the weight.
        bytes: The bytes of the constant.
    """

    name: str
    packed_bytes: int
    bytes: int


def fold_constants(
    graph_module: GraphModule, mutated: Collection[str] = (), *, keep_quantized: bool = False
) -> list[Unpacked]:
    """Replaces nodes that depend on weights and literals only by their values: ``x.new_zeros(2)`` is one.

    So are tensors that are known to have no elements, whatever they depend on: nothing is to be
    computed. Random nodes, nodes with symbolic sizes, what packs keep and attributes in ``mutated`` are left alone.
    A view of a weight stays a view: it takes no memory of its own.

    Args:
        graph_module: The graph.
        mutated: The names of attributes that the graph writes to.
        keep_quantized: Leave conversions of quantized weights to floating point alone, for the packs' passes.

    Returns:
        The values in floating point that follow from packed weights.
    """
    graph = graph_module.graph
    values, folded = _computed_values(graph, mutated, keep_quantized)
    first_call = next(node for node in graph.nodes if node.op != "placeholder")
    names = _free_names(graph_module)
    packed = _packed_sources(values)
    unpacked: list[Unpacked] = []
    for node in folded:
        if all(user in values for user in node.users):
            continue  # only other folded nodes read it
        insertion_point = first_call if node.op == "placeholder" else node
        name = next(names)
        setattr(graph_module, name, values[node])
        if node in packed and values[node].is_floating_point():
            source = packed[node]
            unpacked.append(
                Unpacked(str(source.target), values[source].nbytes, values[node].nbytes)
            )
        _put_attribute(node, name, insertion_point)
    graph.eliminate_dead_code()
    return [weight for weight in unpacked if weight.bytes > weight.packed_bytes]


def _computed_values(
    graph: Graph, mutated: Collection[str], keep_quantized: bool
) -> tuple[dict[Node, torch.Tensor], list[Node]]:
    """Returns the values that depend on no input, by node, and the nodes that were not attributes before."""
    values: dict[Node, torch.Tensor] = {}
    folded: list[Node] = []
    for node in graph.nodes:
        if _is_empty(node):
            fake = node.meta["val"]
            values[node] = torch.empty(fake.shape, dtype=fake.dtype, device=fake.device)
            folded.append(node)
            continue
        constant = None if node.target in mutated else constant_of(node)
        if constant is not None:
            values[node] = constant
        elif keep_quantized and _dequantizes(node, values):
            continue
        elif node.op == "call_function" and _is_foldable(node, values):
            value_of = functools.partial(_argument_value, values=values, node=node)
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value_of)
            value = _computed(node, args, kwargs)
            if isinstance(value, torch.Tensor):
                values[node] = value
                folded.append(node)
    return values, folded


def _packed_sources(values: dict[Node, torch.Tensor]) -> dict[Node, Node]:
    """Returns the packed weight that each known value follows from, where there is one."""
    sources: dict[Node, Node] = {}
    for node, value in values.items():
        if node.op == "call_function":
            packed_source = next(filter(sources.__contains__, node.all_input_nodes), None)
            if packed_source is not None:
                sources[node] = sources[packed_source]
        elif value.dtype in _WORDS and value.numel() >= SMALLEST_PACKED:
            sources[node] = node
    return sources


def _put_attribute(node: Node, name: str, insertion_point: Node) -> None:
    """Replaces a node by the attribute with its value, which is read before ``insertion_point``."""
    graph = node.graph
    with graph.inserting_before(insertion_point):
        constant = graph.create_node("get_attr", name, name=f"{node.name}_folded")
    constant.meta = dict(node.meta)
    node.replace_all_uses_with(constant, delete_user_cb=lambda user: not writes(user))
    if node.op == "call_function" and not node.users:
        graph.erase_node(node)  # even a random one


def _free_names(graph_module: GraphModule) -> Iterator[str]:
    """Yields names for folded constants that no attribute has."""
    for number in itertools.count():
        name = f"_folded_{number}"
        if not hasattr(graph_module, name):
            yield name


def _computed(node: Node, args: Any, kwargs: Any) -> Any:
    """Returns what a node computes of constants.

    Raises:
        UnsupportedProgramError: PyTorch has no kernel for them; exporting needs none.
    """
    target: Any = node.target
    try:
        with torch.no_grad():
            return target(*args, **kwargs)
    except Exception as error:
        raise UnsupportedProgramError(
            f"PyTorch does not compute {qualified_name(target)} ({node.name}) of the model's constants: "
            f"{error}. The model would raise that in every call: give the op others."
        ) from error


def _is_empty(node: Node) -> bool:
    """Returns whether a node makes a tensor that is known to have no elements."""
    fake = node.meta.get("val")
    return (
        node.op in ("placeholder", "call_function")
        and isinstance(fake, torch.Tensor)
        and fake.layout is torch.strided
        and all(isinstance(size, int) for size in fake.shape)
        and fake.numel() == 0
        and not writes(node)
    )


def _dequantizes(node: Node, values: dict[Node, torch.Tensor]) -> bool:
    """Returns whether a call makes floating-point numbers of a quantized weight."""
    result = node.meta.get("val")
    return (
        isinstance(result, torch.Tensor)
        and result.dtype.is_floating_point
        and result.dtype not in _QUANTIZED
        and any(
            source in values and values[source].dtype in _QUANTIZED and values[source].numel() > 1
            for source in node.all_input_nodes
        )
    )


def _is_foldable(node: Node, values: dict[Node, torch.Tensor]) -> bool:
    """Returns whether a call is computed now: it depends on constants only, and does not grow them too much."""
    target, result = node.target, node.meta.get("val")
    if not isinstance(target, OpOverload) or not isinstance(result, torch.Tensor):
        return False
    if is_never_folded(node):
        return False
    if writes(node) or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    if DYNAMO_CONVERTERS.is_folding_disabled(target):
        return False
    if not all(isinstance(size, int) for size in result.shape):
        return False
    unknown = [source for source in node.all_input_nodes if source not in values]
    only_fills = target in _FILLING and unknown == [node.args[0]] and is_contiguous(result)
    if unknown and not only_fills:
        return False
    sizes = [values[source].numel() for source in node.all_input_nodes if source in values]
    return result.numel() <= max([GROWTH_LIMIT, *sizes])


def _argument_value(source: Node, values: dict[Node, torch.Tensor], node: Node) -> torch.Tensor:
    """Returns an argument's value; of a tensor that is only filled like, one without memory for its numbers."""
    if source in values:
        return values[source]
    fake = source.meta["val"]
    return torch.empty((), dtype=fake.dtype, device=fake.device).expand(node.meta["val"].shape)
