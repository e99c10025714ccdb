"""The caches that quantized models bring: of ModelOpt's quantizers, or a ``kv_cache_scheme`` of compressed-tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from torchtrt_converters_transformers.cache_formats import FP8, LARGEST, Scale, Scales
from torchtrt_converters_transformers.refusals import Refusal


class ModelCache(NamedTuple):
    """The dtype of a model's cache, and the scales of each layer."""

    dtype: torch.dtype
    scales: tuple[Scales, ...]


def take_cache(model: torch.nn.Module) -> ModelCache | None:
    """Returns the cache that a quantized model has, or None, and lets its layers give exact keys and values.

    The cache then rounds in their place. Quantizers that no cache replaces stay as they are.

    Raises:
        Refusal: Only some layers quantize keys and values, or they have different formats. Or a scheme
            of compressed-tensors has other scales than one for the keys and one for the values of a layer.
    """
    modules: list[Any] = [  # those of an image's tower have no place in a cache
        module for module in model.modules() if hasattr(module, "layer_idx")
    ]
    calibrated = {
        module.layer_idx: module for module in modules if hasattr(module, "k_bmm_quantizer")
    }
    schemes = {module.layer_idx: module for module in modules if hasattr(module, "kv_cache")}
    _check_loaded(model, schemes.values())
    for layers, read, release, name in (
        (calibrated, _of_modelopt, _disable, "quantizers of keys and values to FP8 or INT8"),
        (schemes, _of_compressed_tensors, _unhook, "`kv_cache_scheme`"),
    ):
        if cache := _cache(layers, read, name):
            for module in layers.values():
                release(module)
            return cache
    return None


def _cache(
    layers: dict[int, Any], read: Callable[[Any], tuple[torch.dtype, Scales] | None], name: str
) -> ModelCache | None:
    """Returns the cache of the layers of a model, if they have one.

    Raises:
        Refusal: They differ.
    """
    readings = {layer: read(module) for layer, module in sorted(layers.items())}
    quantized = {layer: reading for layer, reading in readings.items() if reading is not None}
    if not quantized:
        return None
    if len(quantized) != len(readings):
        missing = ", ".join(str(layer) for layer in readings if layer not in quantized)
        raise Refusal(f"its layers {missing} have no {name}, and others do")
    dtypes = {dtype for dtype, _ in quantized.values()}
    if len(dtypes) != 1:
        raise Refusal("its layers quantize keys and values to different dtypes")
    return ModelCache(dtypes.pop(), tuple(scales for _, scales in quantized.values()))


def _of_modelopt(module: Any) -> tuple[torch.dtype, Scales] | None:
    """Returns the dtype and scales of ModelOpt's quantizers, or None for quantizers that no cache replaces."""
    scales = [_scale(quantizer) for quantizer in (module.k_bmm_quantizer, module.v_bmm_quantizer)]
    key, value = scales
    if key is None or value is None or key[0] is not value[0]:
        return None
    return key[0], Scales(key[1], value[1])


def _scale(quantizer: Any) -> tuple[torch.dtype, Scale] | None:
    """Returns the dtype and scale of a quantizer with one number, or None for another quantizer."""
    dtype = {(4, 3): FP8, 8: torch.int8}.get(quantizer.num_bits)
    if not quantizer.is_enabled or dtype is None or quantizer.block_sizes or quantizer.bias:
        return None
    if quantizer.amax is None or quantizer.amax.numel() != 1:
        return None
    if dtype is torch.int8 and (quantizer.unsigned or quantizer.narrow_range):
        return None
    largest = float(quantizer.amax)
    return dtype, Scale((largest if largest > 2.0**-24 else 1.0) / LARGEST[dtype])


def _disable(module: Any) -> None:
    module.k_bmm_quantizer.disable()
    module.v_bmm_quantizer.disable()


_DTYPES = {("float", 8): FP8, ("int", 8): torch.int8}
"""The dtype of a cache by the type and the bits of a scheme."""


def _of_compressed_tensors(module: Any) -> tuple[torch.dtype, Scales] | None:
    """Returns the dtype and scales of a ``kv_cache_scheme``, or None where nothing is quantized.

    Raises:
        Refusal: The scheme is not one of FP8 or INT8 with one known scale for the keys and one for the
            values.
    """
    scheme = getattr(module, "quantization_scheme", None)
    if scheme is None or not getattr(module, "quantization_enabled", True):
        return None
    spec = scheme.input_activations
    kind, bits, strategy = (
        getattr(setting, "value", setting) for setting in (spec.type, spec.num_bits, spec.strategy)
    )
    dtype = _DTYPES.get((kind, bits))
    objections = {
        "its queries are quantized as well": hasattr(module, "impl"),
        f"its keys and values have {bits} bits ({kind}), and not 8": dtype is None,
        "its scales are computed while it runs": spec.dynamic is not False,
        f"it has a scale for each {strategy}": strategy != "tensor",
        "its keys and values have zero points": not spec.symmetric,
        "its keys or values are transformed": _has_hooks(module.kv_cache),
    }
    if reasons := [reason for reason, holds in objections.items() if holds]:
        raise _refusal(module.layer_idx, " and ".join(reasons))
    assert dtype is not None
    return dtype, Scales(*(_number(module, name) for name in ("k_scale", "v_scale")))


def _has_hooks(cache: Any) -> bool:
    return bool(cache._forward_pre_hooks or cache._forward_hooks)


def _number(module: Any, name: str) -> Scale:
    """Returns a scale of an attention of compressed-tensors.

    Raises:
        Refusal: There is none, or it is not a scale.
    """
    scale = getattr(module, name, None)
    if scale is None:
        raise _refusal(module.layer_idx, f"it has no {name}")
    if scale.numel() != 1:
        raise _refusal(module.layer_idx, f"its {name} has {scale.numel()} numbers")
    number = float(scale)
    if not (math.isfinite(number) and number > 0):
        raise _refusal(module.layer_idx, f"its {name} is {number:g}")
    return Scale(number, in_float32=scale.dtype is torch.float32)


def _check_loaded(model: Any, modules: Iterable[Any]) -> None:
    """Checks that the scales of a checkpoint come from it: transformers leaves memory as it was where they are missing.

    Raises:
        Refusal: A scale does not.
    """
    loaded = getattr(model, "hf_quantizer", None) is not None and any(
        getattr(parameter, "_is_hf_initialized", False) for parameter in model.parameters()
    )
    for module in modules:
        for name in ("k_scale", "v_scale"):
            scale = getattr(module, name, None)
            if loaded and scale is not None and not getattr(scale, "_is_hf_initialized", False):
                raise _refusal(module.layer_idx, f"its checkpoint has no {name}")


def _refusal(layer: int, reason: str) -> Refusal:
    return Refusal(
        f"the `kv_cache_scheme` of its layer {layer} has no cache in an engine: {reason}. A cache has one known scale "
        "for the keys and one for the values of each layer, in FP8 or INT8"
    )


def _unhook(module: Any) -> None:
    """Lets an attention of compressed-tensors use the cache that it is given."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if "compressed" in (getattr(hook, "__module__", None) or ""):
            del module._forward_pre_hooks[key]
            module._forward_pre_hooks_with_kwargs.pop(key, None)
    del module.kv_cache
    module.quantization_scheme = None
