"""Attention, its caches, rotary embeddings and mixtures of experts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from plugins.reference.tests.layers import NEWER, only, rand


@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_softmax_of_products(new: str, causal: bool, bench: Any) -> None:
    """There is no scaling; grouped heads are repeated; the mask is causal from the upper left."""
    n = bench(new)
    q, k, v = rand(2, 4, 3, 8), rand(2, 2, 5, 8), rand(2, 2, 5, 8)
    inputs = [n.input(tensor) for tensor in (q, k, v)]
    attention = n.net.add_attention(*inputs, n.trt.AttentionNormalizationOp.SOFTMAX, causal)
    attention.decomposable = True
    assert attention.causal is causal
    assert n.net[0].type == n.trt.LayerType.ATTENTION_OUTPUT
    (result,) = n.run(only(attention))
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=1.0, enable_gqa=True
    )
    torch.testing.assert_close(result, expected)


def test_attention_masks_and_causality_exclude_each_other(bench: Any) -> None:
    """A bool mask is true where attention may read; together with causality it is refused."""
    for kind, works in (("NONE", True), ("LOWER_RIGHT", False)):
        n = bench("11.4.0")
        q, k, mask = rand(1, 2, 3, 4), rand(1, 2, 5, 4), torch.rand(1, 1, 3, 5) > 0.3
        mask[..., 0] = True
        inputs = [n.input(tensor) for tensor in (q, k, k)]
        normalization = n.trt.AttentionNormalizationOp.SOFTMAX
        attention = n.net.add_attention_v2(
            *inputs, normalization, getattr(n.trt.CausalMaskKind, kind)
        )
        attention.mask = n.input(mask)
        if not works:
            assert n.plan(only(attention)) is None
            assert "exclude each other" in n.errors[-1]
            continue
        (result,) = n.run(only(attention))
        torch.testing.assert_close(
            result, torch.nn.functional.scaled_dot_product_attention(q, k, k, mask, scale=1.0)
        )


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding_turns_pairs(interleaved: bool, bench: Any) -> None:
    """Each pair of features is multiplied by a complex number of size 1."""
    n = bench("11.4.0")
    x, angle = rand(2, 3, 5, 8), rand(2, 5, 4)
    layer = n.net.add_rotary_embedding(
        n.input(x), n.input(angle.cos()), n.input(angle.sin()), interleaved, 0
    )
    (result,) = n.run(only(layer))
    real, imaginary = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    turned = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angle), angle).unsqueeze(
        1
    )
    parts = [turned.real, turned.imag]
    expected = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    torch.testing.assert_close(result, expected)


def test_a_cache_update_writes_rows_and_ignores_what_does_not_fit(bench: Any) -> None:
    """Each sequence has its own position."""
    n = bench("11.4.0")
    cache, rows = torch.zeros(2, 1, 4, 2), torch.ones(2, 1, 2, 2)
    indices = n.input(torch.tensor([1, 3], dtype=torch.int32))
    layer = n.net.add_kv_cache_update(
        n.input(cache), n.input(rows), indices, n.trt.KVCacheMode.LINEAR
    )
    (result,) = n.run(only(layer))
    assert result[:, 0, :, 0].tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize("biased", [False, True])
def test_a_mixture_of_experts_weighs_what_its_experts_compute(
    new: str, biased: bool, bench: Any
) -> None:
    """``sum of score * down(up(x) * silu(gate(x)))`` over the chosen experts of every token."""
    n = bench(new)
    hidden, gate, up, down = rand(2, 3, 4), rand(5, 4, 6), rand(5, 4, 6) * 0.5, rand(5, 6, 4)
    biases = [rand(5, 6), rand(5, 6) + 1, rand(5, 4)]
    scores = rand(2, 3, 2).softmax(-1)
    chosen = torch.tensor([[[0, 4], [1, 2], [3, 0]], [[2, 2], [4, 1], [0, 3]]], dtype=torch.int32)
    layer = n.net.add_moe(n.input(hidden), n.input(chosen), n.input(scores))
    layer.set_gated_weights(
        *[n.const(tensor) for tensor in (gate, up, down)], n.trt.MoEActType.SILU
    )
    if biased:
        layer.set_gated_biases(*[n.const(bias) for bias in biases])
    expected = torch.zeros_like(hidden)
    zero = [torch.zeros_like(bias) for bias in biases]
    b_gate, b_up, b_down = biases if biased else zero
    for b, s, k in np.ndindex(2, 3, 2):
        x, e = hidden[b, s], int(chosen[b, s, k])
        inner = (x @ up[e] + b_up[e]) * torch.nn.functional.silu(x @ gate[e] + b_gate[e])
        expected[b, s] += scores[b, s, k] * (inner @ down[e] + b_down[e])
    (result,) = n.run(only(layer))
    torch.testing.assert_close(result, expected)


def test_what_the_reference_does_not_compute_of_experts_is_refused(bench: Any) -> None:
    """Quantization and parameters of SwiGLU do not build, and say so."""
    for change, reason in (
        (lambda layer, n: layer.set_swiglu_params(7.0, 1.702, 1.0), "SwiGLU"),
        (
            lambda layer, n: layer.set_quantization_static(n.const(1.0), n.trt.fp8),
            "does not quantize",
        ),
    ):
        n = bench("11.4.0")
        chosen = n.input(torch.zeros(1, 2, 1, dtype=torch.int32))
        layer = n.net.add_moe(n.input(rand(1, 2, 4)), chosen, n.input(rand(1, 2, 1)))
        weights = [n.const(rand(1, 4, 4)) for _ in range(3)]
        layer.set_gated_weights(*weights, n.trt.MoEActType.SILU)
        change(layer, n)
        assert n.plan(only(layer)) is None
        assert reason in n.errors[-1]


@pytest.mark.parametrize("causal", ["NONE", "UPPER_LEFT", "LOWER_RIGHT"])
@pytest.mark.parametrize("packed_keys", [False, True])
def test_packed_attention_is_attention_of_each_sequence(
    causal: str, packed_keys: bool, bench: Any
) -> None:
    """Sequences of different lengths one after the other, keys packed or padded."""
    n = bench("11.4.0")
    lengths, key_lengths = [3, 1, 4], [2, 5, 4] if packed_keys else [4, 4, 4]
    queries = [rand(length, 4, 8) for length in lengths]
    keys = [rand(length, 2, 8) * 0.7 for length in key_lengths]
    values = [rand(length, 2, 8) + 1 for length in key_lengths]
    join = (
        torch.cat
        if packed_keys
        else lambda tensors: torch.stack(tensors).transpose(1, 2).contiguous()
    )
    layer = n.net.add_attention_v2(
        n.input(torch.cat(queries)),
        n.input(join(keys)),
        n.input(join(values)),
        n.trt.AttentionNormalizationOp.SOFTMAX,
        getattr(n.trt.CausalMaskKind, causal),
    )
    layer.query_form = n.trt.AttentionIOForm.PACKED_NHD
    layer.query_lengths = n.input(starts_of(lengths))
    if packed_keys:
        layer.key_value_form = n.trt.AttentionIOForm.PACKED_NHD
        layer.key_value_lengths = n.input(starts_of(key_lengths))
    (result,) = n.run(layer.get_output(0))
    expected = []
    for query, key, value in zip(queries, keys, values, strict=True):
        offset = len(key) - len(query) if causal == "LOWER_RIGHT" else 0
        mask = torch.ones(len(query), len(key), dtype=torch.bool)
        mask = mask if causal == "NONE" else mask.tril(offset)
        scores = torch.einsum("qhd,khd->hqk", query, key.repeat_interleave(2, 1))
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num()
        expected.append(torch.einsum("hqk,khd->qhd", weights, value.repeat_interleave(2, 1)))
    torch.testing.assert_close(result, torch.cat(expected))


def starts_of(lengths: list[int]) -> torch.Tensor:
    """Where sequences of these lengths start and end when they are packed."""
    return torch.tensor([0, *lengths]).cumsum(0).int()


def test_packed_cache_updates_go_to_their_rows(bench: Any) -> None:
    """Every sequence writes its own number of rows at its own place."""
    n = bench("11.4.0")
    cache, update = torch.zeros(2, 1, 4, 3), rand(3, 1, 3)
    layer = n.net.add_kv_cache_update(
        n.input(cache),
        n.input(update),
        n.input(torch.tensor([1, 3], dtype=torch.int32)),
        n.trt.KVCacheMode.LINEAR,
    )
    layer.update_form = n.trt.AttentionIOForm.PACKED_NHD
    layer.update_lengths = n.input(starts_of([2, 1]))
    (result,) = n.run(only(layer))
    expected = cache.clone()
    expected[0, :, 1:3] = update[:2].transpose(0, 1)
    expected[1, :, 3:4] = update[2:].transpose(0, 1)
    torch.testing.assert_close(result, expected)
