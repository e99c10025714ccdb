"""The dtypes of three libraries, as one: what Torch-TensorRT's helpers take wherever a dtype is meant."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import torch

from torchtrt.tensorrt import to_trt_dtype, trt
from torchtrt.tensorrt.dtypes import to_torch_dtype

_NUMPY = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.int64: np.int64,
    torch.int32: np.int32,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
    torch.bool: np.bool_,
}
_FROM_NUMPY = {np.dtype(theirs): ours for ours, theirs in _NUMPY.items()}


def torch_dtype(value: Any) -> torch.dtype | None:
    """Returns PyTorch's dtype for one of PyTorch's, NumPy's, TensorRT's or ``dtype``; ``None`` for ``None``.

    Raises:
        TypeError: It is no dtype.
    """
    if value is None or isinstance(value, torch.dtype):
        return value
    if isinstance(value, dtype):
        return value.value
    if isinstance(value, trt.DataType):
        return to_torch_dtype(value)
    name = getattr(value, "name", "")
    if type(value).__name__ == "DataType" and name in trt.DataType.__members__:
        return to_torch_dtype(trt.DataType.__members__[name])  # of another TensorRT
    try:
        return _FROM_NUMPY[np.dtype(value)]
    except (TypeError, KeyError) as error:
        raise TypeError(f"{value!r} is no dtype that TensorRT has.") from error


class Frameworks(enum.Enum):
    """The libraries that have dtypes of their own."""

    NUMPY = "numpy"
    TORCH = "torch"
    TRT = "trt"


def unified_dtype_converter(dtype: Any, to: Frameworks) -> Any:
    """Returns the dtype of one library for that of another."""
    pytorch_dtype = torch_dtype(dtype)
    if pytorch_dtype is None or to is Frameworks.TORCH:
        return pytorch_dtype
    return to_trt_dtype(pytorch_dtype) if to is Frameworks.TRT else np.dtype(_NUMPY[pytorch_dtype])


class dtype(enum.Enum):
    """A dtype under Torch-TensorRT's names, with its conversions to those of other libraries."""

    f64 = torch.float64
    f32 = torch.float32
    f16 = torch.float16
    bf16 = torch.bfloat16
    f8 = torch.float8_e4m3fn
    i64 = torch.int64
    i32 = torch.int32
    i8 = torch.int8
    u8 = torch.uint8
    b = torch.bool
    float64 = double = fp64 = f64
    float32 = float = fp32 = f32
    float16 = half = fp16 = f16
    bfloat16 = bf16
    float8 = fp8 = f8
    int64 = long = i64
    int32 = int = i32
    int8 = i8
    uint8 = u8
    bool = b

    @classmethod
    def _from(cls, value: Any, use_default: Any = False) -> dtype:
        """Returns the dtype for one of another library."""
        del use_default
        return cls(torch_dtype(value))

    @classmethod
    def try_from(cls, value: Any, use_default: Any = False) -> dtype | None:
        """Returns the dtype for one of another library, or ``None`` for what is no dtype."""
        try:
            return cls._from(value, use_default)
        except (TypeError, ValueError):
            return None

    def to(self, kind: Any, use_default: Any = False) -> Any:
        """Returns the dtype of a library: ``torch.dtype``, ``np.dtype`` or ``trt.DataType``."""
        del use_default
        if kind is torch.dtype:
            return self.value
        if kind is np.dtype:
            return np.dtype(_NUMPY[self.value])
        return self if kind is dtype else to_trt_dtype(self.value)

    def try_to(self, kind: Any, use_default: Any = False) -> Any:
        """Returns the dtype of a library, or ``None`` where it has no such."""
        try:
            return self.to(kind, use_default)
        except (KeyError, TypeError):
            return None
