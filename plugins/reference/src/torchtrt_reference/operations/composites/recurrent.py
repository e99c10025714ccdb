"""The recurrent layer of TensorRT 8, which later versions do not have: described, not computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchtrt_reference.semantics.operation import Call, Operation, frozen
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts

GATES = {
    "RELU": ("INPUT",),
    "TANH": ("INPUT",),
    "LSTM": ("INPUT", "OUTPUT", "FORGET", "CELL"),
    "GRU": ("RESET", "UPDATE", "HIDDEN"),
}


class RNN(Operation):
    """A stack of recurrent layers. It is added, and takes weights, but does not build.

    Seen on TensorRT 8.6: a layer without all of its weights does not build, one with all of them runs. It was
    deprecated in favour of loops, which the reference computes.
    """

    name = "rnn_v2"
    methods = frozen({"add_rnn_v2": {}})
    maximum_inputs = 4
    aliases = frozen({"num_layers": "layer_count"})
    defaults = frozen(
        {
            "layer_count": 1,
            "hidden_size": 1,
            "max_seq_length": 1,
            "op": "RELU",
            "input_mode": "LINEAR",
            "direction": "UNIDIRECTION",
            "given": frozenset(),
        }
    )

    def output_count(self, attributes: Mapping[str, Any]) -> int:
        """The outputs, the last hidden state, and the last cell state of an LSTM."""
        return 3 if attributes["op"] == "LSTM" else 2

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Never: what is missing is named as TensorRT names it."""
        directions = 2 if call["direction"] == "BIDIRECTION" else 1
        wanted = (
            (index, gate, is_input)
            for index in range(int(call["layer_count"]) * directions)
            for gate in GATES[call["op"]]
            for is_input in (True, False)
        )
        for index, gate, is_input in wanted:
            for kind in ("weights", "bias"):
                call.require(
                    (kind, index, gate, is_input) in call["given"],
                    f"Missing weights/bias: ({index}, {gate}, {int(is_input)})",
                )
        message = (
            "the reference does not compute RNNv2 layers, which TensorRT 10 removed: build a loop"
        )
        raise RefusedError(message)


OPERATIONS = (RNN(),)
