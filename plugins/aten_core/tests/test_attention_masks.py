"""Constant masks of attention that hide nothing, or are causal, are no masks."""

import copy
import math

import pytest
import torch
from torch.nn import functional as F

import torchtrt
from torchtrt.conversion import arguments_of
from torchtrt.testing import run_compiled

from .conftest import lowered_calls

LENGTH = 5
TRIANGLE = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


def added(mask, number):
    """Returns a mask of booleans as one that is added."""
    return torch.zeros(mask.shape).masked_fill(~mask, number)


class Attention(torch.nn.Module):
    """Attention of a tensor to itself, under a mask that is a buffer; ``write`` writes to it first."""

    def __init__(self, mask, is_causal=False, write=False):
        super().__init__()
        self.register_buffer("mask", mask)
        self.is_causal, self.write = is_causal, write

    def forward(self, x):
        if self.write:
            self.mask.logical_not_()
        return F.scaled_dot_product_attention(
            x, x * 2, x - 1, attn_mask=self.mask, is_causal=self.is_causal
        )


def masks_read(model, inputs=None, **settings):
    """Returns the masks and flags that are left of a model's attention."""
    inputs = inputs or [torch.randn(2, 3, LENGTH, 4)]
    calls = lowered_calls(model, inputs, **settings)
    attention = torch.ops.aten.scaled_dot_product_attention.default
    (node,) = (call for call in calls if call.target is attention)
    op = arguments_of(node)
    return op.attn_mask, op.is_causal


@pytest.mark.parametrize(
    ("mask", "is_causal"),
    [
        (torch.ones(LENGTH, LENGTH, dtype=torch.bool), False),
        (torch.ones(2, 1, LENGTH, LENGTH, dtype=torch.bool), False),
        (torch.zeros(1, LENGTH), False),
        (TRIANGLE, True),
        (TRIANGLE.expand(2, 1, -1, -1).clone(), True),
        (added(TRIANGLE, -math.inf), True),
        (added(TRIANGLE, torch.finfo(torch.float32).min), True),
    ],
)
def test_a_mask_that_says_nothing_else_becomes_a_flag(mask, is_causal):
    """The values stay."""
    model = Attention(mask).eval()
    assert masks_read(model) == (None, is_causal)
    x = torch.randn(2, 3, LENGTH, 4)
    torch.testing.assert_close(run_compiled(model, x), model(x))


@pytest.mark.parametrize(
    "mask",
    [
        TRIANGLE.roll(1, 0),
        added(TRIANGLE, -100.0),
        torch.stack([TRIANGLE, TRIANGLE.T])[:, None],
        torch.ones(LENGTH, LENGTH).tril(),
        torch.full((LENGTH, LENGTH), math.nan),
    ],
)
def test_another_mask_stays(mask):
    """What is added counts."""
    model = Attention(mask).eval()
    assert masks_read(model)[0] is not None
    x = torch.randn(2, 3, LENGTH, 4)
    torch.testing.assert_close(run_compiled(model, x), model(x), equal_nan=True)


def test_a_mask_that_the_model_writes_to_stays():
    """Its value is another at the next call."""
    model = Attention(torch.ones(LENGTH, LENGTH, dtype=torch.bool), write=True).eval()
    x = torch.randn(2, 3, LENGTH, 4)
    compiled = torchtrt.compile(copy.deepcopy(model), [x], min_block_size=1)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), model(x))


def test_a_mask_that_new_weights_may_replace_stays():
    """An engine whose weights can be replaced reads them."""
    model = Attention(torch.ones(LENGTH, LENGTH, dtype=torch.bool)).eval()
    assert masks_read(model, immutable_weights=False)[0] is not None


def test_a_mask_that_is_expanded_to_a_varying_batch_is_none():
    """It is no constant, and hides as little."""

    class Expanded(torch.nn.Module):
        def forward(self, x):
            mask = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool).expand(x.shape[0], -1, -1, -1)
            return F.scaled_dot_product_attention(x, x * 2, x - 1, attn_mask=mask)

    batch = torchtrt.Input(
        min_shape=(1, 3, LENGTH, 4), opt_shape=(2, 3, LENGTH, 4), max_shape=(6, 3, LENGTH, 4)
    )
    model = Expanded().eval()
    assert masks_read(model, [batch])[0] is None
    compiled = torchtrt.compile(model, [batch], require_full_compilation=True)
    for size in (1, 2, 6):
        x = torch.randn(size, 3, LENGTH, 4)
        torch.testing.assert_close(compiled(x), model(x))
    varying = torchtrt.Input(min_shape=(1, 3, 2, 4), opt_shape=(2, 3, 5, 4), max_shape=(6, 3, 9, 4))
    sizes = torchtrt.compile(Attention(TRIANGLE[:1, :1]).eval(), [varying], min_block_size=1)
    x = torch.randn(3, 3, 7, 4)
    torch.testing.assert_close(sizes(x), Attention(TRIANGLE[:1, :1])(x))
