"""LSTM, GRU and simple recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.tensorrt.shims import is_strongly_typed
from torchtrt_converters_aten_core.impl import recurrent as impl
from torchtrt_converters_aten_core.impl import shape, types
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

CELLS = {
    aten.lstm.input: impl.LSTM,
    aten.gru.input: impl.GRU,
    aten.rnn_tanh.input: impl.RNN_TANH,
    aten.rnn_relu.input: impl.RNN_RELU,
}


def _unfit(node: Node) -> str | None:
    op = node_arguments(node)
    if op.train and op.dropout:
        return "dropout between layers in training mode is random"
    fixed = (value_of(op.input).shape[-1:], *(value_of(weight).shape for weight in op.params))
    if not all(isinstance(size, int) for sizes in fixed for size in sizes):
        return "the numbers of features and of hidden elements must be fixed"
    return None


@converts(*CELLS, unless=_unfit, keep_constants=True)
def recurrent(
    ctx: Any, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Any:
    """Converts stacked recurrent layers in one or two directions as loops over sequences of any length."""
    op = arguments(target, args, kwargs)
    result = types.output_dtype(ctx, 0)
    # Where networks are weakly typed, half precision does not come around a loop.
    dtype = result if is_strongly_typed() else types.wide(result)
    sequence = types.operand(ctx, op.input, dtype, 3, name + "/sequence")
    if op.batch_first:
        sequence = shape.swap(ctx, sequence, 0, 1, name + "/length_first")
    given = op.hx if isinstance(op.hx, (list, tuple)) else [op.hx]
    states = [
        types.operand(ctx, state, dtype, 3, f"{name}/state{place}")
        for place, state in enumerate(given)
    ]
    outputs, last = impl.run(ctx, CELLS[target], sequence, states, _weights(op, given), name)
    if op.batch_first:
        outputs = shape.swap(ctx, outputs, 0, 1, name + "/batch_first")
    return tuple(
        types.cast(ctx, tensor, result, f"{name}/result{place}")
        for place, tensor in enumerate((outputs, *last))
    )


def _weights(op: Any, states: Sequence[Any]) -> list[list[impl.Weights]]:
    """Returns the flat list of parameters by layer and direction."""
    directions = 2 if op.bidirectional else 1
    count = len(op.params) // (op.num_layers * directions)
    projects = count % 2 == 1
    parts = []
    for start in range(0, len(op.params), count):
        own = list(op.params[start : start + count])
        projection = own.pop() if projects else None
        parts.append(impl.Weights(*own, *[None] * (4 - len(own)), projection))
    return [parts[start : start + directions] for start in range(0, len(parts), directions)]
