"""The layers of every library in a model, replaced."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torchtrt.errors import InputError, TorchTRTError, kind_of
from torchtrt_converters_quantization.checkpoints import compressed, fine_grained, words
from torchtrt_converters_quantization.checkpoints.layers import PackedLinear, refusal

_STORED = {
    "INT8": torch.int8,
    "INT4": torch.int8,
    "FP8": torch.float8_e4m3fn,
    "FP4": torch.uint8,
}
"""The dtype of a weight by its format."""


def packed(model: nn.Module) -> nn.Module:
    """Replaces the quantized linear layers of a model by ``PackedLinear``, in place.

    It recognizes the layers of compressed-tensors, of ``FineGrainedFP8Config`` of transformers, and layers with
    the int32 words of GPTQ and AWQ, of any library.

    Args:
        model: What ``from_pretrained`` of transformers returned, before its first call.

    Returns:
        The model; the new layer if ``model`` is a quantized layer itself.

    Raises:
        InputError: ``model`` is no model.
        UnsupportedProgramError: A layer has a scheme that TensorRT has no format for, or tensors that do not belong to
            its scheme. The message names both. The model is as it was.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"packed() takes a model, and not {kind_of(model)}.")
    replacements = {module: _replacement(path, module) for path, module in model.named_modules()}
    for path, module in list(model.named_modules(remove_duplicate=False)):
        layer = replacements[module]
        if layer is not None:
            if not path:
                return layer.eval()
            owner, _, name = path.rpartition(".")
            setattr(model.get_submodule(owner), name, layer.eval())
    compressed.forget_decompression(model)
    return model


def _replacement(path: str, module: nn.Module) -> PackedLinear | None:
    """Returns the layer that replaces a module, or ``None`` if it is of no library.

    Raises:
        UnsupportedProgramError: No layer computes what the module computes from its tensors.
    """
    for library in (compressed, fine_grained, words):
        try:
            layer: PackedLinear | None = library.replacement(path, module)
            wrong = None if layer is None else inconsistency(layer)
        except TorchTRTError:
            raise
        except Exception as error:  # of tensors that are missing, or of other shapes and dtypes
            reason = f"{type(error).__name__}: {error}"
            raise refusal(path, f"tensors that do not belong to its scheme ({reason})") from error
        if wrong is not None:
            raise refusal(path, f"tensors that do not belong to its scheme ({wrong})")
        if layer is not None:
            return layer
    return None


def inconsistency(layer: PackedLinear) -> str | None:
    """Returns what of a layer's tensors contradicts the others, or ``None``."""
    data: Tensor = layer.data
    scale: Tensor = layer.scale
    rows, columns = layer.out_features, layer.in_features
    if data.dim() != 2 or data.dtype is not _STORED[layer.form]:
        return f"the weight of {layer.form} is {data.dtype} {tuple(data.shape)}"
    groups = scale.shape[-1] if scale.dim() else 1
    is_number = scale.is_floating_point() or scale.dtype is torch.uint8  # the exponents of MXFP8
    if not is_number or (
        scale.dim() and (scale.dim() != 2 or len(scale) != rows or not _divides(groups, columns))
    ):
        return (
            f"the scale is {scale.dtype} {tuple(scale.shape)}, and the weight is {rows} x {columns}"
        )
    block = 0 if layer.dynamic is None else layer.dynamic.block
    if block and not _divides(block, columns):
        return f"blocks of {block} inputs do not divide its {columns} inputs"
    sizes = {"bias": (rows,), "offset": (rows, groups), "order": (columns,)}
    for name, shape in sizes.items():
        value = getattr(layer, name)
        if value is not None and tuple(value.shape) != shape:
            return f"the {name} is {tuple(value.shape)}, and not {shape}"
    return None


def _divides(part: int, whole: int) -> bool:
    return part > 0 and math.gcd(part, whole) == part
