"""Attention of new tokens over a cache and over themselves."""

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

    Query heads that share a key are rows of one matrix product, so nothing is repeated for them.
    Keys and values of both are joined, which copies those of the cache once. Scores over each apart need no copy. On an
    H100, TensorRT 8.6 needs 0.9 to 1.5 times as long for those, twice as long to build, and four engines a layer.

    Args:
        query: ``(batch, query heads, new, width)``.
        key: ``(batch, heads, keys, width)``, of the new tokens or of a source; ``heads`` divides the query heads.
        value: ``(batch, heads, keys, value width)``.
        mask: Booleans, ``(batch, 1, new or 1, keys)``: which key a new token may read. Each may read at least one.
        past_key: ``(batch, heads, cached, width)``, or None where nothing is cached.
        past_value: ``(batch, heads, cached, value width)``, or None.
        past_mask: Booleans, ``(batch, 1, new or 1, cached)``: which places of the cache a new token may read.
            The elements in the other places must be finite.
        scale: What products of queries and keys are multiplied by.
        softcap: Bounds scores to plus and minus this, by a hyperbolic tangent; None for none.
        sinks: ``(query heads,)``: the score of one more key, whose value is 0; None for none.
        bias: ``(1 or batch, 1 or query heads, 1 or new, cached + keys)``: what is added to scores, those of the cache
            first; None for none.

    Returns:
        ``(batch, query heads, new, value width)``, of the query's dtype. Softmax is computed in float32.
    """
    if past_key is not None and past_value is not None and past_mask is not None:
        key, value = torch.cat((past_key, key), 2), torch.cat((past_value, value), 2)
        mask = torch.cat((past_mask.expand(-1, -1, mask.shape[2], -1), mask), -1)
    batch, query_heads, new, width = query.shape
    heads, length = key.shape[1:3]
    shared = query_heads // heads * new
    # Batch and heads are one dimension: over two, TensorRT 8.6 runs a loop of small products, six times as long.
    rows = query.reshape(batch * heads, shared, width)
    keys = key.reshape(batch * heads, length, width)
    products = torch.bmm(rows, keys.transpose(1, 2)).reshape(batch, query_heads, new, length)
    scores = (
        products.float() * scale
    )  # float16 before: 8.6 has no kernel for a cast before a reshape
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if bias is not None:
        scores = scores + bias.float()
    weights = _softmax(torch.where(mask, scores, torch.finfo(torch.float32).min), sinks)
    weights = weights.to(value.dtype).reshape(batch * heads, shared, length)
    result = torch.bmm(weights, value.reshape(batch * heads, length, value.shape[3]))
    return result.reshape(batch, query_heads, new, value.shape[3])


def _softmax(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Returns the softmax over the last dimension, and over the score of each head's sink, whose weight is left out."""
    if sinks is None:
        return torch.softmax(scores, -1)
    sink = sinks.reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1).float()
    return torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]


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
    # Checked here, because nothing compares sizes any more once the program is exported.
    own = key.shape[2]
    sizes = [(key, {0: batch}), (value, {0: batch, 2: own}), (mask, {0: batch, 3: own})]
    if past_key is not None and past_value is not None and past_mask is not None:
        cached = past_key.shape[2]
        sizes += [
            (key, {2: new}),
            (past_key, {0: batch}),
            (past_value, {0: batch, 2: cached}),
            (past_mask, {0: batch, 3: cached}),
        ]
    for tensor, wanted in sizes:
        for dim, size in wanted.items():
            torch._check(tensor.shape[dim] == size)
    return query.new_empty((batch, heads, new, value.shape[3]))
