"""TensorRT's data types by name, and what PyTorch and NumPy call them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

TORCH = {
    "FLOAT": torch.float32,
    "HALF": torch.float16,
    "BF16": torch.bfloat16,
    "INT8": torch.int8,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "UINT8": torch.uint8,
    "BOOL": torch.bool,
    "FP8": torch.float8_e4m3fn,
    "E8M0": torch.float8_e8m0fnu,
    # Two values share a byte in memory; in the reference each has its own, so that every operation applies.
    "INT4": torch.int8,
    "FP4": torch.float8_e4m3fn,  # which holds the values of E2M1 exactly
}
NAMES = {TORCH[name]: name for name in TORCH if name not in ("INT4", "FP4")}
BITS = {
    "FLOAT": 32,
    "HALF": 16,
    "BF16": 16,
    "INT8": 8,
    "INT32": 32,
    "INT64": 64,
    "UINT8": 8,
    "BOOL": 8,
    "FP8": 8,
    "E8M0": 8,
    "INT4": 4,
    "FP4": 4,
}
NUMPY: dict[str, Any] = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "INT8": np.int8,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "BOOL": np.bool_,
}
FROM_NUMPY = {np.dtype(dtype): name for name, dtype in NUMPY.items()}
SPELLING = {
    "FLOAT": "Float",
    "HALF": "Half",
    "BF16": "BFloat16",
    "INT8": "Int8",
    "INT32": "Int32",
    "INT64": "Int64",
    "UINT8": "UInt8",
    "BOOL": "Bool",
    "FP8": "FP8",
    "INT4": "Int4",
    "FP4": "FP4",
    "E8M0": "E8M0",
}


FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The magnitudes of E2M1, by the three bits after the sign."""


def pack(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """Returns 4-bit values, one a byte, as bytes with two values each, the first in the low four bits."""
    flat = tensor.reshape(-1)
    if dtype == "INT4":
        bits = flat.view(torch.uint8) & 15
    else:
        magnitudes = torch.tensor(FP4_VALUES, device=flat.device)
        value = flat.float()
        bits = torch.bucketize(value.abs(), magnitudes).to(torch.uint8)
        bits |= torch.signbit(value).to(torch.uint8) << 3
    if bits.numel() % 2:
        bits = torch.cat([bits, bits.new_zeros(1)])
    pairs = bits.view(-1, 2)
    return pairs[:, 0] | pairs[:, 1] << 4


def unpack(packed: torch.Tensor, dtype: str, count: int) -> torch.Tensor:
    """Returns the values of bytes that ``pack`` makes, one a byte."""
    bits = torch.stack([packed & 15, packed >> 4], dim=1).reshape(-1)[:count]
    if dtype == "INT4":
        return (bits << 4).view(torch.int8) >> 4
    table = torch.tensor((*FP4_VALUES, *(-value for value in FP4_VALUES)))
    return table.to(TORCH["FP4"]).view(torch.uint8)[bits.int()].view(TORCH["FP4"])


def byte_count(dtype: str, count: int) -> int:
    """Returns how many bytes ``count`` elements take; two 4-bit elements share one."""
    return (count * BITS[dtype] + 7) // 8


def tensor_at(
    address: int, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    """Returns a tensor over memory that someone else owns, without a copy.

    Args:
        address: Where the memory starts, on ``device``.
        dtype: What it holds.
        shape: Its shape; C order, no gaps.
        device: Where the address is valid: the CPU or a CUDA device.
    """
    count = 1
    for dimension in shape:
        count *= dimension
    if count == 0:
        return torch.empty(shape, dtype=dtype, device=device)
    size = count * dtype.itemsize
    if device.type == "cpu":
        flat = torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype)
    else:
        flat = torch.as_tensor(_DeviceBytes(address, size), device=device).view(dtype)
    return flat.view(shape)


class _DeviceBytes:
    """Device memory as PyTorch wraps it: an object with the CUDA array interface."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
