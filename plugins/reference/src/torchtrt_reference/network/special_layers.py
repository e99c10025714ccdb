"""Layers whose classes have more than the attributes of their operation."""

from __future__ import annotations

from typing import Any

from torchtrt_reference.network.elements import Layer, Tensor
from torchtrt_reference.operations.composites.recurrent import Part


class FillLayer(Layer):
    """A fill, which can declare the type of alpha and beta."""

    _implements = ("IFillLayer",)

    def is_alpha_beta_int64(self) -> bool:
        """Returns whether alpha and beta were given as integers."""
        values = (self._attributes["alpha"], self._attributes["beta"])
        return any(isinstance(value, int) for value in values)


class KVCacheUpdateLayer(Layer):
    """A cache update, which may have an input with the length of each update."""

    _implements = ("IKVCacheUpdateLayer",)

    @property
    def update_lengths(self) -> Tensor | None:
        """The lengths of packed updates, None if unset."""
        return self.get_input(3)

    @update_lengths.setter
    def update_lengths(self, value: Tensor) -> None:
        self.set_input(3, value)


class RNNLayer(Layer):
    """A stack of recurrent layers; its weights are set one by one. Inputs 1 to 3 are lengths and initial states."""

    _implements = ("IRNNv2Layer",)

    def _set(self, part: Part, weights: Any) -> None:
        self._attributes[part.attribute] = weights
        self._invalidate()

    def _get(self, part: Part) -> Any:
        return self._attributes.get(part.attribute, self._trt.Weights()).numpy()

    def set_weights_for_gate(self, layer_index: int, gate: Any, is_w: bool, weights: Any) -> None:
        """Sets the weights of a gate: for the input if ``is_w``, otherwise for the hidden state."""
        self._set(Part("weights", layer_index, gate.name, is_w), weights)

    def get_weights_for_gate(self, layer_index: int, gate: Any, is_w: bool) -> Any:
        """Returns the weights of a gate; an empty array if they are not set."""
        return self._get(Part("weights", layer_index, gate.name, is_w))

    def set_bias_for_gate(self, layer_index: int, gate: Any, is_w: bool, bias: Any) -> None:
        """Sets the bias of a gate."""
        self._set(Part("bias", layer_index, gate.name, is_w), bias)

    def get_bias_for_gate(self, layer_index: int, gate: Any, is_w: bool) -> Any:
        """Returns the bias of a gate; an empty array if it is not set."""
        return self._get(Part("bias", layer_index, gate.name, is_w))

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

    _implements = ("IMoELayer",)

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

    _implements = ("IAttention",)
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
        """The mask: a bool tensor, or one that is added; None if unset."""
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

    _implements = ("IAttentionBoundaryLayer",)

    def _held(self) -> AttentionHandle:
        return AttentionHandle._of(self)

    @property
    def attention(self) -> Any:
        """The attention it belongs to."""
        return self._held()
