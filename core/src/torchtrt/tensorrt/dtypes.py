"""PyTorch dtypes and TensorRT dtypes.

TensorRT 8.6 has no 64-bit integers. There a 64-bit integer is 32-bit inside the engine: constants
are checked to fit, inputs are narrowed as they enter and outputs are widened as they leave.
"""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.capability import Capability
from torchtrt.errors import UnsupportedDtypeError
from torchtrt.tensorrt.probes import lacking, supports
from torchtrt.tensorrt.selection import describe, trt

_TRT_NAMES = {
    torch.float32: "FLOAT",
    torch.float16: "HALF",
    torch.bfloat16: "BF16",
    torch.int64: "INT64",
    torch.int32: "INT32",
    torch.int8: "INT8",
    torch.uint8: "UINT8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "FP8",
}
_REQUIRED = {
    torch.bfloat16: Capability.BFLOAT16,
    torch.int64: Capability.INT64,
    torch.float8_e4m3fn: Capability.FP8,
}
"""The dtypes that not every TensorRT has."""
INT4: torch.dtype = torch.int4  # type: ignore[attr-defined]  # PyTorch's stubs lack it
_WEIGHTS = {
    torch.float8_e8m0fnu: ("E8M0", Capability.E8M0),
    INT4: ("INT4", Capability.INT4),
    torch.float4_e2m1fn_x2: ("FP4", Capability.FP4),
}
"""The dtypes of weights and of what quantizing layers make, which no other layer computes with."""
_TORCH_DTYPES = {name: dtype for dtype, name in _TRT_NAMES.items()}
_TORCH_DTYPES |= {name: dtype for dtype, (name, _) in _WEIGHTS.items()}


def engine_dtype(dtype: torch.dtype, truncate_double: bool = True) -> torch.dtype:
    """Returns the dtype that ``dtype`` has inside an engine of the TensorRT in use.

    Args:
        dtype: The dtype in PyTorch.
        truncate_double: Whether float64 becomes float32, as in a network that the settings allow to hold it.

    Raises:
        UnsupportedDtypeError: TensorRT has no dtype for it.
    """
    if dtype is torch.int64 and not supports(Capability.INT64):
        return torch.int32
    if dtype is torch.float64 and truncate_double:
        return torch.float32
    if dtype not in _TRT_NAMES:
        hint = " Compile with truncate_double=True." if dtype is torch.float64 else ""
        raise UnsupportedDtypeError(f"{describe()} has no {dtype_name(dtype)}.{hint}")
    required = _REQUIRED.get(dtype)
    if required is not None and not supports(required):
        raise UnsupportedDtypeError(f"{lacking(str(dtype), required)}.")
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """Returns ``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def trt_name(dtype: torch.dtype) -> str:
    """Returns ``"FLOAT"`` for ``torch.float32``: the member of ``trt.DataType``, whichever TensorRT is in use."""
    return _TRT_NAMES[dtype]


def has_dtype(dtype: torch.dtype, truncate_double: bool = False) -> bool:
    """Returns whether ``dtype`` can be used inside a network of the TensorRT in use."""
    try:
        engine_dtype(dtype, truncate_double)
    except UnsupportedDtypeError:
        return False
    return True


def to_trt_dtype(dtype: torch.dtype, truncate_double: bool = False) -> Any:
    """Returns the ``trt.DataType`` for a PyTorch dtype; 4-bit dtypes and the scale dtype E8M0 included.

    Raises:
        UnsupportedDtypeError: The TensorRT in use has none.
    """
    if dtype in _WEIGHTS:
        name, required = _WEIGHTS[dtype]
        if not supports(required):
            raise UnsupportedDtypeError(f"{lacking(str(dtype), required)}.")
        return getattr(trt.DataType, name)
    return getattr(trt.DataType, _TRT_NAMES[engine_dtype(dtype, truncate_double)])


def to_torch_dtype(dtype: Any) -> torch.dtype:
    """Returns the PyTorch dtype for a ``trt.DataType``."""
    return _TORCH_DTYPES[dtype.name]
