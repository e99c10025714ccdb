"""What transformers are made of: Attention, RotaryEmbedding, KVCacheUpdate."""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import torch

from torchtrt.reference.facts import Fact, broadcast
from torchtrt.reference.operation import FLOATS, INTEGERS, Call, Function, Operation, frozen

Tensor = torch.Tensor


class Attention(Operation):
    """``norm(query @ key^T, mask) @ value``. There is no scaling: the query is scaled by whoever adds the layer."""

    name = "attention"
    layer_type = "ATTENTION_OUTPUT"
    methods = frozen({"add_attention": {"causal_kind": None}, "add_attention_v2": {"causal": None}})
    defaults = frozen(
        {
            "norm_op": "SOFTMAX",
            "causal": False,
            "causal_kind": None,
            "decomposable": False,
            "normalization_quantize_to_type": "FLOAT",
            "query_form": "PADDED_BHND",
            "key_value_form": "PADDED_BHND",
        }
    )
    most_inputs = 7

    def write(self, layer: object, attribute: str, value: object) -> None:
        """``causal`` and ``causal_kind`` are two views of one choice."""
        attributes = layer._attributes  # type: ignore[attr-defined]
        attributes[attribute] = value
        if attribute in ("causal", "causal_kind"):
            attributes["causal" if attribute == "causal_kind" else "causal_kind"] = None

    def read(self, layer: object, attribute: str) -> object:
        """``causal`` and ``causal_kind`` are two views of one choice."""
        attributes = layer._attributes  # type: ignore[attr-defined]
        if attribute == "causal":
            return _causal_kind(attributes) != "NONE"
        return _causal_kind(attributes) if attribute == "causal_kind" else attributes[attribute]

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """Query ``[B, Hq, Sq, D]``, key and value ``[B, Hkv, Skv, D]``, one type; a mask excludes causality."""
        for index in range(3):
            call.accept(index, FLOATS, f"input {index} of attention")
            call.require(call.fact(index).rank == 4, "query, key and value must have rank 4")
        dtype = call.same_type(0, 1, 2)
        call.require(
            call["query_form"] == call["key_value_form"] == "PADDED_BHND",
            "the reference executes padded attention only, not PACKED_NHD",
        )
        call.require(
            call.optional(4) is None,
            "the reference does not quantize the normalization of attention",
        )
        query, key, value = (call.shape(index) for index in range(3))
        for axis in (0, 1, 2):
            call.require(
                _may_equal(key[axis], value[axis]),
                f"key and value differ in dimension {axis}: {key}, {value}",
            )
        call.require(_may_equal(query[0], key[0]), "query and key must have the same batch size")
        call.require(_may_equal(query[3], key[3]), "query and key must have the same head size")
        if -1 not in (query[1], key[1]):
            call.require(
                key[1] > 0 and query[1] % key[1] == 0,
                f"{query[1]} query heads are no multiple of {key[1]}",
            )
        mask = call.optional(3)
        if mask is not None:
            call.accept(3, FLOATS | {"BOOL"}, "the mask of attention")
            call.require(
                mask.dtype == "BOOL" or mask.dtype == call.fact(0).dtype,
                "the mask must be Bool or the query's type",
            )
            call.require(
                _causal_kind(call.attributes) == "NONE", "a mask and causality exclude each other"
            )
            broadcast([mask.shape, (query[0], query[1], query[2], key[2])], "the mask of attention")
        return (Fact(dtype, query[:3] + value[3:]),)

    def bind(self, call: Call) -> Function:
        """``torch.nn.functional.scaled_dot_product_attention``."""
        kind = _causal_kind(call.attributes)
        grouped = call.shape(0)[1] != call.shape(1)[1]
        rows, columns = call.shape(0)[2], call.shape(1)[2]
        causal = None
        if kind != "NONE":
            offset = columns - rows if kind == "LOWER_RIGHT" else 0
            causal = torch.ones(rows, columns, dtype=torch.bool).tril(offset)
        if call["norm_op"] == "NONE":
            repeat = call.shape(0)[1] // call.shape(1)[1]

            def product(query: Tensor, key: Tensor, value: Tensor, *_: Tensor | None) -> Tensor:
                key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
                scores = query @ key.mT
                mask = _[0] if _ else None
                if causal is not None:
                    scores = scores * causal.to(scores.device)
                elif mask is not None:
                    scores = scores * mask if mask.dtype is torch.bool else scores + mask
                return scores @ value

            return product

        def attend(
            query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *_: Tensor | None
        ) -> Tensor:
            chosen = mask if causal is None else causal.to(query.device)
            return torch.nn.functional.scaled_dot_product_attention(
                query, key, value, chosen, scale=1.0, enable_gqa=grouped
            )

        return attend


def _may_equal(a: int, b: int) -> bool:
    return -1 in (a, b) or a == b


def _causal_kind(attributes: object) -> str:
    kind, causal = attributes["causal_kind"], attributes["causal"]  # type: ignore[index]
    return kind or ("UPPER_LEFT" if causal else "NONE")


class RotaryEmbedding(Operation):
    """Positions encoded by rotating pairs of features."""

    name = "rotary_embedding"
    methods = frozen({"add_rotary_embedding": {}})
    defaults = frozen({"interleaved": False, "rotary_embedding_dim": 0})
    most_inputs = 4

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """Input ``[B, N, S, H]``; the caches ``[B, S, H/2]``, or ``[positions, H/2]`` with position ids."""
        for index in range(3):
            call.accept(index, FLOATS, f"input {index} of rotary embedding")
        dtype = call.same_type(0, 1, 2)
        shape = call.shape(0)
        call.require(len(shape) == 4, "the input of rotary embedding must have rank 4")
        size = int(call["rotary_embedding_dim"]) or shape[3]
        call.require(
            size >= -1 and (size == -1 or size % 2 == 0),
            f"the rotated size must be even, not {size}",
        )
        call.require(
            -1 in (size, shape[3]) or size <= shape[3], f"{size} rotated features exceed {shape[3]}"
        )
        ids = call.optional(3)
        if ids is not None:
            call.accept(3, frozenset({"INT64"}), "position ids")
            call.require(ids.rank == 2, "position ids must have rank 2")
        for index in (1, 2):
            cache = call.shape(index)
            call.require(len(cache) == (3 if ids is None else 2), "the caches have the wrong rank")
            call.require(
                size == -1 or _may_equal(cache[-1], size // 2),
                f"the caches must have {size // 2} columns",
            )
        return (Fact(dtype, shape),)

    def bind(self, call: Call) -> Function:
        """The rotation of each pair by its angle."""
        size = int(call["rotary_embedding_dim"]) or call.shape(0)[3]
        interleaved = bool(call["interleaved"])

        def rotate(x: Tensor, cos: Tensor, sin: Tensor, ids: Tensor | None = None) -> Tensor:
            cos, sin = ((cache if ids is None else cache[ids]).unsqueeze(1) for cache in (cos, sin))
            turned, rest = x[..., :size], x[..., size:]
            if interleaved:
                first, second = turned[..., 0::2], turned[..., 1::2]
                pairs = torch.stack(
                    [first * cos - second * sin, first * sin + second * cos], -1
                ).flatten(-2)
            else:
                first, second = turned.chunk(2, -1)
                pairs = torch.cat([first * cos - second * sin, first * sin + second * cos], -1)
            return torch.cat([pairs, rest], -1)

        return rotate


class KVCacheUpdate(Operation):
    """A cache with new rows written at each sequence's position; what falls beyond the end is ignored."""

    name = "kv_cache_update"
    methods = frozen({"add_kv_cache_update": {}})
    defaults = frozen({"cache_mode": "LINEAR", "update_form": "PADDED_BHND"})
    most_inputs = 4

    def infer(self, call: Call) -> tuple[Fact, ...]:
        """Cache ``[B, H, Smax, D]``, update ``[B, H, S, D]``, write indices ``[B]``."""
        for index in (0, 1):
            call.accept(index, FLOATS, f"input {index} of the cache update")
        dtype = call.same_type(0, 1)
        call.accept(2, INTEGERS, "write indices")
        call.require(
            call["update_form"] == "PADDED_BHND", "the reference executes padded updates only"
        )
        cache, update = call.shape(0), call.shape(1)
        call.require(len(cache) == len(update) == 4, "cache and update must have rank 4")
        for axis in (0, 1, 3):
            call.require(
                _may_equal(cache[axis], update[axis]),
                f"cache and update differ in dimension {axis}",
            )
        call.require(call.fact(2).rank == 1, "write indices must have rank 1")
        return (Fact(dtype, cache),)

    def bind(self, call: Call) -> Function:
        """An ``index_put`` of the rows that fit."""

        def update(cache: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
            result = cache.clone()
            for batch, start in enumerate(starts.tolist()):
                low, high = max(start, 0), min(start + rows.shape[2], cache.shape[2])
                if low < high:
                    result[batch, :, low:high] = rows[batch, :, low - start : high - start]
            return result

        return update


OPERATIONS = (Attention(), RotaryEmbedding(), KVCacheUpdate())
