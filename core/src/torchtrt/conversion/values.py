"""Values that are known when the network is built: Python numbers, NumPy arrays and PyTorch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torchtrt.tensorrt import trt

Constant = bool | int | float | np.ndarray | torch.Tensor | list | tuple  # type: ignore[type-arg]
CONSTANT_TYPES = (bool, int, float, np.ndarray, torch.Tensor, list, tuple)


def is_network_tensor(value: Any) -> bool:
    """Returns whether ``value`` is a tensor of the network under construction."""
    return isinstance(value, trt.ITensor)


def as_torch_tensor(value: Constant, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Returns a constant as a PyTorch tensor; a Python ``float`` becomes float32 and an ``int`` becomes int32."""
    if isinstance(value, torch.Tensor):
        tensor = value
    elif isinstance(value, np.ndarray):
        tensor = torch.from_numpy(np.ascontiguousarray(value))
    else:
        tensor = torch.tensor(value)
        if dtype is None:
            narrow = {torch.float64: torch.float32, torch.int64: torch.int32}
            tensor = tensor.to(narrow.get(tensor.dtype, tensor.dtype))
    return tensor if dtype is None else tensor.to(dtype)
