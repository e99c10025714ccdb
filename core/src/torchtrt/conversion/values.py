"""Values of converters: tensors of the network, and numbers, arrays and PyTorch tensors known when it is built."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import torch

from torchtrt.tensorrt import trt
from torchtrt.tensorrt.interfaces import NetworkTensor

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import TypeIs

    Constant: TypeAlias = (
        bool | int | float | np.ndarray[Any, Any] | torch.Tensor | list[Any] | tuple[Any, ...]
    )


Operand: TypeAlias = NetworkTensor | torch.Tensor | int | float | bool
"""A value to compute with: a network tensor, a constant as a PyTorch tensor, or a number."""

Size: TypeAlias = int | NetworkTensor
"""A size: an ``int`` if it is fixed, or a 0-d int32 network tensor if it is known at run time only."""


def is_array(value: Any) -> TypeGuard[np.ndarray[Any, Any]]:
    """Returns whether ``value`` is a NumPy array. NumPy is not imported for the question: it takes 30 ms."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_constant_value(value: Any) -> bool:
    """Returns whether a constant can be made of ``value``: a number, a (nested) list of them, an array, a tensor."""
    return isinstance(value, (bool, int, float, torch.Tensor, list, tuple)) or is_array(value)


def is_network_tensor(value: object) -> TypeIs[NetworkTensor]:
    """Returns whether ``value`` is a tensor of the network under construction."""
    return isinstance(value, trt.ITensor)


def as_torch_tensor(value: Constant, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Returns a constant as a PyTorch tensor; a Python ``float`` becomes float32 and an ``int`` becomes int32."""
    if isinstance(value, torch.Tensor):
        tensor = value
    elif is_array(value):
        tensor = torch.from_numpy(value.copy(order="C"))
    else:
        tensor = torch.tensor(value)
        if dtype is None:
            narrow = {torch.float64: torch.float32, torch.int64: torch.int32}
            tensor = tensor.to(narrow.get(tensor.dtype, tensor.dtype))
    return tensor if dtype is None else tensor.to(dtype)
