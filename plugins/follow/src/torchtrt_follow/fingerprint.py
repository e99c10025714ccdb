"""Exported programs compared by what they compute, whatever their weights are called.

A model whose structure changed may be the program that it was: an adapter that is merged, or another of the same rank.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from torchtrt.graphs.memory import storage_of
from torchtrt_compiler.sizes.guards import guards_of

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_SYMBOL = re.compile(r"\b(?:s|u|zf|zuf)\d+\b")


class Fingerprint(NamedTuple):
    """A program's computation, to compare.

    Attributes:
        text: Equal for programs that compute the same from weights of the same form. None for one that holds objects
            without a text, which is equal to no other.
        weights: The names of the weights that it uses, in an order that is the same for equal texts.
    """

    text: str | None
    weights: tuple[str, ...]


def fingerprint(exported: ExportedProgram) -> Fingerprint:
    """Returns a program's fingerprint."""
    signature = exported.graph_signature
    kinds = {spec.kind for spec in signature.input_specs}
    weights: dict[str, int] = {}  # numbered in the order of their use: unused ones do not matter
    targets = {
        str(spec.arg.name): str(spec.target)
        for spec in signature.input_specs
        if spec.kind in _WEIGHTS
    }
    lines = _lines(exported.graph_module, targets, weights)
    for output in signature.output_specs:
        target = None if output.kind is OutputKind.USER_OUTPUT else output.target
        number = "" if target is None else weights.setdefault(target, len(weights))
        lines.append(f"{output.kind} {number}")
    lines += [f"{symbol} {sizes}" for symbol, sizes in exported.range_constraints.items()]
    lines += [*map(str, guards_of(exported)), str(exported.call_spec)]
    values, memories = {**exported.constants, **exported.state_dict}, dict[int, int]()
    for name, number in weights.items():
        memory = memories.setdefault(storage_of(values[name]), number)
        lines.append(f"weight {number} has the memory of {memory}")
    symbols: dict[str, str] = {}
    text = _SYMBOL.sub(
        lambda match: symbols.setdefault(match[0], f"z{len(symbols)}"), "\n".join(lines)
    )
    has_objects = not kinds.isdisjoint({InputKind.CUSTOM_OBJ, InputKind.TOKEN})
    return Fingerprint(None if has_objects else text, tuple(weights))


def _lines(owner: GraphModule, targets: dict[str, str], weights: dict[str, int]) -> list[str]:
    """Returns the lines of a graph.

    Args:
        owner: The module of the graph.
        targets: The names of weights, by those of their placeholders.
        weights: The number of each weight that was used so far; more are added.
    """
    names: dict[Node, str] = {}

    def name(node: Node) -> Any:
        if node not in names:
            number = weights.setdefault(targets[node.name], len(weights))
            names[node] = f"weight {number} {_form(node.meta.get('val'))}"
        return names[node]

    lines: list[str] = []
    for node in owner.graph.nodes:
        if node.op == "placeholder" and node.name in targets:
            continue
        target = "" if node.op == "placeholder" else str(node.target)
        if node.op == "get_attr":
            value = attrgetter(target)(owner)
            if isinstance(value, GraphModule):
                target = "\n".join(["{", *_lines(value, {}, weights), "}"])
            else:
                target = f"object {id(value)}"
        names[node] = f"%{len(lines)}"
        arguments = map_arg((node.args, node.kwargs), name)
        lines.append(f"{names[node]} {node.op} {target} {arguments} {_form(node.meta.get('val'))}")
    return lines


def _form(value: Any) -> str:
    match value:
        case torch.Tensor():
            strides = [] if value.is_nested else list(value.stride())
            return f"({value.dtype} {list(value.shape)} {strides} {value.device})"
        case list() | tuple():
            return f"({' '.join(map(_form, value))})"
    return f"({type(value).__name__} {value})"
