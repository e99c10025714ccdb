"""The recurrent layer of TensorRT 8.6 computes what PyTorch's recurrent modules compute."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

DATA, HIDDEN, STEPS, BATCH = 3, 4, 5, 2
MODULES = {
    "RELU": lambda *a, **k: torch.nn.RNN(*a, nonlinearity="relu", **k),
    "TANH": torch.nn.RNN,
    "LSTM": torch.nn.LSTM,
    "GRU": torch.nn.GRU,
}
# The gates in the order in which PyTorch's modules stack them.
GATES = {
    "RELU": ("INPUT",),
    "TANH": ("INPUT",),
    "LSTM": ("INPUT", "FORGET", "CELL", "OUTPUT"),
    "GRU": ("RESET", "UPDATE", "HIDDEN"),
}


def module(kind: str, layers: int, directions: int) -> torch.nn.RNNBase:
    """A PyTorch module with random weights."""
    torch.manual_seed(0)
    made: torch.nn.RNNBase = MODULES[kind](
        DATA, HIDDEN, layers, batch_first=True, bidirectional=directions == 2
    ).eval()
    return made


def add(n: Any, x: Any, source: torch.nn.RNNBase, kind: str, skipped: int = 0) -> Any:
    """An RNNv2 layer with a module's weights, without input weights for the first ``skipped`` layers."""
    trt, directions = n.trt, 2 if source.bidirectional else 1
    steps = x.shape[-2]
    operation = trt.RNNOperation.__members__[kind]
    layer = n.net.add_rnn_v2(x, source.num_layers, HIDDEN, steps, operation)
    if directions == 2:
        layer.direction = trt.RNNDirection.BIDIRECTION
    for index in range(source.num_layers * directions):
        suffix = f"_l{index // directions}" + "_reverse" * (index % directions)
        for side, is_input in (("ih", True), ("hh", False)):
            weights = getattr(source, f"weight_{side}{suffix}").detach().split(HIDDEN)
            biases = getattr(source, f"bias_{side}{suffix}").detach().split(HIDDEN)
            for gate, weight, bias in zip(GATES[kind], weights, biases, strict=True):
                member = trt.RNNGateType.__members__[gate]
                if not (is_input and index < skipped):
                    layer.set_weights_for_gate(index, member, is_input, weight.numpy())
                layer.set_bias_for_gate(index, member, is_input, bias.numpy())
    return layer


def outputs_of(layer: Any) -> list[Any]:
    """All outputs of a layer."""
    return [layer.get_output(index) for index in range(layer.num_outputs)]


def states_of(last: torch.Tensor | Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """PyTorch's last states, the batch first."""
    return [state.transpose(0, 1) for state in (last if isinstance(last, tuple) else (last,))]


@pytest.mark.parametrize(
    ("kind", "layers", "directions", "starts"),
    list(itertools.product(GATES, (1, 3), (1, 2), (False, True))),
)
def test_an_rnn_is_that_of_pytorch(
    bench: Any, kind: str, layers: int, directions: int, starts: bool
) -> None:
    """Outputs and last states, of one layer and of several, one direction and two, from zero and from given states."""
    n, source = bench("8.6.0"), module(kind, layers, directions)
    x = torch.randn(BATCH, STEPS, DATA)
    states = [torch.randn(BATCH, layers * directions, HIDDEN) for _ in range(2)]
    layer = add(n, n.input(x), source, kind)
    inputs: Any = None
    if starts:
        layer.hidden_state = n.input(states[0])
        inputs = states[0].transpose(0, 1).contiguous()
        if kind == "LSTM":
            layer.cell_state = n.input(states[1])
            inputs = (inputs, states[1].transpose(0, 1).contiguous())
    with torch.inference_mode():
        y, last = source(x, inputs)
    got = n.run(*outputs_of(layer))
    assert [tensor.shape for tensor in got] == [tensor.shape for tensor in (y, *states_of(last))]
    for mine, theirs in zip(got, (y, *states_of(last)), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("kind", "directions"), list(itertools.product(GATES, (1, 2))))
def test_an_rnn_ends_where_a_sequence_ends(bench: Any, kind: str, directions: int) -> None:
    """Shorter sequences end with 0, their last states are those of their last elements, backward starts there."""
    n, source = bench("8.6.0"), module(kind, 2, directions)
    x, lengths = torch.randn(4, STEPS, DATA), torch.tensor([2, 5, 1, 3], dtype=torch.int32)
    layer = add(n, n.input(x), source, kind)
    layer.seq_lengths = n.input(lengths)
    with torch.inference_mode():
        packed, last = source(pack_padded_sequence(x, lengths.long(), True, False))
        y, _ = pad_packed_sequence(packed, True, total_length=STEPS)
    for mine, theirs in zip(n.run(*outputs_of(layer)), (y, *states_of(last)), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("kind", "directions"), list(itertools.product(GATES, (1, 2))))
def test_skip_takes_the_input_for_every_gate(bench: Any, kind: str, directions: int) -> None:
    """With SKIP the first layer multiplies its input with no matrix, as if with the identity; biases stay."""
    n, source = bench("8.6.0"), module(kind, 2, directions)
    x = torch.randn(BATCH, STEPS, HIDDEN)
    layer = add(n, n.input(x), source, kind, skipped=directions)
    layer.input_mode = n.trt.RNNInputMode.SKIP
    for suffix in ("_l0", "_l0_reverse")[:directions]:
        identity = torch.eye(HIDDEN).repeat(len(GATES[kind]), 1)
        setattr(source, f"weight_ih{suffix}", torch.nn.Parameter(identity))
    source.input_size = HIDDEN
    with torch.inference_mode():
        y, last = source(x)
    for mine, theirs in zip(n.run(*outputs_of(layer)), (y, *states_of(last)), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_every_leading_dimension_is_a_batch(bench: Any) -> None:
    """Sequences stand in any number of index dimensions, none of them included; so do lengths and states."""
    source = module("LSTM", 1, 2)
    for index in ((), (2, 3)):
        n = bench("8.6.0")
        x, start = torch.randn(*index, STEPS, DATA), torch.randn(*index, 2, HIDDEN)
        layer = add(n, n.input(x), source, "LSTM")
        layer.hidden_state = n.input(start)
        layer.seq_lengths = n.input(torch.full(index, STEPS, dtype=torch.int32))
        first = start.reshape(-1, 2, HIDDEN).transpose(0, 1).contiguous()
        with torch.inference_mode():
            y, last = source(x.reshape(-1, STEPS, DATA), (first, torch.zeros_like(first)))
        wanted = [y.reshape(*index, STEPS, -1)]
        wanted += [state.reshape(*index, 2, HIDDEN) for state in states_of(last)]
        for mine, theirs in zip(n.run(*outputs_of(layer)), wanted, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_another_operation_has_other_outputs(bench: Any) -> None:
    """An LSTM has the cell state for its third output; a layer that becomes one gets it, one that was loses it."""
    n = bench("8.6.0")
    kinds = n.trt.RNNOperation
    layer = n.net.add_rnn_v2(n.input(torch.ones(1, 2, 3)), 1, 4, 2, kinds.GRU)
    assert layer.num_outputs == 2
    layer.op = kinds.LSTM
    assert layer.num_outputs == 3
    assert layer.get_output(2).name == f"{layer.name}_output_2"
    layer.op = kinds.TANH
    assert layer.num_outputs == 2


def test_weights_of_an_rnn_are_named_and_refitted(bench: Any) -> None:
    """Named weights of a recurrent layer take other values when the engine is refitted."""
    n, source = bench("8.6.0"), module("TANH", 1, 1)
    x = torch.randn(1, STEPS, DATA)
    layer = add(n, n.input(x), source, "TANH")
    gate = n.trt.RNNGateType.INPUT
    first, other = (n.trt.Weights(np.full(HIDDEN, value, np.float32)) for value in (0.5, -0.25))
    layer.set_bias_for_gate(0, gate, True, first)
    assert n.net.set_weights_name(first, "bias")
    n.config.set_flag(n.trt.BuilderFlag.REFIT)
    context = n.context(*outputs_of(layer))
    refitter = n.trt.Refitter(context.engine, n.logger)
    assert refitter.set_named_weights("bias", other)
    assert refitter.refit_cuda_engine()
    y, last = torch.empty(1, STEPS, HIDDEN), torch.empty(1, 1, HIDDEN)
    context.set_tensor_address("o0", y.data_ptr())
    context.set_tensor_address("o1", last.data_ptr())
    assert context.execute_async_v3(0)
    with torch.inference_mode():
        source.bias_ih_l0.fill_(-0.25)
        torch.testing.assert_close(y, source(x)[0])


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("steps", "must have max_seq_length"),
        ("varying", "the length of the data of an RNN must be fixed"),
        ("integers", "the input of an RNN must be of type"),
        ("weights", "must have 12 elements, not 16"),
        ("type", "must be of the input's type FLOAT, not HALF"),
        ("skip", "must be of length hidden_size"),
        ("cell", "only an LSTM has a cell state"),
        ("state", "hidden_state must be"),
        ("lengths", "seq_lengths must be of type Int32"),
    ],
)
def test_a_wrong_rnn_does_not_build(bench: Any, what: str, message: str) -> None:
    """What does not fit is refused when the network is built, and named."""
    n, source = bench("8.6.0"), module("TANH", 1, 1)
    x = torch.randn(BATCH, STEPS, DATA)
    x = x.int() if what == "integers" else x
    state = n.input(x, (BATCH, STEPS, -1) if what == "varying" else None)
    layer = add(n, state, source, "TANH")
    gate = n.trt.RNNGateType.INPUT
    if what == "steps":
        layer.set_input(0, n.input(x[:, 1:]))
    elif what == "weights":
        layer.set_weights_for_gate(0, gate, True, np.ones((4, 4), np.float32))
    elif what == "type":
        layer.set_bias_for_gate(0, gate, True, np.ones(4, np.float16))
    elif what == "skip":
        layer.input_mode = n.trt.RNNInputMode.SKIP
    elif what == "cell":
        layer.cell_state = n.input(torch.ones(BATCH, 1, HIDDEN))
    elif what == "state":
        layer.hidden_state = n.input(torch.ones(1, BATCH, HIDDEN))
    elif what == "lengths":
        layer.seq_lengths = n.input(torch.ones(BATCH))
    assert n.plan(layer.get_output(0)) is None
    assert message in n.errors[-1]


def test_the_number_of_sequences_may_vary(bench: Any) -> None:
    """A wildcard before the steps is a batch of any size."""
    n, source = bench("8.6.0"), module("LSTM", 2, 2)
    x = torch.randn(BATCH, STEPS, DATA)
    layer = add(n, n.input(x, (-1, STEPS, DATA)), source, "LSTM")
    layer.hidden_state = n.input(torch.zeros(BATCH, 4, HIDDEN), (-1, 4, HIDDEN))
    with torch.inference_mode():
        y, last = source(x)
    for mine, theirs in zip(n.run(*outputs_of(layer)), (y, *states_of(last)), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("steps", [STEPS - 1, -1])
def test_another_number_of_steps_is_not_added(bench: Any, steps: int) -> None:
    """An RNN of input whose steps are not ``max_seq_length``, or vary, is refused at once."""
    n = bench("8.6.0")
    x = n.input(torch.randn(BATCH, STEPS - 1, DATA), (BATCH, steps, DATA))
    assert n.net.add_rnn_v2(x, 1, HIDDEN, STEPS, n.trt.RNNOperation.TANH) is None
    assert "the sequences must have max_seq_length" in n.errors[-1]


@pytest.mark.parametrize("length", [0, STEPS + 1])
def test_a_length_outside_of_a_sequence_is_refused_when_it_runs(bench: Any, length: int) -> None:
    """Lengths are in [1, max_seq_length]."""
    n = bench("8.6.0")
    layer = add(n, n.input(torch.randn(1, STEPS, DATA)), module("GRU", 1, 1), "GRU")
    layer.seq_lengths = n.input(torch.tensor([length], dtype=torch.int32))
    with pytest.raises(AssertionError):
        n.run(layer.get_output(0))
    assert f"the lengths [{length}] of an RNN must be in [1, {STEPS}]" in n.errors[-1]
