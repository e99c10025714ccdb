"""LSTM, GRU and simple recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    add_layer,
    arguments_of,
    is_network_tensor,
    value_of,
)
from torchtrt.tensorrt import Capability, supports, trt
from torchtrt_blocks import (
    indexing,
    matmul,
    padding,
    shape,
    sizes,
    slicing,
    types,
)
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one direction of one layer: PyTorch or network tensors.

    Attributes:
        input: Shape ``(gates * hidden, features)``.
        hidden: Shape ``(gates * hidden, outputs)``.
        input_bias: Shape ``(gates * hidden,)``, or ``None``.
        hidden_bias: The same.
        projection: Shape ``(outputs, hidden)``, or ``None`` where the outputs are the hidden state.
    """

    input: NetworkTensor | torch.Tensor
    hidden: NetworkTensor | torch.Tensor
    input_bias: NetworkTensor | torch.Tensor | None = None
    hidden_bias: NetworkTensor | torch.Tensor | None = None
    projection: NetworkTensor | torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration of a loop, with everything that it reads.

    Attributes:
        ctx: The conversion context.
        inputs: The input's share of the gates: ``(gates, batch, hidden)``.
        recurrent: The hidden state's share.
        states: The states before: ``(1, batch, ...)`` each.
    """

    ctx: ConversionContext
    inputs: Formula
    recurrent: Formula
    states: Sequence[Formula]

    def gate(self, gates: Formula, index: int) -> Formula:
        """Returns one gate: ``(1, batch, hidden)``."""
        indices = self.ctx.tensor([index])
        return Formula(self.ctx, indexing.gather(self.ctx, gates.tensor, indices, 0))


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of recurrence.

    Attributes:
        gates: How many parts its weights have.
        step: From one step to the states after it, the hidden state first and without projection.
        bias_inside: Whether the hidden state's bias is inside a product, and not added to the input's.
    """

    gates: int
    step: Callable[[Step], tuple[Formula, ...]]
    bias_inside: bool = False


def _lstm(step: Step) -> tuple[Formula, ...]:
    gates = step.inputs + step.recurrent
    opened = gates.sigmoid()
    admit, keep, emit = (step.gate(opened, index) for index in (0, 1, 3))
    new = step.gate(gates, 2).tanh()
    memory = keep * step.states[1] + admit * new
    return emit * memory.tanh(), memory


def _gru(step: Step) -> tuple[Formula, ...]:
    opened = (step.inputs + step.recurrent).sigmoid()
    reset, keep = step.gate(opened, 0), step.gate(opened, 1)
    new = (step.gate(step.inputs, 2) + reset * step.gate(step.recurrent, 2)).tanh()
    return (keep * (step.states[0] - new) + new,)


def _simple(kind: str) -> Callable[[Step], tuple[Formula, ...]]:
    return lambda step: ((step.inputs + step.recurrent).activate(kind),)


LSTM = Cell(4, _lstm)
GRU = Cell(3, _gru, bias_inside=True)
RNN_TANH = Cell(1, _simple("TANH"))
RNN_RELU = Cell(1, _simple("RELU"))


def _run(
    ctx: ConversionContext,
    cell: Cell,
    sequence: NetworkTensor,
    states: Sequence[NetworkTensor],
    weights: Sequence[Sequence[Weights]],
) -> tuple[NetworkTensor, list[NetworkTensor]]:
    """Returns the outputs of stacked recurrent layers and their last states.

    Args:
        ctx: The conversion context.
        cell: The kind of recurrence.
        sequence: A floating-point network tensor of shape ``(length, batch, features)``.
        states: The hidden state before the first step and for an LSTM the memory: network tensors
            of shape ``(layers * directions, batch, ...)``.
        weights: For each layer those of its one or two directions.

    Returns:
        The outputs ``(length, batch, directions * outputs)``, and the states like those given.
    """
    flat = [part for parts in weights for part in parts]
    last: list[list[NetworkTensor]] = [[] for _ in states]
    for level, parts in enumerate(weights):
        outputs = []
        for direction, part in enumerate(parts):
            row = level * len(parts) + direction
            first = [_row_of(ctx, state, row, len(flat)) for state in states]
            backward = direction == 1
            tensor = padding.flip(ctx, sequence, [0]) if backward else sequence
            output, after = _direction(ctx, cell, tensor, first, part)
            outputs.append(padding.flip(ctx, output, [0]) if backward else output)
            for collected, state in zip(last, after, strict=True):
                collected.append(state)
        sequence = slicing.concatenate(ctx, outputs, 2)
    return sequence, [slicing.concatenate(ctx, collected, 0) for collected in last]


def _row_of(ctx: ConversionContext, state: NetworkTensor, row: int, count: int) -> NetworkTensor:
    """Returns the state of one direction of one layer: ``(1, batch, ...)``."""
    if count == 1:
        return state
    extents = [1, *sizes.sizes_of(ctx, state)[1:]]
    return shape.slice_by(ctx, state, [row, 0, 0], extents, [1] * 3)


def _direction(
    ctx: ConversionContext,
    cell: Cell,
    sequence: NetworkTensor,
    states: Sequence[NetworkTensor],
    weights: Weights,
) -> tuple[NetworkTensor, list[NetworkTensor]]:
    """Returns the outputs and the last states of one direction of a layer, which one loop computes."""
    dtype = ctx.dtype_of(sequence)
    length = sizes.size_of(ctx, sequence, 0)
    inputs = _inputs(ctx, cell, sequence, weights)
    recurrent = _by_gate(ctx, weights.hidden, cell.gates, dtype)
    bias = projection = None
    if cell.bias_inside and weights.hidden_bias is not None:
        bias = _by_gate(ctx, weights.hidden_bias, cell.gates, dtype)
    if weights.projection is not None:
        projection = _by_gate(ctx, weights.projection, 1, dtype)

    loop = ctx.net.add_loop()
    count = ctx.tensor(length)
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    element = loop.add_iterator(inputs, 0).get_output(0)
    carried = [loop.add_recurrence(state) for state in states]
    before = [layer.get_output(0) for layer in carried]
    product = Formula(ctx, matmul.multiply(ctx, before[0], recurrent, transpose_second=True))
    if bias is not None:
        product = product + bias
    read = [Formula(ctx, tensor) for tensor in (element, *before)]
    after = [state.tensor for state in cell.step(Step(ctx, read[0], product, read[1:]))]
    if projection is not None:
        after[0] = matmul.multiply(ctx, after[0], projection, transpose_second=True)
    for layer, state in zip(carried, after, strict=True):
        layer.set_input(1, state)
    collected = loop.add_loop_output(after[0], trt.LoopOutput.CONCATENATE, 0)
    collected.set_input(1, count)
    last = [loop.add_loop_output(state, trt.LoopOutput.LAST_VALUE, 0) for state in before]
    return (
        shape.squeeze(ctx, collected.get_output(0), [1]),
        [layer.get_output(0) for layer in last],
    )


def _inputs(
    ctx: ConversionContext, cell: Cell, sequence: NetworkTensor, weights: Weights
) -> NetworkTensor:
    """Returns the input's share of the gates at every step: ``(length, gates, batch, hidden)``."""
    share = matmul.linear(ctx, sequence, weights.input, weights.input_bias)
    if weights.hidden_bias is not None and not cell.bias_inside:
        share = (Formula(ctx, share) + weights.hidden_bias).tensor
    width = (
        share.shape[2] // cell.gates
    )  # which TensorRT does not infer from a batch without sequences
    layer = add_layer(ctx, "shuffle", share)
    layer.reshape_dims = (0, 0, cell.gates, width)
    layer.second_transpose = (0, 2, 1, 3)
    return layer.get_output(0)


def _by_gate(
    ctx: ConversionContext, value: NetworkTensor | torch.Tensor, gates: int, dtype: torch.dtype
) -> NetworkTensor:
    """Returns weights as ``(gates, rows of one gate, columns)``, a bias as one row of each gate."""
    rows, *columns = tuple(value.shape)
    wanted = (gates, rows // gates, *columns) if columns else (gates, 1, rows // gates)
    if not is_network_tensor(value):
        return types.get_constant(ctx, value, dtype, wanted)
    return shape.reshape(ctx, types.cast(ctx, value, dtype), wanted)


CELLS = {
    aten.lstm.input: LSTM,
    aten.gru.input: GRU,
    aten.rnn_tanh.input: RNN_TANH,
    aten.rnn_relu.input: RNN_RELU,
}


def _features_vary(node: Node) -> str | None:
    op = arguments_of(node)
    if op.train and op.dropout:
        return "dropout between layers in training mode is random"
    fixed = (value_of(op.input).shape[-1:], *(value_of(weight).shape for weight in op.params))
    if not all(isinstance(size, int) for sizes in fixed for size in sizes):
        return "the numbers of features and of hidden elements must be fixed"
    return None


@pack.converter(table={"cell": CELLS}, reject_if=_features_vary)
def recurrent(
    ctx: ConversionContext,
    input: NetworkTensor | torch.Tensor,
    hx: Sequence[NetworkTensor | torch.Tensor] | NetworkTensor | torch.Tensor,
    params: Sequence[NetworkTensor | torch.Tensor],
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    *,
    cell: Cell,
    **_: Any,
) -> tuple[NetworkTensor | None, ...]:
    """Converts stacked recurrent layers in one or two directions as loops over sequences of any length."""
    result = types.output_dtype(ctx, 0)
    # Where networks are weakly typed, half precision does not come around a loop.
    dtype = result if supports(Capability.STRONG_TYPING) else types.accumulation_dtype(result)
    sequence = types.operand(ctx, types.upcast(ctx, input, dtype), dtype, 3)
    if batch_first:
        sequence = shape.swap(ctx, sequence, 0, 1)
    initial = hx if isinstance(hx, Sequence) else [hx]
    states = [types.operand(ctx, types.upcast(ctx, state, dtype), dtype, 3) for state in initial]
    weights = _weights(params, num_layers, bidirectional)
    # TensorRT for RTX 1.7 takes 20 s to 255 s to build an LSTM or a GRU for a batch of 1, and 1 s for a batch of 2.
    is_doubled = sequence.shape[1] == 1 and not supports(Capability.SINGLE_ROW_LOOPS)
    if is_doubled:
        sequence, *states = (
            slicing.concatenate(ctx, [tensor, tensor], 1) for tensor in (sequence, *states)
        )
    outputs, last = _run(ctx, cell, sequence, states, weights)
    if is_doubled:
        outputs, *last = (_first_of_batch(ctx, tensor) for tensor in (outputs, *last))
    if batch_first:
        outputs = shape.swap(ctx, outputs, 0, 1)
    return tuple(types.cast(ctx, tensor, result) for tensor in (outputs, *last))


def _first_of_batch(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns the first of the sequences that a tensor ``(..., batch, features)`` of rank 3 has, as a batch of one."""
    length, _, features = sizes.sizes_of(ctx, tensor)
    return shape.slice_by(ctx, tensor, [0, 0, 0], [length, 1, features], [1] * 3)


def _weights(
    params: Sequence[NetworkTensor | torch.Tensor], num_layers: int, bidirectional: bool
) -> list[list[Weights]]:
    """Returns the flat list of parameters by layer and direction."""
    directions = 2 if bidirectional else 1
    count = len(params) // (num_layers * directions)
    projects = count % 2 == 1
    parts = []
    for start in range(0, len(params), count):
        own = list(params[start : start + count])
        projection = own.pop() if projects else None
        first, second, *biases = own
        input_bias, hidden_bias = biases or (None, None)
        parts.append(Weights(first, second, input_bias, hidden_bias, projection))
    return [parts[start : start + directions] for start in range(0, len(parts), directions)]
