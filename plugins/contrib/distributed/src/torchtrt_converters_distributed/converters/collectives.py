"""Collectives as the layer ``IDistCollectiveLayer``: processes exchange tensors while their engines run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, add_layer, arguments_of, value_of
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, supports, trt
from torchtrt_blocks.checks import COMPUTE_DTYPES
from torchtrt_blocks.registration import Converter
from torchtrt_converters_distributed import pack
from torchtrt_converters_distributed.process_groups import group_objection, ranks_of
from torchtrt_converters_distributed.torch_internals import OpOverload

_DTYPES = COMPUTE_DTYPES - {torch.bool}
_REDUCTIONS = {"sum": "SUM", "avg": "AVG", "product": "PROD", "min": "MIN", "max": "MAX"}
_NAMESPACE = "_c10d_functional"


def unlike_group(node: Node, settings: CompilationSettings) -> str | None:
    """Returns why engines do not exchange tensors in the node's process group, or ``None``."""
    return group_objection(arguments_of(node).group_name, settings)


def unlike_reduction(node: Node) -> str | None:
    """Returns why TensorRT does not reduce as the node does, or ``None``."""
    kind = arguments_of(node).reduce_op.lower()
    if kind not in _REDUCTIONS:
        return f"TensorRT has no reduction {kind!r} of collectives, but {', '.join(_REDUCTIONS)}"
    if kind == "avg" and not value_of(node).is_floating_point():
        return "TensorRT documents no average of integers"
    return None


def unlike_rows(node: Node) -> str | None:
    """Returns why a tensor has no first dimension to gather or scatter along, or ``None``."""
    if value_of(arguments_of(node).input).dim() == 0:
        return "TensorRT gathers and scatters along the first dimension, and the tensor is 0-d"
    return None


def unlike_root(node: Node) -> str | None:
    """Returns why the source of a broadcast has no place that is documented, or ``None``."""
    op = arguments_of(node)
    ranks = ranks_of(op.group_name)
    if ranks[op.src] != op.src:
        return f"TensorRT does not document the root of a group of ranks {list(ranks)}"
    return None


def unequal_parts(node: Node) -> str | None:
    """Returns why an exchange of parts is not one of equal parts, or ``None``."""
    op = arguments_of(node)
    sizes = [str(size) for size in (*op.output_split_sizes, *op.input_split_sizes)]
    if len(set(sizes)) > 1:
        return f"TensorRT exchanges equal parts, and the parts are {', '.join(sizes)}"
    return None


def in_pytorch(node: Node, settings: CompilationSettings) -> str | None:
    """Returns why the collective that a node waits for runs in PyTorch, or ``None`` if it is a layer."""
    source = _without_views(node.args[0])
    target = str(getattr(source, "target", ""))
    if target not in _CHECKS:
        return "it waits for no collective that TensorRT runs"
    is_layer = all(map(supports, _capabilities(target)))
    if not is_layer or unlike_group(source, settings) or any(_objections(source)):
        return f"PyTorch runs {source.name}, for which it waits"
    return None


def _objections(source: Node) -> Iterator[str | None]:
    return (check(source) for check in _CHECKS[str(source.target)])


def _capabilities(name: str) -> tuple[Capability, ...]:
    """Returns the capabilities that the layer of a collective needs."""
    is_later = name == f"{_NAMESPACE}.all_to_all_single.default"
    return (Capability.DISTRIBUTED_COLLECTIVES, *((Capability.ALL_TO_ALL,) if is_later else ()))


def _without_views(source: Any) -> Any:
    """Returns the node of whose result a node is a view, which PyTorch takes before it waits."""
    from torchtrt.graphs import declares_alias  # here, since importing a pack must be fast

    while isinstance(getattr(source, "target", None), OpOverload) and declares_alias(source.target):
        source = source.args[0]
    return source


_CHECKS = {
    f"{_NAMESPACE}.all_reduce.default": (unlike_reduction,),
    f"{_NAMESPACE}.reduce_scatter_tensor.default": (unlike_reduction, unlike_rows),
    f"{_NAMESPACE}.all_gather_into_tensor.default": (unlike_rows,),
    f"{_NAMESPACE}.broadcast.default": (unlike_root,),
    f"{_NAMESPACE}.all_to_all_single.default": (unlike_rows, unequal_parts),
}
"""The checks of each collective, beside that of its process group."""


def _registers(op: str) -> Callable[[Converter], Converter]:
    """Returns the decorator that registers the converter of a collective."""
    name = f"{_NAMESPACE}.{op}.default"
    return pack.converter(
        name,
        dtypes=_DTYPES,
        supports_empty=True,
        reject_if=(unlike_group, *_CHECKS[name]),
        requires=_capabilities(name),
    )


@_registers("all_reduce")
def all_reduce(
    ctx: ConversionContext, input: NetworkTensor, reduce_op: str, group_name: Any
) -> NetworkTensor:
    """Converts the reduction of the tensors of all processes."""
    return _exchange(ctx, input, "ALL_REDUCE", group_name, _REDUCTIONS[reduce_op.lower()])


@_registers("reduce_scatter_tensor")
def reduce_scatter_tensor(
    ctx: ConversionContext, input: NetworkTensor, reduce_op: str, group_size: int, group_name: Any
) -> NetworkTensor:
    """Converts the reduction that gives a part of the rows to each process."""
    return _exchange(ctx, input, "REDUCE_SCATTER", group_name, _REDUCTIONS[reduce_op.lower()])


@_registers("all_gather_into_tensor")
def all_gather_into_tensor(
    ctx: ConversionContext, input: NetworkTensor, group_size: int, group_name: Any
) -> NetworkTensor:
    """Converts the concatenation of the rows of all processes."""
    return _exchange(ctx, input, "ALL_GATHER", group_name)


@_registers("broadcast")
def broadcast(
    ctx: ConversionContext, input: NetworkTensor, src: int, group_name: Any
) -> NetworkTensor:
    """Converts the copy of one process's tensor to all."""
    return _exchange(ctx, input, "BROADCAST", group_name, root=src)


@_registers("all_to_all_single")
def all_to_all_single(
    ctx: ConversionContext,
    input: NetworkTensor,
    output_split_sizes: Any,
    input_split_sizes: Any,
    group_name: Any,
) -> NetworkTensor:
    """Converts the exchange of equal parts: each process sends one to each, and receives one from each."""
    return _exchange(ctx, input, "ALL_TO_ALL", group_name)


@pack.converter(
    f"{_NAMESPACE}.wait_tensor.default",
    dtypes=_DTYPES,
    supports_empty=True,
    reject_if=in_pytorch,
)
def wait_tensor(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Converts the wait for a collective of the same engine: layers that read its result run after it."""
    return tensor


def _exchange(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    kind: str,
    group_name: Any,
    reduction: str = "NONE",
    root: int = -1,
) -> NetworkTensor:
    """Returns the result of a collective; the tensor itself where a process is alone."""
    ranks = ranks_of(group_name)
    if len(ranks) == 1:
        return tensor
    is_world = len(ranks) == torch.distributed.get_world_size()
    layer: Any = add_layer(
        ctx,
        "dist_collective",
        tensor,
        getattr(trt.CollectiveOperation, kind),
        getattr(trt.ReduceOperation, reduction),
        root,
        [] if is_world else ranks,
    )
    layer.num_ranks = len(ranks)
    result: NetworkTensor = layer.get_output(0)
    return result
