"""The recurrent layer of TensorRT 8, which later versions do not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from torchtrt_reference.semantics.operation import Call, Function, Operation, frozen
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts

Tensor = torch.Tensor
_TYPES = frozenset({"FLOAT", "HALF"})
_FIRST_WEIGHTS = 4  # the inputs before are the sequences, their lengths, and the initial states
# In the order in which PyTorch stacks them.
_GATES = frozen(
    {
        "RELU": ("INPUT",),
        "TANH": ("INPUT",),
        "LSTM": ("INPUT", "FORGET", "CELL", "OUTPUT"),
        "GRU": ("RESET", "UPDATE", "HIDDEN"),
    }
)
_FUNCTIONS: Mapping[str, Function] = frozen(
    {"RELU": torch.rnn_relu, "TANH": torch.rnn_tanh, "LSTM": torch.lstm, "GRU": torch.gru}
)


class Part(NamedTuple):
    """The parameters of one gate.

    Attributes:
        kind: ``"weights"`` or ``"bias"``.
        layer: The layer in the stack; with two directions 2 * i is layer i forward, 2 * i + 1 backward.
        gate: The name of the gate.
        is_input: Whether it is for the layer's input, not for its hidden state.
    """

    kind: str
    layer: int
    gate: str
    is_input: bool

    @property
    def attribute(self) -> str:
        """The attribute of the layer that holds it."""
        return f"{self.kind} {self.layer} {self.gate} {int(self.is_input)}"


class RNN(Operation):
    """A stack of recurrent layers. Inputs 1 to 3 are the lengths, the initial hidden and the initial cell state.

    The weights are one matrix and one vector for each layer, gate, and what they apply to: see ``Part``.
    """

    name = "rnn_v2"
    methods = frozen({"add_rnn_v2": {}})
    maximum_inputs = _FIRST_WEIGHTS
    aliases = frozen({"num_layers": "layer_count"})
    defaults = frozen(
        {
            "layer_count": 1,
            "hidden_size": 1,
            "max_seq_length": 1,
            "op": "RELU",
            "input_mode": "LINEAR",
            "direction": "UNIDIRECTION",
        }
    )

    def output_count(self, attributes: Mapping[str, Any]) -> int:
        """The outputs, the last hidden state, and the last cell state of an LSTM."""
        return 3 if attributes["op"] == "LSTM" else 2

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """Another operation may have more outputs, or fewer."""
        layer._attributes[attribute] = value
        layer._fit_outputs()

    def admit(self, call: Call) -> None:
        """Checks that the input has ``max_seq_length`` steps, which may not vary."""
        fact, steps = call.optional(0), call["max_seq_length"]
        if fact is None or fact.rank < 2:
            return
        call.require(
            fact.shape[-2] == steps,
            f"the sequences must have max_seq_length ({steps}) steps, not {fact.shape[-2]}",
        )

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """``[..., S, E]`` becomes ``[..., S, H * directions]``; states are ``[..., layers * directions, H]``."""
        dtype = call.accept(0, _TYPES, "the input of an RNN")
        shape, hidden = call.shape(), int(call["hidden_size"])
        call.require(len(shape) >= 2, "the input of an RNN must have at least rank 2")
        self.admit(call)
        call.require(shape[-1] != -1, "the length of the data of an RNN must be fixed")
        self._check_input_mode(call)
        self._check_weights(call, dtype)
        states = (*shape[:-2], _layers(call.attributes), hidden)
        self._check_operands(call, dtype, states)
        dtype = call.declared(dtype)
        outputs = TensorFacts(dtype, (*shape[:-1], hidden * _directions(call.attributes)))
        return (outputs, *[TensorFacts(dtype, states)] * (self.output_count(call.attributes) - 1))

    @staticmethod
    def _check_input_mode(call: Call) -> None:
        length, hidden = call.shape()[-1], call["hidden_size"]
        call.require(
            call["input_mode"] == "LINEAR" or length == hidden,
            f"with the input mode SKIP the data must be of length hidden_size ({hidden}), not {length}",
        )

    @staticmethod
    def _check_weights(call: Call, dtype: str) -> None:
        """Checks that each gate has weights and biases of the size and dtype that the operands require."""
        for part in _parts(call.attributes):
            call.require(
                part.attribute in call.attributes,
                f"Missing weights/bias: ({part.layer}, {part.gate}, {int(part.is_input)})",
            )
            weights = call[part.attribute]
            if weights is None:
                continue  # an input of the built graph, which was checked before
            rows, columns = call["hidden_size"], _columns(call, part)
            call.require(
                weights.size == rows * columns,
                f"the {part.attribute} must have {rows * columns} elements, not {weights.size}",
            )
            call.require(
                weights.dtype.name == dtype,
                f"the {part.attribute} must be of the input's type {dtype}, not {weights.dtype.name}",
            )

    @staticmethod
    def _check_operands(call: Call, dtype: str, states: tuple[int, ...]) -> None:
        """Checks the optional operands: the lengths, the hidden state and the cell state, both of shape ``states``."""
        wanted = (
            (1, "seq_lengths", "INT32", states[:-2]),
            (2, "hidden_state", dtype, states),
            (3, "cell_state", dtype, states),
        )
        for index, what, kind, shape in wanted:
            if call.optional(index) is not None:
                call.accept(index, frozenset({kind}), what)
                call.require(
                    call.shape(index) == shape, f"{what} must be {shape}, not {call.shape(index)}"
                )
        call.require(
            call.optional(3) is None or call["op"] == "LSTM",
            f"only an LSTM has a cell state, not {call['op']}",
        )

    def weights(self, attributes: Mapping[str, Any]) -> Mapping[int, tuple[str, tuple[int, ...]]]:
        """The parts are inputs of the built graph in the order of PyTorch: gates side by side."""
        hidden = int(attributes["hidden_size"])
        return {
            index: (
                part.attribute,
                (hidden, attributes[part.attribute].size // hidden)
                if part.kind == "weights"
                else (hidden,),
            )
            for index, part in enumerate(_parts(attributes), start=_FIRST_WEIGHTS)
        }

    def bind(self, call: Call) -> Function:
        """PyTorch's recurrent layers, over packed sequences where lengths are given."""
        attributes, is_lstm = call.attributes, call["op"] == "LSTM"
        layers, hidden = _layers(attributes), int(call["hidden_size"])
        shapes = [fact.shape for fact in self.infer(call)]

        def compute(
            x: Tensor,
            lengths: Tensor | None,
            hidden_state: Tensor | None,
            cell_state: Tensor | None,
            *parts: Tensor,
        ) -> tuple[Tensor, ...]:
            sequences = x.reshape(-1, *x.shape[-2:])
            zero = sequences.new_zeros(len(sequences), layers, hidden)
            initial_states = [hidden_state, cell_state] if is_lstm else [hidden_state]
            states = [
                (zero if state is None else state.reshape(zero.shape)).transpose(0, 1).contiguous()
                for state in initial_states
            ]
            run = _recurrence(attributes, _parameters(attributes, zero, parts))
            if lengths is None:
                y, *last = run(sequences, states)
            else:
                y, *last = _to_their_lengths(run, sequences, lengths, states)
            results = (y, *(state.transpose(0, 1) for state in last))
            return tuple(result.reshape(s) for result, s in zip(results, shapes, strict=True))

        return compute


def _recurrence(attributes: Mapping[str, Any], parameters: list[Tensor]) -> Function:
    """PyTorch's function, of sequences or of packed elements with the sizes of their batches, and of states."""
    run = _FUNCTIONS[attributes["op"]]
    options = True, int(attributes["layer_count"]), 0.0, False, _directions(attributes) == 2

    def recur(x: Tensor, states: list[Tensor], batch_sizes: Tensor | None = None) -> Any:
        start = tuple(states) if attributes["op"] == "LSTM" else states[0]
        if batch_sizes is None:
            return run(x, start, parameters, *options, True)  # the batch comes first
        return run(x, batch_sizes, start, parameters, *options)

    return recur


def _parameters(
    attributes: Mapping[str, Any], like: Tensor, parts: Sequence[Tensor]
) -> list[Tensor]:
    """Weights and biases of every layer with the gates stacked; the identity where no matrix is applied."""
    gates, hidden = len(_GATES[attributes["op"]]), int(attributes["hidden_size"])
    identity = torch.eye(hidden, device=like.device, dtype=like.dtype).repeat(gates, 1)
    skipped = _directions(attributes) if attributes["input_mode"] == "SKIP" else 0
    remaining = iter(parts)
    return [
        identity
        if layer < skipped and is_input_weight
        else torch.cat([next(remaining) for _ in range(gates)])
        for layer in range(_layers(attributes))
        for is_input_weight in (True, False, False, False)
    ]


def _to_their_lengths(
    run: Function, sequences: Tensor, lengths: Tensor, states: list[Tensor]
) -> tuple[Tensor, ...]:
    """Outputs that are 0 after the end of each sequence, and the states at its end."""
    packed = _packed(sequences, lengths)
    order, back = packed.sorted_indices, packed.unsorted_indices
    assert order is not None
    assert back is not None
    ordered = [state.index_select(1, order) for state in states]
    data, *last = run(packed.data, ordered, packed.batch_sizes)
    y, _ = pad_packed_sequence(packed._replace(data=data), True, 0.0, sequences.shape[1])
    return y, *(state.index_select(1, back) for state in last)


def _packed(sequences: Tensor, lengths: Tensor) -> PackedSequence:
    steps = sequences.shape[1]
    on_host = lengths.reshape(-1).cpu().long()
    if bool(((on_host < 1) | (on_host > steps)).any()):
        message = f"the lengths {on_host.tolist()} of an RNN must be in [1, {steps}]"
        raise RefusedError(message)
    return pack_padded_sequence(sequences, on_host, True, False)


def _directions(attributes: Mapping[str, Any]) -> int:
    return 2 if attributes["direction"] == "BIDIRECTION" else 1


def _layers(attributes: Mapping[str, Any]) -> int:
    return int(attributes["layer_count"]) * _directions(attributes)


def _parts(attributes: Mapping[str, Any]) -> Iterator[Part]:
    """The parameters that must be set: all except the weights of inputs without a matrix."""
    directions, is_skipping = _directions(attributes), attributes["input_mode"] == "SKIP"
    for layer in range(_layers(attributes)):
        for kind in ("weights", "bias"):
            for is_input in (True, False):
                for gate in _GATES[attributes["op"]]:
                    is_skipped = is_skipping and kind == "weights" and is_input
                    if not (is_skipped and layer < directions):
                        yield Part(kind, layer, gate, is_input)


def _columns(call: Call, part: Part) -> int:
    if part.kind == "bias":
        return 1
    hidden, directions = int(call["hidden_size"]), _directions(call.attributes)
    if not part.is_input:
        return hidden
    return call.shape()[-1] if part.layer < directions else hidden * directions


OPERATIONS = (RNN(),)
