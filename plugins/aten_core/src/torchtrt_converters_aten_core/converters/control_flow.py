"""Branches and loops that depend on data: TensorRT's conditionals and loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    Operand,
    add,
    is_network_tensor,
)
from torchtrt.errors import ConversionError
from torchtrt.tensorrt import Capability, supports, trt
from torchtrt_blocks import shape, types
from torchtrt_blocks import sizes as size_math
from torchtrt_blocks.branches import branch_results
from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.torch_internals import pytree


def _unconverted(node: Node) -> str | None:
    """The parts of a branch or a body must all be in TensorRT."""
    from torchtrt.graphs import (  # takes longer to import than all packs
        inner_graphs,
        resolution_of,
    )

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
            if part.target is torch.ops.higher_order.cond and (sizes := _sizes_that_differ(part)):
                return f"inside it, the branches of {part.name} return tensors of {sizes}, and both are computed there"
    return None


def _branches_differ(node: Node) -> str | None:
    """The branches must return tensors of the same sizes, unless TensorRT returns those of the one that it ran."""
    if supports(Capability.BRANCHES_OF_OTHER_SIZES) or not (sizes := _sizes_that_differ(node)):
        return None
    return f"its branches return tensors of {sizes}, and this TensorRT needs equal ones"


def _sizes_that_differ(node: Node) -> str:
    """Returns the first sizes that differ in the results of two branches, in words; ``""`` if there are none."""
    for pair in zip(*branch_results(node), strict=True):
        if all(isinstance(result, torch.Tensor) for result in pair):
            shapes = [tuple(result.shape) for result in pair]
            if not size_math.have_same_sizes(*shapes):
                return f"the sizes {list(shapes[0])} and {list(shapes[1])}"
    return ""


def _carries_numbers(node: Node) -> str | None:
    carried: Any = node.args[2]
    if all(isinstance(operand, Node) and _is_tensor(operand) for operand in carried):
        return None
    return "a loop in TensorRT carries tensors only, and this one carries a number"


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor) or node.op == "get_attr"


@pack.converter(
    torch.ops.higher_order.cond, reject_if=(_unconverted, _branches_differ), supports_empty=True
)
def cond(ctx: ConversionContext, condition: Any, then: Any, otherwise: Any, operands: Any) -> Any:
    """Both branches go into the network. The engine runs one, or both and selects where one is inside another."""
    condition = ctx.tensor(condition, torch.bool)
    # TensorRT 8.6 cannot build a conditional whose condition is computed inside another or in a loop.
    choose = _select if ctx.depth else _run_one
    return tuple(choose(ctx, condition, (then, otherwise), operands))


def _converted(ctx: ConversionContext, graph: GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Returns what the nodes of a branch or a body make of inputs."""
    if ctx.convert_graph is None:
        raise ConversionError("The converter needs ctx.convert_graph, which converts a branch.")
    return ctx.convert_graph(graph, inputs)


def _run_one(
    ctx: ConversionContext,
    condition: NetworkTensor,
    branches: Sequence[Any],
    operands: Sequence[Any],
) -> Iterator[Any]:
    """Returns the results of the one branch that a conditional of the network runs."""
    conditional = ctx.net.add_if_conditional()
    conditional.set_condition(condition)
    gated = []
    for operand in operands:
        if is_network_tensor(operand):
            layer = conditional.add_input(operand)
            ctx.set_known_value(layer.get_output(0), ctx.known_value(operand))
            operand = layer.get_output(0)
        gated.append(operand)
    results = [
        [_inside(ctx, result) for result in _converted(ctx, graph, gated)] for graph in branches
    ]
    for first, second in zip(*results, strict=True):
        yield conditional.add_output(first, second).get_output(0)


def _select(
    ctx: ConversionContext,
    condition: NetworkTensor,
    branches: Sequence[Any],
    operands: Sequence[Any],
) -> Iterator[Any]:
    """Computes both branches and yields their results, chosen by ``condition``, a boolean of one element."""
    results = [_converted(ctx, graph, operands) for graph in branches]
    for pair in zip(*results, strict=True):
        tensors = [ctx.tensor(value) for value in pair]
        rank = len(tensors[0].shape)
        chosen = shape.reshape(ctx, condition, [1] * rank)
        yield add(ctx, "select", chosen, *tensors)


@pack.converter(
    torch.ops.higher_order.while_loop,
    reject_if=(_unconverted, _carries_numbers),
    supports_empty=True,
)
def while_loop(
    ctx: ConversionContext, condition: Any, body: Any, carried: Any, captured: Any
) -> Any:
    """The condition is computed from what is carried at the start of each iteration.

    Where networks are weakly typed, half precision comes around a loop as float32.
    """
    initial = [ctx.tensor(value) for value in carried]
    starts = [_as_carried(ctx, tensor) for tensor in initial]
    loop = ctx.net.add_loop()
    recurrences = [loop.add_recurrence(start) for start in starts]
    before = []
    for layer, tensor in zip(recurrences, initial, strict=True):
        before.append(layer.get_output(0))
        ctx.set_known_value(layer.get_output(0), ctx.known_value(tensor))
    (going,) = _converted(ctx, condition, [*before, *captured])
    loop.add_trip_limit(_inside(ctx, going), trt.TripLimit.WHILE)
    after = _converted(ctx, body, [*before, *captured])
    results = []
    for layer, start, old, new in zip(recurrences, starts, before, after, strict=True):
        layer.set_input(1, _inside(ctx, _as_carried(ctx, ctx.tensor(new, ctx.dtype_of(start)))))
        results.append(loop.add_loop_output(old, trt.LoopOutput.LAST_VALUE, 0).get_output(0))
    return tuple(results)


def _as_carried(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    return (
        tensor if supports(Capability.STRONG_TYPING) else types.upcast(ctx, tensor, torch.float32)
    )


def _inside(ctx: ConversionContext, value: Operand) -> NetworkTensor:
    """Returns a tensor of a layer inside: what a branch or body passes through unchanged comes from outside."""
    return add(ctx, "identity", ctx.tensor(value))
