"""The setting use_fp32_acc: products of float16 whose values exceed the range of float16 on the way to a result."""

import math

import pytest
import torch
import torch.nn.functional as F

import torchtrt
from tests.support.modules import Function

aten = torch.ops.aten
pytestmark = pytest.mark.filterwarnings("ignore")


def operands(size=400.0):
    """Returns a query, keys and values, whose scores exceed 65,504 by far."""
    source = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(2, 4, 6, 8, generator=source) for _ in range(3))
    return (query * size).half(), (key * size).half(), value.half()


def mask(hidden, dtype=torch.float16, row=None):
    """Returns what is added to scores, with a number for those that are hidden; in one row all are."""
    rows = torch.rand(6, 6, generator=torch.Generator().manual_seed(2)) < 0.4
    if row is not None:
        rows[row] = True
    return torch.zeros(6, 6, dtype=dtype).masked_fill_(rows, hidden)


def masked(added):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=added)


ATTENTION = {
    "plain": F.scaled_dot_product_attention,
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "large-scale": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=4.0),
    "finite-mask": masked(mask(-65504.0)),
    "finite-mask-of-a-row": masked(mask(-65504.0, row=2)),
    "infinite-mask": masked(mask(-math.inf)),
    "infinite-mask-of-a-row": masked(mask(-math.inf, row=2)),
    "float32-mask": masked(mask(-1e9, torch.float32, row=3)),
    "booleans": masked(mask(1.0, row=1) == 0),
    "computed-mask": lambda q, k, v: masked(v[0, 0] @ v[0, 1].T)(q, k, v),
    "fewer-heads": lambda q, k, v: F.scaled_dot_product_attention(
        q, k[:, :2], v[:, :2], enable_gqa=True
    ),
    "formula": lambda *x: aten._scaled_dot_product_attention_math.default(*x)[0],
    "kernel": lambda *x: aten._scaled_dot_product_flash_attention_for_cpu.default(*x)[0],
}


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("size", [400.0, 1.0])
def test_scores_and_their_softmax_stay_in_float32(name, size, version):
    """Scores that exceed the range of float16 would be infinite, and weights of two such scores NaN."""
    inputs = operands(size)
    compiled = torchtrt.compile(
        Function(ATTENTION[name]).eval(),
        inputs,
        use_fp32_acc=True,
        disabled_capabilities=["ATTENTION"],
        require_full_compilation=True,
    )

    torch.testing.assert_close(compiled(*inputs), ATTENTION[name](*inputs), rtol=4e-3, atol=4e-3)


SUMS = {
    "addmm": lambda q, k, v: torch.addmm(v[0, 0, :, :6], q[0, 0], k[0, 0].T, beta=0.5, alpha=0.05),
    "baddbmm": lambda q, k, v: torch.baddbmm(
        v[0, :, :, :6], q[0], k[0].transpose(1, 2), beta=0, alpha=-0.03
    ),
    "addmv": lambda q, k, v: torch.addmv(v[0, 0, :, 0], q[0, 0], k[0, 0, 0], alpha=0.05),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("is_required", [True, False])
def test_a_product_that_alpha_makes_small_enough_is_finite(name, is_required, version):
    """Older code scales the scores of attention so."""
    inputs = operands(300.0)
    expected = SUMS[name](*inputs)
    compiled = torchtrt.compile(
        Function(SUMS[name]).eval(),
        inputs,
        use_fp32_acc=is_required,
        require_full_compilation=True,
    )

    assert expected.isfinite().all()
    torch.testing.assert_close(compiled(*inputs), expected, rtol=4e-3, atol=4)
