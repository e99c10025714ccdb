"""The layers of transformers: Attention, RotaryEmbedding, KVCacheUpdate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchtrt_reference.semantics.operation import (
    BOOLEANS,
    FLOATS,
    INTEGERS,
    Call,
    Function,
    Operation,
    frozen,
)
from torchtrt_reference.semantics.tensor_facts import TensorFacts, broadcast

Tensor = torch.Tensor


class Attention(Operation):
    """``norm(query @ key^T, mask) @ value``. There is no scaling: the network scales the query before."""

    name = "attention"
    layer_type = "ATTENTION_OUTPUT"
    interface = "IAttentionOutputLayer"  # what add_attention returns is no layer
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
    maximum_inputs = 7

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

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Query ``[B, Hq, Sq, D]``, key and value ``[B, Hkv, Skv, D]``, one type; a mask excludes causality.

        Packed, the sequences follow each other in ``[T, H, D]``; inputs 5 and 6 are where each one starts.
        """
        packed = [_is_packed(call, index) for index in range(3)]
        for index in range(3):
            call.accept(index, FLOATS, f"input {index} of attention")
            rank = 3 if packed[index] else 4
            call.require(
                call.facts(index).rank == rank, f"input {index} of attention must have rank {rank}"
            )
        dtype = call.same_type(0, 1, 2)
        call.require(
            call.optional(4) is None,
            "the reference does not quantize the normalization of attention",
        )
        _check_packing(call, packed)
        query, key, value = (
            _padded_shape(call.shape(index)) if packed[index] else call.shape(index)
            for index in range(3)
        )
        _check_dimensions(call, query, key, value)
        _check_mask(call, (query[0], query[1], query[2], key[2]))
        if packed[0]:
            return (TensorFacts(dtype, call.shape(0)[:2] + value[3:]),)
        return (TensorFacts(dtype, query[:3] + value[3:]),)

    def bind(self, call: Call) -> Function:
        """``torch.nn.functional.scaled_dot_product_attention``, for packed sequences of each by itself."""
        packed = [_is_packed(call, index) for index in range(3)]
        if not any(packed):
            return self._bind_padded(call)
        return lambda *tensors: self._by_sequence(call, packed, tensors)

    def _by_sequence(
        self, call: Call, packed: list[bool], tensors: tuple[Tensor | None, ...]
    ) -> Tensor:
        """Returns attention over packed sequences, each of them computed by itself."""
        starts: list[Any] = [
            tensors[index].tolist() if len(tensors) > index and tensors[index] is not None else None  # type: ignore[union-attr]
            for index in (5, 6, 6)
        ]
        attributes = {
            **call.attributes,
            "query_form": "PADDED_BHND",
            "key_value_form": "PADDED_BHND",
        }
        results = []
        for batch in range(len(starts[0] if packed[0] else starts[1]) - 1):
            operands = []
            for index in range(3):
                tensor = tensors[index]
                assert tensor is not None
                if packed[index]:
                    piece = tensor[starts[index][batch] : starts[index][batch + 1]]
                    operands.append(piece.transpose(0, 1).unsqueeze(0))
                else:
                    operands.append(tensor[batch : batch + 1])
            facts = [
                TensorFacts(call.facts(index).dtype, tuple(operand.shape))
                for index, operand in enumerate(operands)
            ]
            whole = Call(attributes, facts, call.rules, call.strong, call.output_types)
            results.append(self._bind_padded(whole)(*operands))
        if packed[0]:
            return torch.cat([result.squeeze(0).transpose(0, 1) for result in results])
        return torch.cat(results)

    def _bind_padded(self, call: Call) -> Function:
        """Returns the function of attention over padded sequences."""
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


def _check_packing(call: Call, packed: Sequence[bool]) -> None:
    """Packed sequences need their starts, and take no mask."""
    if not any(packed):
        return
    call.require(call.optional(3) is None, "packed attention takes no mask in the reference")
    for index, is_packed in ((5, packed[0]), (6, packed[1])):
        if is_packed:
            call.accept(index, frozenset({"INT32"}), "the starts of packed sequences")
            call.require(call.facts(index).rank == 1, "the starts of packed sequences have rank 1")


def _check_dimensions(
    call: Call, query: Sequence[int], key: Sequence[int], value: Sequence[int]
) -> None:
    """Checks that queries, keys and values fit each other: ``(batch, heads, length, head size)``, -1 where unknown."""
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


def _check_mask(call: Call, scores: tuple[int, ...]) -> None:
    """Checks the mask, the fourth operand, if there is one, against the shape of the scores."""
    mask = call.optional(3)
    if mask is None:
        return
    call.accept(3, FLOATS | BOOLEANS, "the mask of attention")
    call.require(
        mask.dtype == "BOOL" or mask.dtype == call.facts(0).dtype,
        "the mask must be Bool or the query's type",
    )
    call.require(_causal_kind(call.attributes) == "NONE", "a mask and causality exclude each other")
    broadcast([mask.shape, scores], "the mask of attention")


def _is_packed(call: Call, index: int) -> bool:
    form = call["query_form" if index == 0 else "key_value_form"]
    return bool(form == "PACKED_NHD")


def _padded_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of packed sequences as if they were padded: unknown in batch and length."""
    return (-1, shape[1], -1, shape[2])


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
    maximum_inputs = 4

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
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
        return (TensorFacts(dtype, shape),)

    def bind(self, call: Call) -> Function:
        """Returns the function that rotates each pair by its angle."""
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
    maximum_inputs = 4

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Cache ``[B, H, Smax, D]``, update ``[B, H, S, D]``, write indices ``[B]``.

        Packed, the updates follow each other in ``[T, H, D]``, and input 3 is where each one starts.
        """
        for index in (0, 1):
            call.accept(index, FLOATS, f"input {index} of the cache update")
        dtype = call.same_type(0, 1)
        call.accept(2, INTEGERS, "write indices")
        cache, update = call.shape(0), call.shape(1)
        if call["update_form"] == "PACKED_NHD":
            call.accept(3, frozenset({"INT32"}), "the starts of packed updates")
            call.require(len(update) == 3, "packed updates must have rank 3")
            update = _padded_shape(update)
        call.require(len(cache) == len(update) == 4, "cache and update must have rank 4")
        for axis in (0, 1, 3):
            call.require(
                _may_equal(cache[axis], update[axis]),
                f"cache and update differ in dimension {axis}",
            )
        call.require(call.facts(2).rank == 1, "write indices must have rank 1")
        return (TensorFacts(dtype, cache),)

    def bind(self, call: Call) -> Function:
        """An ``index_put`` of the rows that fit."""
        is_packed = call["update_form"] == "PACKED_NHD"

        def update(
            cache: Tensor, updates: Tensor, starts: Tensor, ends: Tensor | None = None
        ) -> Tensor:
            result = cache.clone()
            for batch, start in enumerate(starts.tolist()):
                if is_packed and ends is not None:
                    rows = updates[int(ends[batch]) : int(ends[batch + 1])].transpose(0, 1)
                else:
                    rows = updates[batch]
                low, high = max(start, 0), min(start + rows.shape[1], cache.shape[2])
                if low < high:
                    result[batch, :, low:high] = rows[:, low - start : high - start]
            return result

        return update


OPERATIONS = (Attention(), RotaryEmbedding(), KVCacheUpdate())
