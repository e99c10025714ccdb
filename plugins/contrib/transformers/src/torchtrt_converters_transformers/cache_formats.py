"""The formats in which a cache holds keys and values: the model's dtype, or fewer bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchtrt.errors import InputError, UnsupportedProgramError
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


def check_model_cache(model: torch.nn.Module, dtype: torch.dtype | None) -> None:
    """Checks that a cache of the dtype that a model's quantizers ask for is possible on the TensorRT in use.

    Raises:
        InputError: It is not.
    """
    try:
        check_cache_dtype(dtype, has_encoder=False)
    except InputError as error:
        raise InputError(
            f"{type(model).__name__} quantizes its keys and values to FP8, so that its cache has that dtype. {error}"
        ) from error


class Scales(NamedTuple):
    """The factors of a layer's cache in E4M3: keys and values are the stored numbers times these."""

    key: float = 1.0
    value: float = 1.0


UNSCALED = Scales()
"""Of models that do not say: their keys and values are within the range of E4M3, 448, as far as we know."""


def take_scales(model: torch.nn.Module) -> tuple[Scales, ...]:
    """Returns the scales of each layer that ModelOpt calibrated for a cache in E4M3, and disables its quantizers.

    The cache then rounds in their place. Quantizers of another kind, and those of queries, stay as they are.

    Raises:
        UnsupportedProgramError: Some layers have such quantizers, and others have none.
    """
    modules: list[Any] = [  # those of an image's tower have no place in a cache
        each
        for each in model.modules()
        if hasattr(each, "k_bmm_quantizer") and hasattr(each, "layer_idx")
    ]
    layers = {module.layer_idx: module for module in modules}
    found = {}
    for layer, module in sorted(layers.items()):
        quantizers = module.k_bmm_quantizer, module.v_bmm_quantizer
        scales = [scale for each in quantizers if (scale := _scale(each)) is not None]
        if len(scales) == len(quantizers):
            found[layer] = Scales(*scales)
            for each in quantizers:
                each.disable()
    if found and len(found) != len(layers):
        missing = ", ".join(str(layer) for layer in layers if layer not in found)
        raise UnsupportedProgramError(
            f"its layers {missing} have no quantizers of keys and values to FP8, and others do"
        )
    return tuple(found.values())


def _scale(quantizer: Any) -> float | None:
    """Returns the scale of a quantizer to E4M3 with one number, or None for another quantizer."""
    is_fp8 = quantizer.is_enabled and quantizer.num_bits == (4, 3)
    if not is_fp8 or quantizer.block_sizes or quantizer.bias or quantizer.amax is None:
        return None
    if quantizer.amax.numel() != 1:
        return None
    largest = float(quantizer.amax)
    return (largest if largest > 2.0**-24 else 1.0) / 448.0


def rounded(states: Tensor, dtype: torch.dtype | None, scale: float = 1.0) -> Tensor:
    """Returns keys or values as a cache of a dtype holds them, in their own dtype."""
    if dtype is None:
        return states
    round_: Any = torch.ops.torchtrt_quantization.fake_quantize_fp8.default
    held: Tensor = round_(states, _number(scale, states), -128)
    return held


def read(held: Tensor, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """Returns cached keys or values in a model's dtype."""
    if held.dtype is not FP8:
        return held
    dequantize: Any = torch.ops.torchtrt_quantization.dequantize_fp8.default
    states: Tensor = dequantize(held, _number(scale, held), dtype)
    return states


def unscaled(states: Tensor, scale: float) -> Tensor:
    """Returns rounded keys or values as the cache stores them: numbers of E4M3, in the dtype of the states."""
    return states if scale == 1.0 else (states.float() / scale).to(states.dtype)


def _number(number: float, like: Tensor) -> Tensor:
    return torch.full((), number, dtype=torch.float32, device=like.device)
