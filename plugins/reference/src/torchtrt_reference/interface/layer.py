"""``ILayer``: a node of a network. What a layer knows about itself is its :class:`Operation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from torchtrt_reference.interface.ports import Ported
from torchtrt_reference.interface.tensors import Tensor
from torchtrt_reference.operations.operation import Call, Operation, infer
from torchtrt_reference.operations.tensor_facts import RefusedError, TensorFacts

if TYPE_CHECKING:
    from torchtrt_reference.interface.network import NetworkDefinition


class Layer(Ported):
    """A layer of a network: an operation, its attributes, its inputs and its outputs.

    The properties of the subclasses in the interface (``axis``, ``op``, ...) read and write ``attributes``.
    """

    _trt: ClassVar[Any]
    _inputs: list[Tensor | None]
    _outputs: list[Tensor]

    def __init__(
        self,
        network: NetworkDefinition,
        operation: Operation,
        inputs: Sequence[Tensor | None],
        attributes: dict[str, Any],
    ) -> None:
        self._network = network
        self._operation = operation
        self._attributes = attributes
        self._inputs = []
        self._position = network._next_position()
        self._name = f"(Unnamed Layer* {self._position}) [{operation.title}]"
        self._metadata = ""
        self._output_types: dict[int, str] = {}
        self._precision: Any = None
        self._ranks = 1
        self._cached: tuple[TensorFacts, ...] | RefusedError | None = None
        for tensor in inputs:
            self._inputs.append(tensor)
            if tensor is not None:
                tensor._consumers[id(self)] = self
        self._outputs = [
            network._new_tensor(
                f"{self._name}_output" if index == 0 else f"{self._name}_output_{index}",
                self,
                index,
            )
            for index in range(operation.output_count(attributes))
        ]

    def _operands(self) -> Sequence[Tensor | None]:
        """What the operation reads: the inputs, unless a subclass adds what TensorRT does not count as one."""
        return self._inputs

    def _input_facts(self) -> list[TensorFacts | None]:
        return [None if tensor is None else tensor._facts() for tensor in self._operands()]

    def _call(self) -> Call:
        return Call(
            self._attributes,
            self._input_facts(),
            self._network._rules,
            self._network._strong,
            [
                tensor._declared or self._output_types.get(index)
                for index, tensor in enumerate(self._outputs)
            ],
        )

    def _output_facts(self) -> tuple[TensorFacts, ...]:
        """The facts of the outputs.

        Raises:
            RefusedError: A rule is broken here or before; the text names the layer.
        """
        if self._cached is None:
            for layer in self._unknown_before():
                layer._settle()
        if isinstance(self._cached, RefusedError):
            raise self._cached
        assert self._cached is not None
        return self._cached

    def _unknown_before(self) -> list[Layer]:
        # Iterative, because a network may be deeper than Python's stack.
        order: list[Layer] = []
        stack: list[tuple[Layer, bool]] = [(self, False)]
        seen: set[int] = set()
        while stack:
            layer, is_ready = stack.pop()
            if is_ready:
                order.append(layer)
                continue
            if id(layer) in seen or layer._cached is not None:
                continue
            seen.add(id(layer))
            stack.append((layer, True))
            for tensor in layer._operands():
                if tensor is not None and tensor._producer is not None:
                    stack.append((tensor._producer, False))
        return order

    def _settle(self) -> None:
        try:
            call = self._call()
        except RefusedError as error:
            self._cached = error  # of an earlier layer, which is already named
            return
        try:
            self._cached = infer(self._operation, call)
        except RefusedError as error:
            self._cached = RefusedError(f"{self._name}: {error}")

    def _invalidate(self) -> None:
        pending = [self]
        while pending:
            layer = pending.pop()
            if layer._cached is None:
                continue
            layer._cached = None
            for tensor in layer._outputs:
                pending.extend(tensor._consumers.values())

    def _drop_inputs(self, first: int) -> None:
        for index in range(first, len(self._inputs)):
            self._drop_input(index)

    def _drop_input(self, index: int) -> None:
        if index < len(self._inputs):
            dropped = self._inputs[index]
            self._inputs[index] = None
            if dropped is not None and not any(tensor is dropped for tensor in self._inputs):
                dropped._consumers.pop(id(self), None)
        while self._inputs and self._inputs[-1] is None:
            self._inputs.pop()
        self._invalidate()

    def set_input(self, index: int, tensor: Tensor) -> None:
        """Connects an input, and extends the inputs where the layer documents further ones."""
        limit = self._operation.maximum_inputs or len(self._inputs)
        if not 0 <= index < max(limit, len(self._inputs)):
            self._network._error(f"{self._name}: input {index} does not exist")
            return
        while len(self._inputs) <= index:
            self._inputs.append(None)
        self._inputs[index] = tensor
        tensor._consumers[id(self)] = self
        self._invalidate()

    @property
    def name(self) -> str:
        """The layer's name."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        if len(value) > 4095:
            self._network._error("a layer name may have at most 4095 bytes")
            return
        for index, tensor in enumerate(self._outputs):
            if tensor._name.startswith(f"{self._name}_output"):
                tensor._name = f"{value}_output" if index == 0 else f"{value}_output_{index}"
        self._name = value
        self._invalidate()

    @property
    def metadata(self) -> str:
        """A text that travels with the layer into the engine."""
        return self._metadata

    @metadata.setter
    def metadata(self, value: str) -> None:
        self._metadata = value

    @property
    def type(self) -> Any:
        """What kind of layer this is."""
        return self._trt.LayerType.__members__[
            self._operation.layer_type or self._operation.name.upper()
        ]

    @property
    def precision(self) -> Any:
        """The type a weakly typed build should compute in; the reference computes in the declared types."""
        return self._precision or self._trt.DataType.FLOAT

    @precision.setter
    def precision(self, value: Any) -> None:
        self._precision = value

    @property
    def precision_is_set(self) -> bool:
        """Whether a precision was set."""
        return self._precision is not None

    def reset_precision(self) -> None:
        """Forgets the precision."""
        self._precision = None

    def set_output_type(self, index: int, dtype: Any) -> None:
        """Sets the type of an output of a weakly typed network."""
        if self._network._strong:
            self._network._error(
                f"{self._name}: output types cannot be set in a strongly typed network"
            )
            return
        self._output_types[index] = dtype.name
        self._invalidate()

    def get_output_type(self, index: int) -> Any:
        """Returns the type of an output."""
        if not 0 <= index < len(self._outputs):
            self._network._error(f"{self._name}: output {index} does not exist")
            return self._trt.DataType.FLOAT
        return self._outputs[index].dtype

    def output_type_is_set(self, index: int) -> bool:
        """Returns whether the type of an output was set."""
        return index in self._output_types

    def reset_output_type(self, index: int) -> None:
        """Forgets the type that was set for an output."""
        self._output_types.pop(index, None)
        self._invalidate()

    @property
    def num_ranks(self) -> int:
        """How many processes a distributed layer spans; 1 in the reference."""
        return self._ranks

    @num_ranks.setter
    def num_ranks(self, value: int) -> None:
        if value != 1:
            self._network._error(
                f"{self._name}: the reference runs in one process, num_ranks stays 1"
            )


class FillLayer(Layer):
    """A fill, which can say what type alpha and beta have."""

    def is_alpha_beta_int64(self) -> bool:
        """Returns whether alpha and beta were given as integers."""
        values = (self._attributes["alpha"], self._attributes["beta"])
        return any(isinstance(value, int) for value in values)


class KVCacheUpdateLayer(Layer):
    """A cache update, which may be told how long each update is."""

    @property
    def update_lengths(self) -> Tensor | None:
        """The lengths of packed updates, None if unset."""
        return self.get_input(3)

    @update_lengths.setter
    def update_lengths(self, value: Tensor) -> None:
        self.set_input(3, value)


class RNNLayer(Layer):
    """A stack of recurrent layers; its weights are set one by one. Inputs 1 to 3 are lengths and initial states."""

    def _weights(self) -> dict[tuple[str, int, str, bool], Any]:
        weights: dict[tuple[str, int, str, bool], Any] = self.__dict__.setdefault("_gates", {})
        return weights

    def _set(self, kind: str, index: int, gate: Any, is_w: bool, weights: Any) -> None:
        self._weights()[kind, index, gate.name, is_w] = weights
        self._attributes["given"] = frozenset(self._weights())
        self._invalidate()

    def _get(self, kind: str, index: int, gate: Any, is_w: bool) -> Any:
        return self._weights().get((kind, index, gate.name, is_w), self._trt.Weights()).numpy()

    def set_weights_for_gate(self, layer_index: int, gate: Any, is_w: bool, weights: Any) -> None:
        """Sets the weights of a gate: for the input if ``is_w``, otherwise for the hidden state."""
        self._set("weights", layer_index, gate, is_w, weights)

    def get_weights_for_gate(self, layer_index: int, gate: Any, is_w: bool) -> Any:
        """Returns the weights of a gate; an empty array if they are not set."""
        return self._get("weights", layer_index, gate, is_w)

    def set_bias_for_gate(self, layer_index: int, gate: Any, is_w: bool, bias: Any) -> None:
        """Sets the bias of a gate."""
        self._set("bias", layer_index, gate, is_w, bias)

    def get_bias_for_gate(self, layer_index: int, gate: Any, is_w: bool) -> Any:
        """Returns the bias of a gate; an empty array if it is not set."""
        return self._get("bias", layer_index, gate, is_w)

    @property
    def data_length(self) -> int:
        """The length of one step of the input."""
        source = self._inputs[0]
        assert source is not None
        return source._facts().shape[-1]

    @property
    def seq_lengths(self) -> Tensor | None:
        """The length of each sequence, None if unset."""
        return self.get_input(1)

    @seq_lengths.setter
    def seq_lengths(self, value: Tensor) -> None:
        self.set_input(1, value)

    @property
    def hidden_state(self) -> Tensor | None:
        """The hidden state to start from, None if unset."""
        return self.get_input(2)

    @hidden_state.setter
    def hidden_state(self, value: Tensor) -> None:
        self.set_input(2, value)

    @property
    def cell_state(self) -> Tensor | None:
        """The cell state to start from, None if unset."""
        return self.get_input(3)

    @cell_state.setter
    def cell_state(self, value: Tensor) -> None:
        self.set_input(3, value)


class MoELayer(Layer):
    """A mixture of experts; weights and biases are inputs 3 to 8. The reference does not quantize it."""

    def _set_inputs(self, first: int, *tensors: Tensor) -> None:
        for index, tensor in enumerate(tensors, start=first):
            self.set_input(index, tensor)

    def set_gated_weights(
        self,
        fc_gate_weights: Tensor,
        fc_up_weights: Tensor,
        fc_down_weights: Tensor,
        activation: Any,
    ) -> None:
        """Sets the weights of all experts, and their activation."""
        self._attributes["activation_type"] = activation.name
        self._set_inputs(3, fc_gate_weights, fc_up_weights, fc_down_weights)

    def set_gated_biases(
        self, fc_gate_biases: Tensor, fc_up_biases: Tensor, fc_down_biases: Tensor
    ) -> None:
        """Sets the biases of all experts."""
        self._set_inputs(6, fc_gate_biases, fc_up_biases, fc_down_biases)

    def _quantize(self, *arguments: Any) -> None:  # noqa: ARG002
        self._attributes["quantized"] = True
        self._invalidate()

    set_quantization_static = set_quantization_dynamic_dbl_q = _quantize

    def set_swiglu_params(self, limit: float, alpha: float, beta: float) -> None:
        """Sets the parameters of the activation."""
        for name, value in (("limit", limit), ("alpha", alpha), ("beta", beta)):
            self._attributes[f"swiglu_param_{name}"] = value
        self._invalidate()


class AttentionHandle(Layer):
    """An attention as its user holds it: no layer itself, but the same state as its boundary layer."""

    _boundary: Layer

    @classmethod
    def _of(cls, layer: Layer) -> AttentionHandle:
        kind = layer._trt.IAttention
        handle: AttentionHandle = kind.__new__(kind)
        handle.__dict__ = layer.__dict__
        handle._boundary = layer
        return handle

    def _optional(self, index: int) -> Tensor | None:
        return self._inputs[index] if index < len(self._inputs) else None

    @property
    def mask(self) -> Tensor | None:
        """What may be attended to: a bool tensor, or one that is added; None if unset."""
        return self._optional(3)

    @mask.setter
    def mask(self, value: Tensor) -> None:
        Layer.set_input(self._boundary, 3, value)

    @property
    def normalization_quantize_scale(self) -> Tensor | None:
        """The scale of a quantized normalization, None if unset."""
        return self._optional(4)

    @normalization_quantize_scale.setter
    def normalization_quantize_scale(self, value: Tensor) -> None:
        Layer.set_input(self._boundary, 4, value)

    @property
    def query_lengths(self) -> Tensor | None:
        """The lengths of packed queries, None if unset."""
        return self._optional(5)

    @query_lengths.setter
    def query_lengths(self, value: Tensor) -> None:
        Layer.set_input(self._boundary, 5, value)

    @property
    def key_value_lengths(self) -> Tensor | None:
        """The lengths of packed keys and values, None if unset."""
        return self._optional(6)

    @key_value_lengths.setter
    def key_value_lengths(self, value: Tensor) -> None:
        Layer.set_input(self._boundary, 6, value)

    def set_input(self, index: int, tensor: Tensor) -> bool:  # type: ignore[override]
        """Connects an input; returns whether there is such an input."""
        if not 0 <= index < 3:
            self._network._error(f"{self._name}: input {index} does not exist")
            return False
        Layer.set_input(self._boundary, index, tensor)
        return True


class AttentionBoundaryLayer(Layer):
    """The layer of an attention in its network."""

    @property
    def attention(self) -> Any:
        """The attention it belongs to."""
        return AttentionHandle._of(self)
