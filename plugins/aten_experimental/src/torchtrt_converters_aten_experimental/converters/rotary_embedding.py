"""Rotary position embeddings as a layer of TensorRT, where the TensorRT in use has it."""

from __future__ import annotations

import torch
from torch import Tensor

from torchtrt.conversion import ConversionContext, NetworkTensor
from torchtrt.tensorrt import Capability
from torchtrt_converters_aten_experimental import pack
from torchtrt_converters_aten_experimental.shims import add_rotary_embedding

_library = torch.library.Library("torchtrt_experimental", "DEF")
_library.define("rotary_embedding(Tensor x, Tensor cos, Tensor sin, bool interleaved) -> Tensor")


@pack.decomposition("torchtrt_experimental::rotary_embedding")
def rotary_embedding(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Returns features whose pairs are rotated by the angles of their positions (Su et al., 2021, RoFormer).

    A pair ``(a, b)`` becomes ``(a cos - b sin, b cos + a sin)``.

    Args:
        x: ``(batch, heads, length, width)``, floating point; the width is even.
        cos: ``(batch, length, width / 2)``, of the same dtype.
        sin: Likewise.
        interleaved: Whether the features of a pair are neighbors; else they are half the width apart.

    Returns:
        A tensor like ``x``.
    """
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    if interleaved:
        pairs = x.unflatten(-1, (-1, 2))
        first, second = pairs[..., 0], pairs[..., 1]
    else:
        first, second = x.chunk(2, -1)
    turned = first * cos - second * sin, second * cos + first * sin
    return torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)


_library.impl("rotary_embedding", rotary_embedding, "CompositeExplicitAutograd")
rotary_embedding_op = torch.ops.torchtrt_experimental.rotary_embedding.default


@torch.library.register_fake("torchtrt_experimental::rotary_embedding", lib=_library)  # type: ignore[untyped-decorator]
def _(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@pack.converter(
    rotary_embedding_op, requires=Capability.ROTARY_EMBEDDING, supports_dynamic_shapes=True
)
def rotary_embedding_layer(
    ctx: ConversionContext,
    x: NetworkTensor,
    cos: NetworkTensor,
    sin: NetworkTensor,
    interleaved: bool,
) -> NetworkTensor:
    """Converts it to one layer."""
    return add_rotary_embedding(ctx.net, x, cos, sin, interleaved)
