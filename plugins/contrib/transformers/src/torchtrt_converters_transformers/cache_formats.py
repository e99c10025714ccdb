"""The formats in which a cache holds keys and values: the model's dtype, or fewer bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchtrt.errors import InputError
from torchtrt.packs import load_packs
from torchtrt.tensorrt import Capability
from torchtrt.tensorrt.probes import lacking

FP8 = torch.float8_e4m3fn


def check_cache_dtype(dtype: torch.dtype | None, *, has_encoder: bool) -> None:
    """Checks that caches can have a dtype on the TensorRT in use.

    Args:
        dtype: The dtype; ``None`` for the model's.
        has_encoder: Whether the model has an encoder, whose keys and values are cached as well.

    Raises:
        InputError: They cannot.
    """
    if dtype is None:
        return
    if has_encoder:
        raise InputError("cache_dtype is for causal language models, and the model has an encoder.")
    if dtype is not FP8:
        raise InputError(
            f"cache_dtype={dtype} is not possible: a cache has the dtype torch.float8_e4m3fn, or with "
            "cache_dtype=None the model's."
        )
    if objection := lacking("The format FP8", Capability.FP8, Capability.TYPED_QUANTIZATION):
        raise InputError(f"cache_dtype={dtype} is not possible: {objection}.")
    load_packs()
    if not hasattr(torch.ops.torchtrt_quantization, "dequantize_fp8"):
        raise InputError(
            f"cache_dtype={dtype} needs the pack `quantization`, which is not loaded. Install it: "
            "pip install torchtrt-converters-quantization."
        )


def rounded(states: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Returns keys or values as a cache of a dtype holds them, in their own dtype."""
    if dtype is None:
        return states
    round_: Any = torch.ops.torchtrt_quantization.fake_quantize_fp8.default
    held: Tensor = round_(states, _one(states), -128)
    return held


def read(held: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns cached keys or values in a model's dtype."""
    if held.dtype is not FP8:
        return held
    dequantize: Any = torch.ops.torchtrt_quantization.dequantize_fp8.default
    states: Tensor = dequantize(held, _one(held), dtype)
    return states


def _one(like: Tensor) -> Tensor:
    """Returns the scale of E4M3: keys and values are within its range, 448, in the models that we know."""
    return torch.ones((), dtype=torch.float32, device=like.device)
