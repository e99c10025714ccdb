"""Exported programs compared by what they compute, whatever their weights are called.

A model whose structure changed may be the program that it was: an adapter that is merged, or another of the same rank.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule
from torch.fx.node import map_arg

from torchtrt.graphs.memory import storage_of
from torchtrt_compiler.sizes.guards import guards_of, is_assumed

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_NAME = re.compile(r"%[\w.]*:\w+|\b(?:s|u|zf|zuf)\d+\b")
"""A node with the path of its graph, or a size."""


class Fingerprint(NamedTuple):
    """A program's computation, to compare.

    Attributes:
        text: Equal for programs that compute the same from weights of the same form. None for one that holds objects
            without a text, which is equal to no other.
        weights: The names of the weights that it uses, in an order that is the same for equal texts.
    """

    text: str | None
    weights: tuple[str, ...]


def tensors_of(exported: ExportedProgram) -> dict[str, torch.Tensor]:
    """Returns the weights and constants of a program, by name."""
    values = {**exported.constants, **exported.state_dict}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def fingerprint(exported: ExportedProgram) -> Fingerprint:
    """Returns a program's fingerprint."""
    signature, tensors = exported.graph_signature, tensors_of(exported)
    specs = [spec for spec in signature.input_specs if spec.kind in _WEIGHTS]
    targets = {f"%:{spec.arg.name}": str(spec.target) for spec in specs}
    labels = {target: label for label, target in targets.items()}
    lines = [
        f"{spec.kind} {labels.get(str(spec.target), spec.target)}"
        for spec in signature.output_specs
    ]
    for path, module in exported.graph_module.named_modules():
        label = f"%{path}:{{}}".format
        for node in module.graph.nodes:
            target = "" if node.op == "placeholder" else node.target
            if node.op == "get_attr":
                value = attrgetter(str(target))(module)
                target = target if isinstance(value, GraphModule) else object.__repr__(value)
            if label(node) not in targets:
                arguments = map_arg((node.args, node.kwargs), label)
                form = _form(node.meta.get("val"))
                lines.append(f"{label(node)} {node.op} {target} {arguments} {form}")
    lines += [f"{symbol} {sizes}" for symbol, sizes in exported.range_constraints.items()]
    guards = (guard for guard in guards_of(exported) if not is_assumed(guard))
    lines += [*map(str, guards), str(exported.call_spec)]
    names: dict[str, str] = {}  # in the order of their use: unused weights do not matter
    text = _NAME.sub(lambda name: names.setdefault(name[0], f"%{len(names)}"), "\n".join(lines))
    weights = tuple(targets[name] for name in names if name in targets)
    memories: dict[int, int] = {}
    forms = [
        f"{_form(tensors[name])} {memories.setdefault(storage_of(tensors[name]), len(memories))}"
        for name in weights
    ]
    kinds = {spec.kind for spec in signature.input_specs}
    has_objects = " at 0x" in text or not kinds.isdisjoint({InputKind.CUSTOM_OBJ, InputKind.TOKEN})
    return Fingerprint(None if has_objects else "\n".join([text, *forms]), weights)


def _form(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"({' '.join(map(_form, value))})"
    if not isinstance(value, torch.Tensor):
        return f"({type(value).__name__} {value})"
    strides = [] if value.is_nested else list(value.stride())
    return f"({value.dtype} {list(value.shape)} {strides} {value.device})"
