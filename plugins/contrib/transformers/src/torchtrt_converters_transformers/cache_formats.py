"""The formats in which a cache holds keys and values: the model's dtype, or fewer bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchtrt.errors import InputError
from torchtrt.packs import load_packs
from torchtrt.tensorrt import Capability, lacking

FP8 = torch.float8_e4m3fn
LARGEST = {FP8: 448.0, torch.int8: 127.0}
"""The dtypes that a cache of a quantized model may have, and what its largest number becomes in each."""
_NAMES = {FP8: "FP8", torch.int8: "INT8"}


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
    if objection := _objection(dtype):
        raise InputError(f"cache_dtype={dtype} is not possible: {objection}.")


def _objection(dtype: torch.dtype) -> str:
    """Returns why the TensorRT in use, or the installed packs, have no cache in a dtype, or an empty text."""
    name = _NAMES[dtype]
    needed = [Capability.FP8] if dtype is FP8 else []
    if objection := lacking(f"The format {name}", *needed, Capability.TYPED_QUANTIZATION):
        return objection
    load_packs()
    if hasattr(torch.ops.torchtrt_quantization, f"dequantize_{name.lower()}"):
        return ""
    return (
        "it needs the pack `quantization`, which is not loaded. Install it: "
        "pip install torchtrt-converters-quantization"
    )


def check_model_cache(
    model: torch.nn.Module, dtype: torch.dtype | None, wanted: torch.dtype | None
) -> None:
    """Checks that the cache which a model's quantization asks for is possible on the TensorRT in use.

    Args:
        model: The model, for the error's message.
        dtype: The dtype of its cache; ``None`` for the model's.
        wanted: The dtype that the user asks for, or ``None``.

    Raises:
        InputError: It is not possible, or the user asks for another one.
    """
    if dtype is None:
        return
    is_so = f"{type(model).__name__} quantizes its keys and values to {_NAMES[dtype]}"
    if objection := _objection(dtype):
        raise InputError(f"{is_so}, so that its cache has that dtype. {objection}.")
    if wanted not in (None, dtype):
        raise InputError(f"{is_so}, and cache_dtype={wanted} is another dtype. Leave it out.")


class Scale(NamedTuple):
    """The factor of keys, or of values, in FP8 or INT8: they are the stored numbers times it.

    Attributes:
        number: The factor.
        in_float32: Whether keys or values are divided by it in float32, and not in their own dtype.
    """

    number: float = 1.0
    in_float32: bool = True


class Scales(NamedTuple):
    """The scales of a layer's cache."""

    key: Scale = Scale()
    value: Scale = Scale()


UNSCALED = Scales()
"""For models without scales: their keys and values are within the range of E4M3, 448, as far as we have seen."""


def rounded(states: Tensor, dtype: torch.dtype | None, scale: Scale) -> Tensor:
    """Returns keys or values as a cache of a dtype holds them, in their own dtype."""
    if dtype is None:
        return states
    round_ = _op("fake_quantize", dtype)
    if scale.in_float32:
        held: Tensor = round_(states, _number(scale.number, states), -128)
        return held
    factor = _number(scale.number, states).to(states.dtype)
    steps: Tensor = round_(states / factor, _number(1.0, states), -128)
    return steps * factor


def read(held: Tensor, dtype: torch.dtype, scale: Scale) -> Tensor:
    """Returns cached keys or values in a model's dtype."""
    if held.dtype not in _NAMES:
        return held
    dequantize = _op("dequantize", held.dtype)
    states: Tensor = dequantize(held, _number(scale.number, held), dtype)
    return states


def unscaled(states: Tensor, dtype: torch.dtype | None, scale: Scale) -> Tensor:
    """Returns rounded keys or values as a cache of a dtype stores them: its numbers, in the dtype of the states."""
    if scale.number == 1.0:
        return states
    steps = states.float() / scale.number
    if dtype is torch.int8:  # whose conversion cuts off what a division has lost
        steps = steps.round()
    return steps.to(states.dtype)


def _op(name: str, dtype: torch.dtype) -> Any:
    return getattr(torch.ops.torchtrt_quantization, f"{name}_{_NAMES[dtype].lower()}").default


def _number(number: float, like: Tensor) -> Tensor:
    return torch.full((), number, dtype=torch.float32, device=like.device)
