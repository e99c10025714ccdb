"""Values that a model rounds to E4M3 itself: ``clamp(x, -448, 448).to(float8_e4m3fn).to(dtype)``."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import constant_of
from torchtrt_converters_quantization.formats import FP8_LIMIT
from torchtrt_converters_quantization.ops import FAKE_QUANTIZE
from torchtrt_converters_quantization.passes.graphs import CASTS, Editor

aten = torch.ops.aten

_CLAMPS = (aten.clamp.default, aten.clamp.Tensor)


def is_rounding(node: Node) -> bool:
    """Returns whether a node casts limited values to E4M3, and every reader casts them back."""
    if node.target not in CASTS or node.meta["val"].dtype is not torch.float8_e4m3fn:
        return False
    limited: Any = node.args[0]
    if not is_limited(limited) or not _is_float(limited.args[0]):
        return False
    return all(user.target in CASTS and _is_float(user) for user in node.users)


def is_limited(node: Node) -> bool:
    """Returns whether a node clamps values to the range of E4M3, beyond which PyTorch's cast returns NaN."""
    if node.target not in _CLAMPS or len(node.args) != 3 or node.kwargs:
        return False
    bounds = [
        float(value) if value is not None and value.numel() == 1 else None
        for value in map(_number, node.args[1:])
    ]
    return bounds == [-FP8_LIMIT, FP8_LIMIT]


def _is_float(node: Node) -> bool:
    return node.meta["val"].dtype in (torch.float32, torch.float16, torch.bfloat16)


def _number(bound: Any) -> torch.Tensor | None:
    return torch.tensor(float(bound)) if isinstance(bound, int | float) else constant_of(bound)


def rewrite_rounding(editor: Editor, node: Node) -> None:
    """Replaces the casts back to floating point by a Quantize and a Dequantize layer of scale 1."""
    limited: Any = node.args[0]
    for cast in list(node.users):
        one = editor.constant(torch.ones((), dtype=torch.float32), cast)
        args = (limited.args[0], one, -128, cast.meta["val"].dtype)  # the layer limits by itself
        editor.replace(cast, editor.call(FAKE_QUANTIZE["FP8"], args, cast))


__all__ = ["is_limited", "is_rounding", "rewrite_rounding"]
