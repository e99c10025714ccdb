"""Quantized values and types of four bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from plugins.reference.tests.layers import NEWER, only, rand


@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize("kind", ["INT8", "FP8", "INT4"])
def test_quantized_values_come_back_within_half_a_step(new: str, kind: str, bench: Any) -> None:
    """Quantize and Dequantize by a scale per channel."""
    n = bench(new)
    x, scale = rand(3, 8), torch.tensor([0.5, 0.25, 0.3])
    dtype = getattr(n.trt.DataType, kind)
    s = n.const(scale)
    q = n.net.add_quantize(n.input(x), s, dtype)
    d = n.net.add_dequantize(only(q), s, n.trt.float32)
    q.axis = d.axis = 0
    (result,) = n.run(only(d))
    step = 0.125 * x.abs() if kind == "FP8" else scale[:, None]
    assert bool(((result - x).abs() <= step / 2 + 2e-3).all())


def _block_scaled(n: Any, kind: str, packed: torch.Tensor, scale: torch.Tensor) -> Any:
    """A weight of 4 bits with a scale for each block, dequantized to float32."""
    shape = (packed.shape[0], packed.shape[1] * 2)
    dtype = getattr(n.trt.DataType, kind)
    weights = n.trt.Weights(dtype, packed.data_ptr(), packed.numel() * 2)
    data = n.net.add_constant(shape, weights).get_output(0)
    return n.net.add_dequantize(data, n.const(scale), n.trt.float32)


@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize("kind", ["INT4", "FP4"])
def test_weights_of_four_bits_stay_packed_in_the_plan(new: str, kind: str, bench: Any) -> None:
    """Two share a byte, and Dequantize is not folded."""
    n = bench(new)
    packed = torch.randint(0, 256, (64, 512), dtype=torch.uint8)
    scale = torch.rand(64, 32) + 0.5
    x = torch.ones(1, 64)
    weight = only(_block_scaled(n, kind, packed, scale))
    none = n.trt.MatrixOperation.NONE
    product = n.net.add_matrix_multiply(n.input(x), none, weight, none)
    plan = n.plan(only(product))
    assert plan is not None, n.errors
    assert packed.numel() < len(plan) < packed.numel() + 4 * scale.numel() + 8192


@pytest.mark.parametrize("new", NEWER)
def test_the_values_of_four_bits_are_those_of_their_formats(new: str, bench: Any) -> None:
    """INT4 is two's complement, and FP4 is E2M1; the first value is in the low bits."""
    codes = torch.arange(16, dtype=torch.uint8)
    packed = (codes[::2] | codes[1::2] << 4)[None]
    magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    wanted = {
        "INT4": [*range(8), *range(-8, 0)],
        "FP4": [*magnitudes, *(-magnitude for magnitude in magnitudes)],
    }
    for kind, values in wanted.items():
        n = bench(new)
        data = only(_block_scaled(n, kind, packed, torch.tensor([[1.0, 2.0]])))
        added = n.net.add_elementwise(
            data, n.input(torch.zeros(1, 16)), n.trt.ElementWiseOperation.SUM
        )
        (result,) = n.run(only(added))
        assert values[:8] + [2 * value for value in values[8:]] == result[0].tolist()


@pytest.mark.parametrize("new", NEWER)
def test_ties_of_four_bits_go_to_even(new: str, bench: Any) -> None:
    """As NVIDIA's kernels round E2M1."""
    n = bench(new)
    x = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.75, -2.5, 100.0])[None]
    scale = n.const(1.0)
    quantized = n.net.add_quantize(n.input(x), scale, n.trt.fp4)
    (result,) = n.run(only(n.net.add_dequantize(only(quantized), scale, n.trt.float32)))
    assert [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, -1.0, -2.0, 6.0] == result[0].tolist()


@pytest.mark.parametrize("new", NEWER)
def test_scales_of_four_bits_have_the_type_of_the_result(new: str, bench: Any) -> None:
    """TensorRT for RTX refuses others, too."""
    n = bench(new)
    packed, scale = torch.zeros(1, 8, dtype=torch.uint8), n.const([[1.0, 2.0]])
    weights = n.trt.Weights(n.trt.int4, packed.data_ptr(), 16)
    data = n.net.add_constant((1, 16), weights).get_output(0)
    assert n.plan(only(n.net.add_dequantize(data, scale, n.trt.float16))) is None
    assert "must have the type of the output" in str(n.errors)
