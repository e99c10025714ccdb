"""The ops that the pack's passes make of every library's quantization.

Their names end in the format, so that reports show it: ``torchtrt_quantization.dequantize_int4``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_quantization import pack
from torchtrt_converters_quantization.formats import (
    BLOCK_FORMATS,
    FORMATS,
    mxfp8_scales,
    nvfp4_scales,
    pack_fp4,
    spread,
    to_fp8,
    unpack_fp4,
)

NAMESPACE = "torchtrt_quantization"
_library = torch.library.Library(NAMESPACE, "DEF")


def dequantize(data: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns ``data * scale``, computed in float32.

    Args:
        data: Values of the op's format: int8 for INT8 and INT4, float8_e4m3fn for FP8, uint8 for FP4. A byte holds two
            values of FP4, the first in the low four bits.
        scale: A number, or a scale for each block, of the rank of ``data``. Floating point, or uint8 for the biased
            exponents of E8M0.
        dtype: The dtype of the result.
    """
    values = unpack_fp4(data) if data.dtype is torch.uint8 else data.to(torch.float32)
    if scale.dtype is torch.uint8:
        scale = scale.view(torch.float8_e8m0fnu)
    return (values * spread(scale.to(torch.float32), values.shape)).to(dtype)


def fake_quantize_int8(
    x: Tensor, scale: Tensor, least: int, dtype: torch.dtype | None = None
) -> Tensor:
    """Returns ``clamp(round(x / scale), least, 127) * scale``, halves to even.

    Args:
        x: Floating point.
        scale: A float32 number.
        least: -128 or -127.
        dtype: The dtype of the result; by default that of ``x``.
    """
    steps = torch.round(x.to(torch.float32) / scale).clamp(least, 127)
    return (steps * scale).to(dtype or x.dtype)


def fake_quantize_fp8(
    x: Tensor, scale: Tensor, least: int, dtype: torch.dtype | None = None
) -> Tensor:
    """Returns ``x`` as E4M3 holds ``x / scale``. ``least`` means nothing here."""
    steps = to_fp8(x.to(torch.float32) / scale).to(torch.float32)
    return (steps * scale).to(dtype or x.dtype)


def fake_quantize_nvfp4(x: Tensor, scale: Tensor) -> Tensor:
    """Returns ``x`` as E2M1 holds it with scales of E4M3 for blocks of 16 of the last dimension.

    Args:
        x: Floating point.
        scale: A number that the scales of blocks are multiplied by.
    """
    scales = nvfp4_scales(x, scale).to(torch.float32) * scale
    element_scales = spread(scales, x.shape)
    return (unpack_fp4(pack_fp4(x.to(torch.float32) / element_scales)) * element_scales).to(x.dtype)


def fake_quantize_mxfp8(x: Tensor, scale: Tensor) -> Tensor:
    """Returns ``x`` as E4M3 holds it with powers of two as scales for blocks of 32 of the last dimension."""
    scales = mxfp8_scales(x).view(torch.float8_e8m0fnu).to(torch.float32)
    element_scales = spread(scales, x.shape)
    return (to_fp8(x.to(torch.float32) / element_scales).to(torch.float32) * element_scales).to(
        x.dtype
    )


def _define(name: str, schema: str, function: Any, fake: Any) -> Any:
    _library.define(f"{name}{schema}")
    _library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    op = getattr(getattr(torch.ops, NAMESPACE), name).default
    pack.decomposition(op)(function)
    return op


def _fake_dequantize(data: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    shape = data.shape
    if data.dtype is torch.uint8:
        shape = torch.Size((*shape[:-1], shape[-1] * 2))
    return data.new_empty(shape, dtype=dtype)


def _like(x: Tensor, scale: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _typed(x: Tensor, scale: Tensor, least: int, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


DEQUANTIZE = {
    name: _define(
        f"dequantize_{name.lower()}",
        "(Tensor data, Tensor scale, ScalarType dtype) -> Tensor",
        dequantize,
        _fake_dequantize,
    )
    for name in FORMATS
}
"""For the name of a format, the op that dequantizes weights."""
FAKE_QUANTIZE = {
    name: _define(
        f"fake_quantize_{name.lower()}",
        "(Tensor x, Tensor scale, int least, ScalarType? dtype=None) -> Tensor",
        function,
        _typed,
    )
    for name, function in (("INT8", fake_quantize_int8), ("FP8", fake_quantize_fp8))
}
"""For the name of a format, the op that quantizes and dequantizes with a known scale."""
FAKE_QUANTIZE_BLOCKS = {
    name: _define(
        f"fake_quantize_{name.lower()}", "(Tensor x, Tensor scale) -> Tensor", function, _like
    )
    for name, function in (("NVFP4", fake_quantize_nvfp4), ("MXFP8", fake_quantize_mxfp8))
}
"""For the name of a format, the op that quantizes and dequantizes with scales that it computes."""
FORMAT_OF = {
    op: FORMATS.get(name) or BLOCK_FORMATS[name]
    for table in (DEQUANTIZE, FAKE_QUANTIZE, FAKE_QUANTIZE_BLOCKS)
    for name, op in table.items()
}
"""The format of each op."""

__all__ = [
    "DEQUANTIZE", "FAKE_QUANTIZE", "FAKE_QUANTIZE_BLOCKS", "FORMAT_OF", "dequantize",
]  # fmt: skip

# A weight must come to TensorRT quantized, with its layer.
pack.disable_constant_folding(*FORMAT_OF)
