"""Layers of ``FineGrainedFP8Config`` of transformers: E4M3 in blocks, with inputs of E4M3.

They are known by the name of their class, because transformers is optional.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchtrt_converters_quantization.checkpoints.layers import (
    DynamicInput,
    PackedLinear,
    block_scales,
    refusal,
)
from torchtrt_converters_quantization.formats import FP8_LIMIT

_MODULE = "transformers.integrations.finegrained_fp8"
_OTHERS = ("FP8GroupedLinear", "FP8Experts")


def replacement(path: str, module: nn.Module) -> PackedLinear | None:
    """Returns the layer that replaces a module, or ``None`` if it is no such layer."""
    kind, own = type(module), _any(module)
    if kind.__module__ != _MODULE:
        return None
    if kind.__name__ in _OTHERS:
        raise refusal(path, "groups or experts in FP8")
    if kind.__name__ != "FP8Linear":
        return None
    weight = _tensor(module, "weight")
    if weight.dtype is not torch.float8_e4m3fn:
        raise refusal(path, f"weights of {weight.dtype}")
    block = own.block_size
    scale = _tensor(module, "weight_scale_inv").to(torch.float32)
    if block is None or scale.numel() == 1:
        scale = scale.reshape(())
    else:
        scale = block_scales(scale, (block[0], block[1]), (weight.shape[0], weight.shape[1]))
    bias = module._parameters.get("bias")
    layer = PackedLinear("FP8", weight, scale, bias=None if bias is None else bias.detach())
    if own.activation_scheme == "static":
        layer.quantize_input("FP8", _tensor(module, "activation_scale").float().reshape(()))
        return layer
    width = 0 if block is None else int(block[1])
    if width and weight.shape[1] % width:
        raise refusal(
            path, f"blocks of {width} inputs that do not divide its {weight.shape[1]} inputs"
        )
    if own.weight_scale_inv.dtype is torch.float8_e8m0fnu and width != 128:
        raise refusal(path, f"blocks of {width} with powers of two as scales")
    layer.dynamic = DynamicInput("FP8", FP8_LIMIT, "row", width, dtype=torch.float32)
    return layer


def _any(module: Any) -> Any:
    return module


def _tensor(module: nn.Module, name: str) -> Tensor:
    value: Tensor = getattr(module, name)
    return value.detach()
