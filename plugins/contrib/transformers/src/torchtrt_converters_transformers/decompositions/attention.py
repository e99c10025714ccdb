"""Attention of new tokens over a cache and over themselves, without a copy of the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from torchtrt_converters_transformers._pack import pack

_library = torch.library.Library("torchtrt_transformers", "DEF")
_library.define(
    "cached_attention(Tensor query, Tensor key, Tensor value, Tensor mask, Tensor? past_key, Tensor? past_value,"
    " Tensor? past_mask, float scale, float? softcap, Tensor? sinks=None, Tensor? bias=None) -> Tensor"
)


@pack.decomposition("torchtrt_transformers::cached_attention")
def cached_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    past_key: Tensor | None,
    past_value: Tensor | None,
    past_mask: Tensor | None,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Returns what the new tokens read from the cache and from each other.

    Scores over both are concatenated before the softmax, so keys and values of the cache are read where they are.
    Query heads that share a key are rows of one matrix product: nothing of the cache is repeated either.

    Args:
        query: ``(batch, query heads, new, width)``.
        key: ``(batch, heads, new, width)`` of the new tokens; ``heads`` divides the query heads.
        value: ``(batch, heads, new, value width)``.
        mask: Booleans, ``(batch, 1, new, new)``: which new token may read which. Each may read at least one.
        past_key: ``(batch, heads, cached, width)``, or None where nothing is cached.
        past_value: ``(batch, heads, cached, value width)``, or None.
        past_mask: Booleans, ``(batch, 1, new or 1, cached)``: which places of the cache a new token may read.
            The elements in the other places must be finite.
        scale: What products of queries and keys are multiplied by.
        softcap: Bounds scores to plus and minus this, by a hyperbolic tangent; None for none.
        sinks: ``(query heads,)``: the score of one more key, whose value is 0; None for none.
        bias: ``(1 or batch, 1 or query heads, 1 or new, cached + new)``: what is added to scores, those of the cache
            first; None for none.

    Returns:
        ``(batch, query heads, new, value width)``, of the query's dtype. Softmax is computed in float32.
    """
    batch, query_heads, new, width = query.shape
    heads = key.shape[1]
    rows = query.reshape(batch, heads, query_heads // heads * new, width)

    def scores(keys: Tensor, allowed: Tensor, bias: Tensor | None) -> Tensor:
        products = torch.matmul(rows, keys.transpose(-1, -2))
        # Not when they are float32: TensorRT 8.6 moves a cast over a reshape, and finds no kernel for float16 then.
        products = products.reshape(batch, query_heads, new, keys.shape[2]).float() * scale
        if softcap is not None:
            products = torch.tanh(products / softcap) * softcap
        if bias is not None:
            products = products + bias.float()
        return torch.where(allowed, products, torch.finfo(torch.float32).min)

    def softmax(scores: Tensor) -> Tensor:
        if sinks is None:
            return torch.softmax(scores, -1).to(value.dtype)
        sink = sinks.reshape(1, -1, 1, 1).expand(batch, -1, new, 1).float()
        return torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1].to(value.dtype)

    def read(weights: Tensor, values: Tensor) -> Tensor:
        weights = weights.reshape(batch, heads, query_heads // heads * new, values.shape[2])
        return torch.matmul(weights, values)

    if past_key is None or past_value is None or past_mask is None:
        result = read(softmax(scores(key, mask, bias)), value)
    else:
        cached = past_key.shape[2]
        parts = (None, None) if bias is None else (bias[..., :cached], bias[..., cached:])
        both = [scores(past_key, past_mask, parts[0]), scores(key, mask, parts[1])]
        weights = softmax(torch.cat(both, -1))
        result = read(weights[..., :cached], past_value) + read(weights[..., cached:], value)
    return result.reshape(batch, query_heads, new, value.shape[3])


_library.impl("cached_attention", cached_attention, "CompositeExplicitAutograd")


@torch.library.register_fake("torchtrt_transformers::cached_attention", lib=_library)  # type: ignore[untyped-decorator]
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    past_key: Tensor | None,
    past_value: Tensor | None,
    past_mask: Tensor | None,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Returns a tensor of the result's shape, and checks the sizes of the inputs while they can be compared."""
    batch, heads, new, _ = query.shape
    # Said here, because nothing compares sizes any more once the program is exported.
    sizes = [(key, {0: batch, 2: new}), (value, {0: batch, 2: new}), (mask, {0: batch, 3: new})]
    if past_key is not None and past_value is not None and past_mask is not None:
        cached = past_key.shape[2]
        sizes += [
            (past_key, {0: batch}),
            (past_value, {0: batch, 2: cached}),
            (past_mask, {0: batch, 3: cached}),
        ]
    for tensor, wanted in sizes:
        for dim, size in wanted.items():
            torch._check(tensor.shape[dim] == size)
    return query.new_empty((batch, heads, new, value.shape[3]))
