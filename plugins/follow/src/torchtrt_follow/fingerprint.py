"""Exported programs compared by what they compute, whatever their weights are called.

A model whose structure changed may be the program that it was: an adapter that is merged, or another of the same rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Graph, GraphModule, Node

from torchtrt_compiler.sizes.guards import guards_of

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_SYMBOL = re.compile(r"\b(?:s|u|zf|zuf)\d+\b")


class Fingerprint(NamedTuple):
    """A program's computation, to compare.

    Attributes:
        text: Equal for programs that compute the same from weights of the same form.
        weights: The names of the weights that it uses, in an order that is the same for equal texts.
    """

    text: str
    weights: tuple[str, ...]


def fingerprint(exported: ExportedProgram) -> Fingerprint | None:
    """Returns a program's fingerprint; None if it holds objects that have no text."""
    signature = exported.graph_signature
    kinds = {spec.kind for spec in signature.input_specs}
    if kinds & {InputKind.CUSTOM_OBJ, InputKind.TOKEN}:
        return None
    weights: dict[str, str] = {}
    placeholders = {
        str(spec.arg.name): str(spec.target)
        for spec in signature.input_specs
        if spec.kind in _WEIGHTS
    }
    lines = _lines(exported.graph, exported.graph_module, placeholders, weights)
    for output in signature.output_specs:
        target = output.target if output.kind is not OutputKind.USER_OUTPUT else None
        lines.append(f"{output.kind} {_number(target, weights) if target else ''}")
    lines += [f"{symbol} {sizes}" for symbol, sizes in exported.range_constraints.items()]
    lines += map(str, guards_of(exported))
    lines.append(str(exported.call_spec))
    symbols: dict[str, str] = {}
    text = _SYMBOL.sub(
        lambda found: symbols.setdefault(found[0], f"z{len(symbols)}"), "\n".join(lines)
    )
    return Fingerprint(text, tuple(weights))


def _lines(
    graph: Graph, owner: GraphModule, placeholders: Mapping[str, str], weights: dict[str, str]
) -> list[str]:
    """Returns the lines of a graph.

    Args:
        graph: The graph.
        owner: Its module.
        placeholders: The names of weights, by those of their placeholders.
        weights: For each weight that was used so far what stands for it; more are added.
    """
    names: dict[Node, str] = {}

    def name(node: Node) -> str:
        if node not in names:  # weights are in the order of their use: unused ones do not matter
            names[node] = _number(placeholders[node.name], weights) + _form(node.meta.get("val"))
        return names[node]

    lines: list[str] = []
    for node in graph.nodes:
        if node.op == "placeholder" and node.name in placeholders:
            continue
        target = "" if node.op == "placeholder" else str(node.target)
        if node.op == "get_attr":
            value = attrgetter(target)(owner)
            if isinstance(value, GraphModule):
                target = "\n".join(["{", *_lines(value.graph, value, {}, weights), "}"])
            else:
                target = f"object {id(value)}"
        arguments = _written((node.args, node.kwargs), name)
        names[node] = f"%{len(lines)}"
        lines.append(
            f"{names[node]} = {node.op} {target} {arguments} {_form(node.meta.get('val'))}"
        )
    return lines


def _number(name: str, weights: dict[str, str]) -> str:
    return weights.setdefault(name, f"weight{len(weights)}")


def _written(value: Any, name: Callable[[Node], str]) -> str:
    """Returns an argument as text, with nodes by their names."""
    match value:
        case Node():
            return name(value)
        case list() | tuple():
            return f"[{', '.join(_written(each, name) for each in value)}]"
        case dict():
            return f"[{', '.join(f'{key}: {_written(each, name)}' for key, each in value.items())}]"
        case slice():
            return f"slice{_written((value.start, value.stop, value.step), name)}"
    return repr(value)


def _form(value: Any) -> str:
    match value:
        case torch.Tensor():
            sizes = [str(size) for size in value.shape]
            strides = [str(stride) for stride in value.stride()] if not value.is_nested else []
            return f"({value.dtype} {sizes} {strides} {value.device})"
        case list() | tuple():
            return f"({' '.join(map(_form, value))})"
    return f"({type(value).__name__} {value})"
