"""Fills in the report of a compilation, and raises or warns about what stays in PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch.fx import Node

from torchtrt.callers import warn_caller
from torchtrt.capability import Capability
from torchtrt.errors import FullCompilationError, NoEngineWarning, TorchOp
from torchtrt.graphs.nodes import inner_graphs, missed_layers, model_line, resolution_of
from torchtrt.targets import qualified_name
from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt.tensorrt.probes import DISABLED, disabled
from torchtrt.torch_internals import pytree
from torchtrt_compiler.catalogue import Catalogue, available_packs
from torchtrt_compiler.partitioning import NOT_COMPUTED, Partition, TorchNode
from torchtrt_compiler.record import current_record
from torchtrt_runtime.reports.report import BlockReport, CompilationReport, ConvertedOps, LayerUse
from torchtrt_runtime.serialization.exported_program import RUN


def describe_partition(report: CompilationReport, partition: Partition) -> None:
    """Fills in the parts of a report that partitioning decides."""
    members = [node for block in partition.blocks.values() for node in block]
    report.converted = list(count_converters(members))
    report.layers = layer_uses(members, [entry.node for entry in partition.torch_nodes])
    in_torch = [entry for entry in partition.torch_nodes if entry.node.target is not RUN]
    report.in_torch = list(_torch_ops(in_torch))
    sizes = map(len, partition.blocks.values())
    report.blocks = [BlockReport(f"block_{index}", size) for index, size in enumerate(sizes)]
    current_record().partition(report)


def _torch_ops(entries: Sequence[TorchNode]) -> Iterator[TorchOp]:
    """Yields the report's rows of nodes that stay in PyTorch."""
    lacking = {qualified_name(entry.node.target) for entry in entries if _lacks_converter(entry)}
    catalogue = available_packs() if lacking else Catalogue()
    providers = {
        op: tuple(provider.distribution for provider in catalogue.providers(op)) for op in lacking
    }
    for entry in entries:
        op = qualified_name(entry.node.target)
        yield _torch_op(entry, op, providers[op] if _lacks_converter(entry) else ())


def _lacks_converter(entry: TorchNode) -> bool:
    """Returns whether a node stays in PyTorch because no converter accepts it."""
    is_accepted = bool(resolution_of(entry.node))
    codes = {rejection.code for rejection in entry.rejections}
    return not is_accepted and not codes & {*NOT_COMPUTED, "divided", "user-excluded"}


def _torch_op(entry: TorchNode, op: str, available: tuple[str, ...]) -> TorchOp:
    """Returns the report's row of a node that stays in PyTorch."""
    rejections = entry.rejections
    return TorchOp(
        node=entry.node.name,
        op=op,
        reason=entry.reason,
        codes=tuple(dict.fromkeys(rejection.code for rejection in rejections)),
        advice=tuple(dict.fromkeys(filter(None, (rejection.advice for rejection in rejections)))),
        model_line=model_line(entry.node),
        reasons=tuple(rejection.reason for rejection in rejections),
        available=available,
    )


def count_converters(nodes: Iterable[Node]) -> Iterable[ConvertedOps]:
    """Yields the number of nodes of each op that each converter handles, most frequent first."""
    dtypes: dict[tuple[str, str, str], Counter[str]] = {}
    for node in nodes:
        if (resolution := resolution_of(node)) and (chosen := resolution.chosen):
            pack = chosen.pack.label
            key = qualified_name(node.target), pack, chosen.qualified_function
            first = next(iter(pytree.tree_leaves(node.meta.get("val"))), None)
            name = dtype_name(first.dtype) if isinstance(first, torch.Tensor) else "size"
            dtypes.setdefault(key, Counter())[name] += 1
    for (op, pack, converter), counts in sorted(dtypes.items(), key=lambda item: -item[1].total()):
        yield ConvertedOps(op, pack, converter, counts.total(), dict(counts.most_common()))


def layer_uses(members: Iterable[Node], in_torch: Iterable[Node]) -> list[LayerUse]:
    """Returns which layers of current TensorRT a partition uses, and why nodes do not become them.

    A node uses the layers that its converter requires. A converter that requires one and rejects a node, and a pass
    that finds nearly the pattern of one, give the reasons.

    Args:
        members: The nodes of blocks.
        in_torch: The nodes that stay in PyTorch.
    """
    nodes: dict[Capability, list[Node]] = {}
    missed: dict[Capability, dict[str, list[str]]] = {
        capability: {DISABLED: []} for capability in disabled()
    }
    inside = list(_with_inner(members))
    for node in inside:
        for capability in _layers_of(node):
            nodes.setdefault(capability, []).append(node)
    for node in (*inside, *in_torch):
        for capability, difference in _missed_by(node).items():
            reason = DISABLED if capability in disabled() else difference
            missed.setdefault(capability, {}).setdefault(reason, []).append(node.name)
    return [
        _layer_use(capability, nodes.get(capability, ()), missed.get(capability, {}))
        for capability in Capability
        if capability in nodes or capability in missed
    ]


def _layer_use(
    capability: Capability, nodes: Sequence[Node], missed: Mapping[str, Sequence[str]]
) -> LayerUse:
    """Returns the report's row of a layer: the nodes that become it, and by reason the names of those that do not."""
    lines = filter(None, map(model_line, nodes))
    return LayerUse(
        capability.name,
        capability.title,
        tuple(node.name for node in nodes),
        tuple(dict.fromkeys(lines)),
        {reason: tuple(names) for reason, names in missed.items()},
    )


def _with_inner(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yields nodes, and the calls of the graphs inside them."""
    for node in nodes:
        yield node
        for graph_module in inner_graphs(node):
            calls = (node for node in graph_module.graph.nodes if node.op == "call_function")
            yield from _with_inner(calls)


def _layers_of(node: Node) -> tuple[Capability, ...]:
    """Returns the layers that a node's converter requires."""
    resolution = resolution_of(node)
    if resolution is None or resolution.chosen is None:
        return ()
    return tuple(
        capability
        for capability in resolution.chosen.support.requires
        if capability.group == "layers"
    )


def _missed_by(node: Node) -> dict[Capability, str]:
    """Returns the layers that a node nearly becomes, and what is different."""
    resolution = resolution_of(node)
    missed = dict(missed_layers(node))
    for rejection in () if resolution is None else resolution.rejections:
        if rejection.candidate is not None:
            for capability in rejection.candidate.support.requires:
                if capability.group == "layers" and capability not in _layers_of(node):
                    missed.setdefault(capability, rejection.reason)
    return missed


def check_complete(report: CompilationReport, setting: str) -> None:
    """Raises a ``FullCompilationError`` where more than writes and views stays in PyTorch, which a setting forbids."""
    missing = tuple(entry for entry in report.in_torch if not NOT_COMPUTED & {*entry.codes})
    if not missing:
        return
    lines = []
    for entry in missing:
        lines.append(f"{entry.node} ({entry.op}): " + entry.reason.replace("\n", "\n  "))
        lines += [f"  model  {entry.model_line}"] if entry.model_line else []
        lines += (
            [f"  {entry.op}: install {' or '.join(entry.available)}"] if entry.available else []
        )
    message = (
        f"{len(missing)} of the model's nodes would stay in PyTorch, but {setting} was asked for:\n"
        + "\n".join(lines)
        + f"\nInstall a pack that has these ops, write a converter, or drop {setting}."
    )
    raise FullCompilationError(message, missing)


def warn_without_engines(report: CompilationReport, smallest: int) -> None:
    """Warns that all ops stay in PyTorch, unless they must, or the settings name each of them."""
    ops = [
        op
        for op in report.in_torch
        if not {*NOT_COMPUTED, "no-input", "user-excluded"} & {*op.codes}
    ]
    small = sum("block-too-small" in op.codes for op in ops)
    message = f"No engine was built: all of the model runs in PyTorch. TensorRT can run {small} of its {len(ops)} ops"
    if small:
        message += (
            f", in blocks of fewer than min_block_size={smallest}: compile with min_block_size=1"
        )
    message += ". The report says why for each: print(compiled.report), or torchtrt.explain(model, inputs)."
    if ops:
        warn_caller(message, NoEngineWarning)
