"""Branches and loops that depend on data: TensorRT's conditionals and loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from torchtrt.conversion import get_trt_tensor, is_network_tensor
from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import shape
from torchtrt_converters_aten_core.impl.layers import add
from torchtrt_converters_aten_core.registration import converts

Args = Sequence[Any]
Kwargs = Mapping[str, Any]


def _unconverted(node: Node) -> str | None:
    """The parts of a branch or a body must all be in TensorRT."""
    from torchtrt.lowering import (
        inner_graphs,
        resolution_of,
    )  # takes longer to import than all packs

    for graph in inner_graphs(node):
        for part in graph.graph.nodes:
            resolution = resolution_of(part)
            if part.op == "call_function" and not resolution:
                reason = resolution.explain() if resolution is not None else "it is not known"
                return f"inside it, {part.target} is not converted: {reason}"
            if part.op == "output" and not all(
                isinstance(leaf, Node) for leaf in pytree.tree_leaves(part.args[0])
            ):
                return "a branch or loop's body that returns a literal is not converted"
    return None


def _carries_numbers(node: Node) -> str | None:
    carried: Any = node.args[2]
    if all(isinstance(each, Node) and _is_tensor(each) for each in carried):
        return None
    return "a loop in TensorRT carries tensors only, and this one carries a number"


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor) or node.op == "get_attr"


@converts(torch.ops.higher_order.cond, unless=_unconverted, empty=True)
def cond(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Both branches go into the network. The engine runs one, or both and selects where one is inside another."""
    condition, *branches, operands = args
    condition = get_trt_tensor(ctx, condition, name + "/condition", torch.bool)
    # TensorRT 8.6 cannot build a conditional whose condition is computed inside another or in a loop.
    choose = _select if ctx.depth else _run_one
    return tuple(choose(ctx, condition, branches, operands, name))


def _run_one(
    ctx: Any, condition: Any, branches: Sequence[Any], operands: Sequence[Any], name: str
) -> Iterator[Any]:
    conditional = ctx.net.add_if_conditional()
    conditional.name = name
    conditional.set_condition(condition)
    gated = []
    for place, operand in enumerate(operands):
        if is_network_tensor(operand):
            layer = conditional.add_input(operand)
            layer.name = f"{name}/input{place}"
            ctx.remember(layer.get_output(0), ctx.known_value(operand))
            operand = layer.get_output(0)
        gated.append(operand)
    results = [
        [
            _apart(ctx, result, f"{name}/{label}{place}")
            for place, result in enumerate(ctx.convert_graph(graph, gated))
        ]
        for label, graph in zip(("then", "otherwise"), branches, strict=True)
    ]
    for place, (first, second) in enumerate(zip(*results, strict=True)):
        layer = conditional.add_output(first, second)
        layer.name = f"{name}/output{place}"
        yield layer.get_output(0)


def _select(
    ctx: Any, condition: Any, branches: Sequence[Any], operands: Sequence[Any], name: str
) -> Iterator[Any]:
    results = [ctx.convert_graph(graph, operands) for graph in branches]
    for place, (first, second) in enumerate(zip(*results, strict=True)):
        label = f"{name}/output{place}"
        tensors = [
            get_trt_tensor(ctx, value, f"{label}/value{index}")
            for index, value in enumerate((first, second))
        ]
        rank = len(tensors[0].shape)
        chosen = shape.reshape(ctx, condition, [1] * rank, label + "/condition")
        yield add(ctx, label, "select", chosen, *tensors)


@converts(torch.ops.higher_order.while_loop, unless=(_unconverted, _carries_numbers), empty=True)
def while_loop(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """The condition is computed from what is carried at the start of each iteration."""
    condition, body, carried, captured = args
    starts = [
        get_trt_tensor(ctx, value, f"{name}/start{place}") for place, value in enumerate(carried)
    ]
    loop = ctx.net.add_loop()
    loop.name = name
    recurrences = [loop.add_recurrence(start) for start in starts]
    before = []
    for place, (layer, start) in enumerate(zip(recurrences, starts, strict=True)):
        layer.name = f"{name}/carried{place}"
        before.append(layer.get_output(0))
        ctx.remember(layer.get_output(0), ctx.known_value(start))
    (going,) = ctx.convert_graph(condition, [*before, *captured])
    limit = loop.add_trip_limit(_apart(ctx, going, name + "/going"), trt.TripLimit.WHILE)
    limit.name = name + "/limit"
    after = ctx.convert_graph(body, [*before, *captured])
    results = []
    for place, (layer, value) in enumerate(zip(recurrences, after, strict=True)):
        dtype = ctx.dtype_of(starts[place])
        following = get_trt_tensor(ctx, value, f"{name}/next{place}", dtype)
        layer.set_input(1, _apart(ctx, following, f"{name}/next{place}"))
        output = loop.add_loop_output(before[place], trt.LoopOutput.LAST_VALUE, 0)
        output.name = f"{name}/output{place}"
        results.append(output.get_output(0))
    return tuple(results)


def _apart(ctx: Any, value: Any, name: str) -> Any:
    """Returns a tensor of a layer inside: what a branch or body passes through unchanged comes from outside."""
    return add(ctx, name, "identity", get_trt_tensor(ctx, value, name + "/value"))
