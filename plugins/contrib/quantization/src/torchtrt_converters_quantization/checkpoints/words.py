"""Layers with the int32 words of GPTQ and AWQ, of any library: ``qweight``, ``qzeros``, ``scales``, and ``g_idx``.

Libraries change what they load, so that a layer does not have the order of its words. Its own results decide.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchtrt_converters_quantization.checkpoints.compressed import in_groups
from torchtrt_converters_quantization.checkpoints.layers import (
    PackedLinear,
    integer_form,
    refusal,
    unpacked,
)

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where AWQ keeps each of eight columns in a word."""
_PROBES = 4


def replacement(path: str, module: nn.Module) -> PackedLinear | None:
    """Returns the layer that replaces a module, or ``None`` if it has no such words."""
    names = ("qweight", "qzeros", "scales")
    if not all(isinstance(getattr(module, name, None), Tensor) for name in names):
        return None
    made = [layer for layer in _readings(module) if layer is not None]
    own: Any = module
    scales: Tensor = own.scales
    if not made:
        raise refusal(path, "words that are neither GPTQ's nor AWQ's")
    width = made[0].in_features
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_PROBES, width, generator=generator).to(scales.device, scales.dtype)
    try:
        with torch.no_grad():
            expected = own(x)
    except Exception as error:
        raise refusal(
            path, f"a forward that does not run on {scales.device.type} ({type(error).__name__})"
        ) from error
    for layer in made:
        if _agrees(layer, x, expected):
            return layer
    raise refusal(path, "results other than those of its words as GPTQ or AWQ read them")


def _agrees(layer: PackedLinear, x: Tensor, expected: Tensor) -> bool:
    """Returns whether a layer computes something, within the rounding of its dtype."""
    with torch.no_grad():
        result = layer(x).double()
    bound = 8 * torch.finfo(x.dtype).eps
    return bool((result - expected.double()).norm() <= bound * expected.double().norm())


def _readings(module: Any) -> list[PackedLinear | None]:
    """Returns the layer as each format has it."""
    words, zeros, scales = module.qweight, module.qzeros, module.scales
    columns = scales.shape[1]
    bias = getattr(module, "bias", None)
    order = getattr(module, "g_idx", None)
    made: list[PackedLinear | None] = []
    if words.shape[1] == columns:  # GPTQ: words along the inputs
        bits = zeros.shape[1] * 32 // columns
        width = words.shape[0] * 32 // bits
        values = unpacked(words.t().contiguous(), bits, width)
        points = unpacked(zeros, bits, columns).t()
        for add in (0, 1):
            made.append(layer_of(values, points + add, scales, bits, bias, order))
    elif words.shape[1] * 8 == columns:  # AWQ: words along the outputs, of four bits
        made.append(layer_of(*awq_values(words, zeros), scales, 4, bias, None))
    return made


def awq_values(words: Tensor, zeros: Tensor) -> tuple[Tensor, Tensor]:
    """Returns AWQ's weights ``(out, in)`` and zero points ``(out, groups)``, unsigned."""
    result = []
    for packed_words in (words, zeros):
        values = unpacked(packed_words, 4, packed_words.shape[1] * 8)
        ordered = values.unflatten(1, (-1, 8))[..., list(_AWQ_ORDER)].flatten(1)
        result.append(ordered.t())
    return result[0], result[1]


def layer_of(
    values: Tensor, points: Tensor, scales: Tensor, bits: int, bias: Tensor | None, order: Any
) -> PackedLinear | None:
    """Returns a layer of integers with scales and zero points, or ``None`` if its groups differ in size.

    Args:
        values: Unsigned, ``(out, in)``.
        points: Zero points, ``(out, groups)``.
        scales: ``(groups, out)``.
        bits: How many a value has.
        bias: ``(out,)``, or ``None``.
        order: The group of each input, or ``None``.
    """
    middle = 2 ** (bits - 1)
    data = (values - middle).to(torch.int8)
    factors = scales.detach().t().contiguous()
    offset = (middle - points).to(torch.float32) * factors.to(torch.float32)
    count = factors.shape[1]
    columns = None
    if order is not None and not _is_plain(order, count):
        columns = in_groups(order, count)
        if columns is None:
            return None
        data = data[:, columns]
    return PackedLinear(
        integer_form(bits),
        data.contiguous(),
        factors,
        bias=None if bias is None else bias.detach(),
        offset=offset if bool(offset.any()) else None,
        order=columns,
    )


def _is_plain(order: Tensor, groups: int) -> bool:
    width = len(order) // groups
    return bool((order.cpu() == torch.arange(len(order)) // width).all())
