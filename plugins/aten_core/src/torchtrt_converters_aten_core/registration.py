"""How this pack registers converters, and what every one of them requires."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from torchtrt.conversion import get_trt_tensor
from torchtrt.conversion.constants import dtype_name
from torchtrt.packs import ConverterPack
from torchtrt.registry import Reject
from torchtrt.tensorrt.dtypes import network_dtype
from torchtrt_converters_aten_core._pack import pack

COMPUTE_DTYPES = frozenset(
    {
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.bool,
    }
)
"""The dtypes that TensorRT computes with. float64 reaches a converter only with ``truncate_double``."""
STORAGE_DTYPES = COMPUTE_DTYPES | {torch.uint8, torch.int8}
"""The dtypes that can be cast. TensorRT moves no bytes around but in casts and at the network's edges."""
RANK_LIMIT = 8

Check = Callable[[Node], str | None]
"""Looks at a node of the graph and returns why TensorRT cannot do it, in words, or ``None`` if it can."""


def converts(
    *targets: Any,
    unless: Check | Sequence[Check] = (),
    dtypes: frozenset[torch.dtype] = COMPUTE_DTYPES,
    keep_constants: bool = False,
    empty: bool = False,
    numbers: bool = False,
    into: ConverterPack = pack,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that registers a converter for each of the targets.

    Every converter of this pack supports dynamic shapes. The tensors that a node reads and makes
    must be of ``dtypes`` and of a rank that TensorRT has.

    Args:
        *targets: The ops.
        unless: One check or several: each returns a reason to reject a node, or ``None``.
        dtypes: The dtypes that the converter handles.
        keep_constants: Whether the converter wants weights as PyTorch tensors. Otherwise it
            receives them as network tensors.
        empty: Whether it handles tensors known to have no elements. TensorRT refuses many layers
            over them.
        numbers: Whether whole numbers among the arguments become elements, and not sizes or places.
        into: The pack to register in.
    """
    checks = (unless,) if callable(unless) else tuple(unless)

    def validate(node: Node, settings: Any) -> bool | Reject:
        reason = _unfit_tensor(node, dtypes, empty) or _unfit_constant(node)
        if reason is None and numbers:
            reason = _unfit_number(node)
        for check in checks:
            reason = reason or check(node)
        return Reject(reason) if reason else True

    validate.checks = checks  # type: ignore[attr-defined]  # for the page that lists every op's rules

    def register(converter: Callable[..., Any]) -> Callable[..., Any]:
        registered = converter if keep_constants else _with_network_tensors(converter)
        for target in targets:
            into.add(
                target, registered, capability_validator=validate, supports_dynamic_shapes=True
            )
        return converter

    return register


converts_elementwise = functools.partial(converts, empty=True, numbers=True)
"""As :func:`converts`, for layers that work element by element: no elements are no trouble."""


def _with_network_tensors(converter: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(converter)
    def convert(
        ctx: Any, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], name: str
    ) -> Any:
        places = itertools.count()

        def as_network_tensor(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return get_trt_tensor(ctx, value, f"{name}/constant{next(places)}")
            if isinstance(value, (list, tuple)):
                return type(value)(map(as_network_tensor, value))
            return value

        args = tuple(map(as_network_tensor, args))
        kwargs = {label: as_network_tensor(value) for label, value in kwargs.items()}
        return converter(ctx, target, args, kwargs, name)

    return convert


def _unfit_tensor(node: Node, dtypes: frozenset[torch.dtype], empty: bool) -> str | None:
    result = node.meta.get("val")
    rank = result.dim() if isinstance(result, torch.Tensor) else 0
    for source in (node, *node.all_input_nodes):
        value = source.meta.get("val")
        for leaf in (value,) if isinstance(value, torch.Tensor) else pytree.tree_leaves(value):
            if not isinstance(leaf, torch.Tensor):
                continue
            if leaf.dtype not in dtypes:
                return f"TensorRT does not compute this op with {dtype_name(leaf.dtype)}"
            if leaf.dim() > RANK_LIMIT:
                return f"TensorRT has tensors of at most {RANK_LIMIT} dimensions, not {leaf.dim()}"
            if source is node and isinstance(value, (tuple, list)):
                continue  # an output that nothing reads may be empty
            if is_empty(leaf) and not (empty and (leaf.dim() >= rank or leaf.dim() == 1)):
                return "TensorRT does not do this with an empty tensor"
    return None


def _unfit_constant(node: Node) -> str | None:
    """Rejects 64-bit whole numbers that do not fit into 32 bits, where TensorRT has no more."""
    for source in node.all_input_nodes:
        value = source.meta.get("val")
        if source.op == "get_attr" and isinstance(value, torch.Tensor):
            values = attrgetter(str(source.target))(source.graph.owning_module)
            if _is_narrowed(values) and values.numel() and not _fits(values.aminmax()):
                return "this TensorRT has whole numbers of 32 bits, and a constant is beyond them"
    return None


def _unfit_number(node: Node) -> str | None:
    """Rejects numbers among the arguments that do not fit into 32 bits, where TensorRT has no more."""
    numbers = [leaf for leaf in pytree.tree_leaves(node.args) if isinstance(leaf, int)]
    if not _fits(numbers) and any(
        _is_narrowed(value_of(source)) for source in (node, *node.all_input_nodes)
    ):
        return "this TensorRT has whole numbers of 32 bits, and a number is beyond them"
    return None


def _is_narrowed(value: Any) -> bool:
    """Returns whether a tensor's 64-bit whole numbers have 32 bits inside the network."""
    is_long = isinstance(value, torch.Tensor) and value.dtype is torch.int64
    return is_long and network_dtype(torch.int64) is not torch.int64


def _fits(numbers: Iterable[Any]) -> bool:
    return all(-(2**31) <= number < 2**31 for number in numbers)


class Arguments(SimpleNamespace):
    """An op's arguments by the names of its schema, defaults filled in."""


def arguments(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Returns an op's arguments as attributes named as in its schema, defaults filled in."""
    values = {}
    for index, parameter in enumerate(target._schema.arguments):
        name = parameter.name
        if index < len(args):
            values[name] = args[index]
        elif name in kwargs:
            values[name] = kwargs[name]
        else:
            values[name] = parameter.default_value if parameter.has_default_value() else None
    return Arguments(**values)


def node_arguments(node: Node) -> Any:
    """Returns a node's arguments as :func:`arguments` does: nodes where the op reads tensors."""
    return arguments(node.target, node.args, node.kwargs)


def value_of(argument: Any) -> Any:
    """Returns what PyTorch knows of a node's argument: a fake tensor, a size, or the argument itself."""
    return argument.meta.get("val") if isinstance(argument, Node) else argument


def is_constant(argument: Any) -> bool:
    """Returns whether an argument of a node is known when the network is built."""
    return not isinstance(argument, Node) or argument.op == "get_attr"


def is_empty(*values: Any) -> bool:
    """Returns whether one of these fake tensors is known to have no elements."""
    return any(isinstance(size, int) and size == 0 for value in values for size in value.shape)
