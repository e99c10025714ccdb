"""Facts about a TorchScript graph and its nodes."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterator
from typing import Any, TypeAlias

import torch

from torchtrt.torch_internals import OpOverload
from torchtrt_torchscript.torch_internals import ScriptNode, ScriptValue, has_kernel, parse_schema

Environment: TypeAlias = dict[int, Any]
"""The value of each graph value, by its number."""
NO_SCHEMA = "(no schema)"


def all_nodes(block: Any) -> Iterator[Any]:
    """Yields the nodes of a block or graph, and those of the blocks inside it."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from all_nodes(inner)


def every_node(block: Any) -> Iterator[Any]:
    """Yields the nodes of a block or graph, also of blocks inside it and of what it forks."""
    for node in all_nodes(block):
        yield node
        if node.kind() == "prim::fork":
            yield from every_node(node.g("Subgraph"))


def schema_of(node: ScriptNode) -> str:
    """Returns the schema of what a node calls, or its kind where it has none."""
    schema = node.schema()
    return node.kind() if schema == NO_SCHEMA else schema


@functools.cache
def parsed_schema(text: str) -> Any:
    """Returns a function schema, parsed once."""
    return parse_schema(text)


def full_name(schema: Any) -> str:
    """Returns the name of a parsed schema, with that of its overload: ``aten::add.Tensor``."""
    return ".".join(filter(None, (schema.name, schema.overload_name)))


def written_inputs(node: ScriptNode) -> list[ScriptValue]:
    """Returns the inputs of a node that it writes to in place."""
    if node.schema() == NO_SCHEMA:
        return []
    arguments = parsed_schema(node.schema()).arguments
    return [
        value
        for value, argument in zip(node.inputs(), arguments, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def makes_tensors(node: ScriptNode) -> bool:
    """Returns whether a node's result is a tensor, several, or a list of them."""
    return any("Tensor" in str(value.type()) for value in node.outputs())


def is_view(node: ScriptNode) -> bool:
    """Returns whether a node's result shares the memory of its first input, or is an element of it."""
    if node.schema() == NO_SCHEMA:
        return False
    schema = parsed_schema(node.schema())
    aliased = [
        argument.alias_info is not None for argument in (*schema.arguments[:1], *schema.returns[:1])
    ]
    return aliased == [True, True]


def base_of(value: ScriptValue, outside: Container[int]) -> ScriptValue:
    """Returns the value whose memory a value shares, through views that are not taken ``outside`` already."""
    while value.unique() not in outside and is_view(value.node()):
        value = value.node().inputsAt(0)
    return value


def overload_of(schema: str) -> OpOverload | None:
    """Returns the op of a schema such as ``"aten::relu(Tensor self) -> Tensor"``, or ``None``."""
    parsed = parsed_schema(schema)
    if not has_kernel(full_name(parsed)):
        return None
    namespace, _, name = parsed.name.partition("::")
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
        overload = getattr(packet, parsed.overload_name or "default")
    except AttributeError:
        return None
    return overload if isinstance(overload, OpOverload) else None
