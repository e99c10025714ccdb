"""Layers of compressed-tensors, which transformers loads packed, and unpacks to floating point in the first call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchtrt.errors import UnsupportedProgramError
from torchtrt_converters_quantization.checkpoints.layers import (
    DynamicInput,
    PackedLinear,
    block_scales,
    integer_form,
    refusal,
    unpacked,
)
from torchtrt_converters_quantization.formats import FP8_LIMIT

_LIBRARY = "compressed_tensors"
_INPUTS = {("int", 8): ("INT8", 127.5), ("float", 8): ("FP8", FP8_LIMIT)}
"""For type and bits, the format, and what the library divides the largest magnitude by."""


def replacement(path: str, module: nn.Module) -> PackedLinear | None:
    """Returns the layer that replaces a module, or ``None`` if it is not from compressed-tensors."""
    scheme = getattr(module, "quantization_scheme", None)
    if scheme is None or _is_attention(module):
        return None
    if not isinstance(module, nn.Linear):
        raise refusal(path, f"a quantized {type(module).__name__}")
    if scheme.output_activations is not None:
        raise refusal(path, "a quantized output")
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        if any(_is_of_library(hook) for hook in hooks.values()):
            raise refusal(path, "a transform of its inputs or outputs")
    tensors: dict[str, Any] = {**module._parameters, **module._buffers}
    tensors = {name: value.detach() for name, value in tensors.items() if value is not None}
    layer = _weight(path, tensors, scheme.weights)
    layer.register_buffer("bias", tensors.get("bias"))
    if scheme.input_activations is not None:
        _quantize_input(path, layer, tensors, scheme.input_activations)
    return layer


def _is_attention(module: nn.Module) -> bool:
    """Returns whether a module quantizes its keys and values, in steps that the pack's pass recognizes."""
    return any(hasattr(module, name) for name in ("kv_cache", "impl"))


def forget_decompression(model: nn.Module) -> None:
    """Removes the hooks of a model that would unpack its weights."""
    for hooks in (model._forward_pre_hooks, model._forward_hooks):
        for key, hook in list(hooks.items()):
            if _is_of_library(hook):
                del hooks[key]


def _is_of_library(hook: Any) -> bool:
    return "compressed" in (getattr(hook, "__module__", None) or "")


def _value(option: Any) -> Any:
    return getattr(option, "value", option)


def _weight(path: str, tensors: dict[str, Tensor], spec: Any) -> PackedLinear:
    """Returns a layer with a weight of compressed-tensors."""
    if spec is None:
        raise refusal(path, "a quantized input and no quantized weight")
    kind, bits = _value(spec.type), spec.num_bits
    scale = tensors["weight_scale"]
    if (kind, bits) == ("float", 4):
        return _four_bits(path, tensors, scale)
    zero = tensors.get("weight_zero_point")
    if kind == "int" and "weight_packed" in tensors:
        shape = [int(size) for size in tensors["weight_shape"]]
        values = unpacked(tensors["weight_packed"], bits, shape[1])
        if list(values.shape) != shape:
            message = f"words for {list(values.shape)} weights, and not for {shape}"
            raise ValueError(message)
        data = (values - 2 ** (bits - 1)).to(torch.int8)
        if zero is not None and zero.dtype is torch.int32:
            packed_zero = zero.t().contiguous()
            zero = (unpacked(packed_zero, bits, shape[0]) - 2 ** (bits - 1)).t()
    elif "weight" in tensors and tensors["weight"].dtype in (torch.int8, torch.float8_e4m3fn):
        data = tensors["weight"]
    elif "weight" in tensors:
        raise UnsupportedProgramError(
            f"The weight of the layer {path!r} is not compressed. Compress the model first: "
            "ModelCompressor.from_pretrained_model(model).compress_model(model) of compressed-tensors."
        )
    else:
        raise refusal(path, f"weights of {bits} bits ({kind})")
    form = "FP8" if kind == "float" else integer_form(bits)
    if _value(spec.strategy) == "block":
        scale = block_scales(scale, tuple(spec.block_structure), tuple(data.shape))
    scale = scale.reshape(()) if scale.numel() == 1 else scale
    offset = None
    if zero is not None and bool(zero.any()):
        if kind == "float" or _value(spec.strategy) == "block" or scale.dim() != 2:
            raise refusal(path, "zero points other than 0")
        offset = -zero.to(torch.float32) * scale.to(torch.float32)
    data, order = _ordered(path, data, tensors.get("weight_g_idx"), scale)
    return PackedLinear(form, data.contiguous(), scale, offset=offset, order=order)


def _four_bits(path: str, tensors: dict[str, Tensor], scale: Tensor) -> PackedLinear:
    """Returns a layer with a weight of NVFP4, or of MXFP4 as NVFP4 where that has its scales."""
    data = tensors["weight_packed"]
    if "weight_global_scale" in tensors:
        return PackedLinear("FP4", data, scale, 1 / tensors["weight_global_scale"])
    exponents = scale.to(torch.int32) - 127
    highest = exponents.max()
    if scale.dtype is not torch.uint8 or bool((highest - exponents > 17).any()):
        raise refusal(path, "scales of MXFP4 that E4M3 does not hold")
    scales = torch.exp2((exponents - highest + 8).to(torch.float32)).to(torch.float8_e4m3fn)
    double = torch.exp2((highest - 8).to(torch.float32)).reshape(1)
    return PackedLinear("FP4", data, scales.repeat_interleave(2, 1).contiguous(), double)


def _ordered(
    path: str, data: Tensor, groups: Tensor | None, scale: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Returns a weight with the columns of each group together, and the order of its inputs."""
    if groups is None or scale.dim() != 2:
        return data, None
    order = in_groups(groups, scale.shape[1])
    if order is None:
        raise refusal(path, "groups of different sizes")
    return data[:, order], order


def in_groups(groups: Tensor, count: int) -> Tensor | None:
    """Returns the columns of groups of equal size one after the other, or ``None`` if their sizes differ.

    Args:
        groups: The group of each column.
        count: How many groups there are.
    """
    sizes = torch.bincount(groups.to(torch.int64), minlength=count)
    if len(sizes) != count or bool((sizes != sizes[0]).any()):
        return None
    return torch.argsort(groups, stable=True)


def _quantize_input(path: str, layer: PackedLinear, tensors: dict[str, Tensor], spec: Any) -> None:
    """Makes a layer quantize its input by a scheme.

    Raises:
        UnsupportedProgramError: TensorRT has no layers for it.
    """
    kind = (_value(spec.type), spec.num_bits)
    if not spec.symmetric:
        raise refusal(path, "inputs with zero points")
    if kind == ("float", 4) and "input_global_scale" in tensors:
        layer.quantize_input("NVFP4", 1 / tensors["input_global_scale"].float().reshape(()))
        return
    if kind not in _INPUTS or spec.scale_dtype not in (None, torch.float32):
        raise refusal(path, f"inputs of {kind[1]} bits ({kind[0]}) with scales of other types")
    form, limit = _INPUTS[kind]
    strategy = _value(spec.strategy)
    scale = tensors.get("input_scale")
    if spec.dynamic is True and strategy in ("token", "tensor", "group"):
        block = int(spec.group_size) if strategy == "group" else 0
        layer.dynamic = DynamicInput(
            form, limit, "tensor" if strategy == "tensor" else "token", block
        )
    elif not spec.dynamic and scale is not None and scale.numel() == 1:
        layer.quantize_input(form, scale.float().reshape(()))
    else:
        raise refusal(path, f"inputs with a scale for each {strategy}")
