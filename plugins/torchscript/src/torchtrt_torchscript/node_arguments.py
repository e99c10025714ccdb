"""The arguments of a TorchScript converter, one for each input of its node: network tensors and known values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from torchtrt.conversion import get_trt_tensor, is_network_tensor
from torchtrt.errors import ConversionError

Value = TypeVar("Value")
_NO_FALLBACK: Any = object()


class TensorContainer:
    """A network tensor inside a list, tuple or dictionary.

    Attributes:
        tensor: The network tensor.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class Argument:
    """An input of a node: a network tensor (``ITensor``) or a value known when the engine is built (``IValue``).

    Network tensors inside a list are ``TensorContainer``.

    The ``unwrap_to_*`` methods check the type and raise ``ConversionError`` if it is another one. With a
    fallback, they return it where the input is ``None``.

    Args:
        name: The input's name in the schema, for messages.
        value: A network tensor or a value.
    """

    __slots__ = ("_value", "name")

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self._value = value

    def __repr__(self) -> str:
        return f"Argument({self.name}: {self.kind})"

    @property
    def kind(self) -> str:
        """The kind of the argument: ``"ITensor"``, or the type of the value."""
        return "ITensor" if self.is_itensor() else type(self._value).__name__

    def is_itensor(self) -> bool:
        """Returns whether it is a network tensor."""
        return is_network_tensor(self._value)

    def is_ivalue(self) -> bool:
        """Returns whether it is a value that is known when the engine is built."""
        return not self.is_itensor()

    def is_none(self) -> bool:
        """Returns whether it is ``None``."""
        return self._value is None

    def is_itensor_list(self) -> bool:
        """Returns whether it is a list of network tensors alone; an empty one is."""
        return _list_of(lambda it: isinstance(it, TensorContainer))(self._value)

    def is_tensor(self) -> bool:
        """Returns whether it is a weight: a ``torch.Tensor``."""
        return _is_tensor(self._value)

    def is_int(self) -> bool:
        """Returns whether it is an ``int``; a ``bool`` is not."""
        return _is_int(self._value)

    def is_double(self) -> bool:
        """Returns whether it is a ``float``."""
        return _is_float(self._value)

    def is_bool(self) -> bool:
        """Returns whether it is a ``bool``."""
        return _is_bool(self._value)

    def is_scalar(self) -> bool:
        """Returns whether it is a number of any kind: an ``int``, a ``float`` or a ``bool``."""
        return isinstance(self._value, (bool, int, float))

    def is_string(self) -> bool:
        """Returns whether it is a ``str``."""
        return isinstance(self._value, str)

    def is_dtype(self) -> bool:
        """Returns whether it is a ``torch.dtype``."""
        return isinstance(self._value, torch.dtype)

    def is_int_list(self) -> bool:
        """Returns whether it is a list of ``int``."""
        return _list_of(_is_int)(self._value)

    def is_double_list(self) -> bool:
        """Returns whether it is a list of ``float``."""
        return _list_of(_is_float)(self._value)

    def is_bool_list(self) -> bool:
        """Returns whether it is a list of ``bool``."""
        return _list_of(_is_bool)(self._value)

    def is_tensor_list(self) -> bool:
        """Returns whether it is a list of weights."""
        return _list_of(_is_tensor)(self._value)

    def ITensor(self) -> Any:  # TensorRT's name
        """Returns the network tensor.

        Raises:
            ConversionError: It is a value.
        """
        if not self.is_itensor():
            raise self._mistaken("a network tensor")
        return self._value

    def IValue(self) -> Any:  # PyTorch's name
        """Returns the value.

        Raises:
            ConversionError: It is a network tensor.
        """
        if self.is_itensor():
            raise self._mistaken("a value that is known when the engine is built")
        return self._value

    def ITensorOrFreeze(self, ctx: Any) -> Any:
        """Returns the network tensor, or a constant layer's that holds the value: a number or a ``torch.Tensor``."""
        if self.is_itensor():
            return self._value
        return get_trt_tensor(ctx.conversion, self._value, f"{ctx.label}/{self.name}")

    def unwrap_to_itensor_list(self) -> list[Any]:
        """Returns the network tensors of a list.

        Raises:
            ConversionError: It is no list, or something in it is no network tensor.
        """
        if not self.is_itensor_list():
            raise self._mistaken("a list of network tensors alone")
        return [item.tensor for item in self._value]

    def unwrap_to_tensor(self, fallback: torch.Tensor | None = _NO_FALLBACK) -> Any:
        """Returns a weight: a ``torch.Tensor``."""
        return self._unwrap("a torch.Tensor", self.is_tensor, fallback)

    def unwrap_to_int(self, fallback: int | None = _NO_FALLBACK) -> Any:
        """Returns an ``int``."""
        return self._unwrap("an int", self.is_int, fallback)

    def unwrap_to_double(self, fallback: float | None = _NO_FALLBACK) -> Any:
        """Returns a ``float``; an ``int`` will not do."""
        return self._unwrap("a float", self.is_double, fallback)

    def unwrap_to_bool(self, fallback: bool | None = _NO_FALLBACK) -> Any:
        """Returns a ``bool``."""
        return self._unwrap("a bool", self.is_bool, fallback)

    def unwrap_to_scalar(self, fallback: float | None = _NO_FALLBACK) -> Any:
        """Returns a number of any kind: an ``int``, a ``float`` or a ``bool``."""
        return self._unwrap("a number", self.is_scalar, fallback)

    def unwrap_to_string(self, fallback: str | None = _NO_FALLBACK) -> Any:
        """Returns a ``str``."""
        return self._unwrap("a str", self.is_string, fallback)

    def unwrap_to_dtype(self, fallback: torch.dtype | None = _NO_FALLBACK) -> Any:
        """Returns a ``torch.dtype``."""
        return self._unwrap("a dtype", self.is_dtype, fallback)

    def unwrap_to_int_list(self, fallback: list[int] | None = _NO_FALLBACK) -> Any:
        """Returns a list of ``int``."""
        return self._unwrap("a list of int", self.is_int_list, fallback)

    def unwrap_to_double_list(self, fallback: list[float] | None = _NO_FALLBACK) -> Any:
        """Returns a list of ``float``."""
        return self._unwrap("a list of float", self.is_double_list, fallback)

    def unwrap_to_bool_list(self, fallback: list[bool] | None = _NO_FALLBACK) -> Any:
        """Returns a list of ``bool``."""
        return self._unwrap("a list of bool", self.is_bool_list, fallback)

    def unwrap_to_tensor_list(self, fallback: list[torch.Tensor] | None = _NO_FALLBACK) -> Any:
        """Returns a list of weights."""
        return self._unwrap("a list of torch.Tensor", self.is_tensor_list, fallback)

    def _unwrap(self, wanted: str, fits: Callable[[], bool], fallback: Any) -> Any:
        if self._value is None and fallback is not _NO_FALLBACK:
            return fallback
        if not fits():
            raise self._mistaken(wanted)
        return self._value

    def _mistaken(self, wanted: str) -> ConversionError:
        return ConversionError(f"The argument {self.name!r} is {self.kind}, not {wanted}.")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_float(value: Any) -> bool:
    return isinstance(value, float)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, (list, tuple)) and all(map(fits, value))


def contained(value: Any) -> Any:
    """Returns a value with every network tensor inside its lists, tuples and dictionaries in a container."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_contained_item, value))
    if isinstance(value, dict):
        return {key: _contained_item(item) for key, item in value.items()}
    return value


def _contained_item(item: Any) -> Any:
    return TensorContainer(item) if is_network_tensor(item) else contained(item)


def uncontained(value: Any) -> Any:
    """Returns a value with every container replaced by its network tensor."""
    if isinstance(value, TensorContainer):
        return value.tensor
    if isinstance(value, (list, tuple)):
        return type(value)(map(uncontained, value))
    if isinstance(value, dict):
        return {key: uncontained(item) for key, item in value.items()}
    return value
