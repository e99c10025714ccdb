"""LSTM, GRU and simple recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import arguments_of, value_of
from torchtrt.tensorrt.shims import is_strongly_typed
from torchtrt_converters_aten_core.impl import recurrent as impl
from torchtrt_converters_aten_core.impl import shape, types
from torchtrt_converters_aten_core.registration import converts

aten = torch.ops.aten

CELLS = {
    aten.lstm.input: impl.LSTM,
    aten.gru.input: impl.GRU,
    aten.rnn_tanh.input: impl.RNN_TANH,
    aten.rnn_relu.input: impl.RNN_RELU,
}


def _unfit(node: Node) -> str | None:
    op = arguments_of(node)
    if op.train and op.dropout:
        return "dropout between layers in training mode is random"
    fixed = (value_of(op.input).shape[-1:], *(value_of(weight).shape for weight in op.params))
    if not all(isinstance(size, int) for sizes in fixed for size in sizes):
        return "the numbers of features and of hidden elements must be fixed"
    return None


@converts(*CELLS, unless=_unfit, keep_constants=True)
def recurrent(ctx, input, hx, params, num_layers, bidirectional, batch_first, **_):
    """Converts stacked recurrent layers in one or two directions as loops over sequences of any length."""
    result = types.output_dtype(ctx, 0)
    # Where networks are weakly typed, half precision does not come around a loop.
    dtype = result if is_strongly_typed() else types.wide(result)
    sequence = types.operand(ctx, input, dtype, 3)
    if batch_first:
        sequence = shape.swap(ctx, sequence, 0, 1)
    given = hx if isinstance(hx, (list, tuple)) else [hx]
    states = [types.operand(ctx, state, dtype, 3) for state in given]
    weights = _weights(params, num_layers, bidirectional)
    outputs, last = impl.run(ctx, CELLS[ctx.node.target], sequence, states, weights)
    if batch_first:
        outputs = shape.swap(ctx, outputs, 0, 1)
    return tuple(types.cast(ctx, tensor, result) for tensor in (outputs, *last))


def _weights(
    params: Sequence[Any], num_layers: int, bidirectional: bool
) -> list[list[impl.Weights]]:
    """Returns the flat list of parameters by layer and direction."""
    directions = 2 if bidirectional else 1
    count = len(params) // (num_layers * directions)
    projects = count % 2 == 1
    parts = []
    for start in range(0, len(params), count):
        own = list(params[start : start + count])
        projection = own.pop() if projects else None
        parts.append(impl.Weights(*own, *[None] * (4 - len(own)), projection))
    return [parts[start : start + directions] for start in range(0, len(parts), directions)]
