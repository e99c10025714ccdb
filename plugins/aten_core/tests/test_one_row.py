"""A batch of products with one row each is computed as its transpose where TensorRT may compute it wrongly."""

import math

import pytest
import torch
import torch.nn.functional as F

import torchtrt
from torchtrt.tensorrt import Capability, supports

HEADS, WIDTH = 3, 16


def attention(query, key, value, mask):
    """Returns PyTorch's attention."""
    return F.scaled_dot_product_attention(query, key, value, mask)


def written(query, key, value, mask):
    """Returns attention as models write it, with a reduction that reads the mask."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH) + mask
    seen = mask.amax(-1, keepdim=True) > -math.inf
    return torch.where(seen, scores.clamp(min=-1e4).softmax(-1) @ value, 0.0)


class Model(torch.nn.Module):
    """Computes one of these functions."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def inputs(queries, keys, dtype):
    """Returns a query, keys, values and a mask in which the first sequence sees nothing."""
    shapes = ((2, HEADS, queries, WIDTH), *[(2, HEADS, keys, WIDTH)] * 2, (2, 1, queries, keys))
    *tensors, mask = (torch.randn(shape).to(dtype) for shape in shapes)
    mask[0] = -math.inf
    return *tensors, mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 7), (2, 7)])
@pytest.mark.parametrize("function", [attention, written])
def test_attention_of_few_queries_equals_eager(function, queries, keys, dtype, version):
    """One query and one key are the extremes."""
    model, tensors = Model(function).eval(), inputs(queries, keys, dtype)
    compiled = torchtrt.compile(model, tensors, require_full_compilation=True)

    torch.testing.assert_close(compiled(*tensors), model(*tensors), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("function", [attention, written])
def test_no_product_for_scores_has_one_row_on_a_weakly_typed_tensorrt(function, layers, version):
    """TensorRT 8.6 computes such scores wrongly; other versions get the product as the model has it."""
    prefer = {"aten.scaled_dot_product_attention.default": "aten_core"}
    settings = {"converter_preferences": prefer} if function is not written else {}
    torchtrt.compile(
        Model(function).eval(), inputs(1, 7, torch.float32), min_block_size=1, **settings
    )
    products = [layer for layer in layers if layer.type.name == "MATRIX_MULTIPLY"]
    scores = next(product.get_output(0) for product in products)

    assert tuple(scores.shape)[-2:] == (
        (1, 7) if supports(Capability.SINGLE_ROW_PRODUCTS) else (7, 1)
    )
