"""The context of TorchScript converters: the network, and the converted values of the graph."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import torch

from torchtrt.callers import warn_caller
from torchtrt.conversion import (
    ConversionContext,
    as_torch_tensor,
    is_network_tensor,
)
from torchtrt.errors import ConversionError
from torchtrt_torchscript.node_arguments import uncontained
from torchtrt_torchscript.torch_internals import ScriptValue


class ValueMap(MutableMapping[Any, Any]):
    """A mapping from values of a TorchScript graph, which are equal where they are the same value of the same graph."""

    def __init__(self) -> None:
        self._items: dict[int, tuple[ScriptValue, Any]] = {}

    def __getitem__(self, value: ScriptValue) -> Any:
        return self._items[value.unique()][1]

    def __setitem__(self, value: ScriptValue, item: Any) -> None:
        self._items[value.unique()] = (value, item)

    def __delitem__(self, value: ScriptValue) -> None:
        del self._items[value.unique()]

    def __iter__(self) -> Iterator[ScriptValue]:
        return (value for value, _ in self._items.values())

    def __len__(self) -> int:
        return len(self._items)


class EvaluatedValueMap(ValueMap):
    """Holds the graph's constants too, and the lists and tuples made of what it holds."""

    def __getitem__(self, value: ScriptValue) -> Any:
        if value.unique() not in self._items:
            maker = value.node()
            if maker.kind() == "prim::Constant":
                self[value] = value.toIValue()
            elif maker.kind() in _COLLECTIONS:
                parts = [self[part] for part in maker.inputs()]
                self[value] = tuple(parts) if maker.kind() == "prim::TupleConstruct" else parts
        return super().__getitem__(value)


_COLLECTIONS = ("prim::ListConstruct", "prim::TupleConstruct")


class ConversionCtx:
    """The first argument of a TorchScript converter. It lives as long as the conversion of one block.

    Attributes:
        net: The TensorRT network under construction.
        settings: The settings of this compilation.
        value_tensor_map: The network tensor of each graph value that a TorchScript converter has received or made.
        evaluated_value_map: The value of each such graph value that is known when the engine is built, of every
            constant of the graph, and of lists and tuples of these.
        label: The name for the layers of the node in conversion: see ``node_info``.
        conversion: The context that the converters of the other front end receive. The building
            blocks of the packs take it.
    """

    def __init__(self, conversion: ConversionContext) -> None:
        self.conversion = conversion
        self.net = conversion.net
        self.settings = conversion.compilation_settings
        self.value_tensor_map: MutableMapping[Any, Any] = ValueMap()
        self.evaluated_value_map: MutableMapping[Any, Any] = EvaluatedValueMap()
        self.label = ""
        self._names: set[str] = set()

    def associate_value_and_tensor(self, value: ScriptValue, tensor: Any) -> Any:
        """Sets the network tensor of an output of the node, and names it by the value's debug name.

        Returns:
            The tensor.
        """
        name = value.debugName()
        while name in self._names:  # a loop that was unrolled makes the value again
            name += "'"
        if not tensor.is_network_input and self.conversion.known_value(tensor) is None:
            self._names.add(name)
            tensor.name = name
        self.value_tensor_map[value] = tensor
        return tensor

    def associate_value_and_ivalue(self, value: ScriptValue, ivalue: Any) -> Any:
        """Sets an output of the node that is known already: a number, or a list of tensor containers.

        Returns:
            The value.
        """
        self.evaluated_value_map[value] = ivalue
        return ivalue

    def record(self, value: ScriptValue, held: Any) -> None:
        """Records what a value of the graph is, and what the values are that a list or tuple is made of."""
        if is_network_tensor(held):
            self.value_tensor_map[value] = held
            return
        self.evaluated_value_map[value] = held
        maker = value.node()
        if maker.kind() in _COLLECTIONS and isinstance(held, (list, tuple)):
            for part, item in zip(maker.inputs(), held, strict=False):
                self.record(part, uncontained(item))

    def result_of(self, value: ScriptValue) -> Any:
        """Returns what has been associated with a value: a network tensor or a value.

        With neither there is a warning that names the value, and an error if something reads it.

        Raises:
            ConversionError: Nothing has been associated with a value that is read.
        """
        if value in self.value_tensor_map:
            return self.value_tensor_map[value]
        if value in self.evaluated_value_map:
            return uncontained(self.evaluated_value_map[value])
        message = (
            f"The converter of {self.label} returned True, but associated neither a tensor nor a value with "
            f"%{value.debugName()}. Call ctx.associate_value_and_tensor or ctx.associate_value_and_ivalue for each "
            "output of the node."
        )
        if value.uses():
            raise ConversionError(message)
        warn_caller(message)
        return None


class Weights:
    """TensorRT weights of a tensor or a number. The memory is kept until the engine is built.

    Args:
        ctx: The conversion context.
        value: A weight, or a number, which becomes a tensor of one element.

    Attributes:
        data: The ``trt.Weights``.
        shape: The sizes: ``(output maps, input maps, *kernel)`` for a convolution; ``()`` for a number.
        kernel_shape: The sizes after the first two; ``(1,)`` where a tensor has no more than two, ``()`` for a number.
        num_output_maps: The first size; 1 for a number.
        num_input_maps: The second size, or the first where there is no other; 1 for a number.
    """

    def __init__(self, ctx: ConversionCtx, value: torch.Tensor | float) -> None:
        tensor = as_torch_tensor(value)
        self.data = ctx.conversion.weights(tensor.reshape(1) if tensor.dim() == 0 else tensor)
        self.shape = tuple(tensor.shape)
        self.kernel_shape = self.shape[2:] or (1,) * min(tensor.dim(), 1)
        maps = (*self.shape[:2], *self.shape[:1], 1, 1)
        self.num_output_maps, self.num_input_maps = maps[:2]
