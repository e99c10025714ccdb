"""Sizes of views and of pooling, about which PyTorch asks while it exports: no size is left out for such a question."""

import itertools

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import torchtrt
from tests.support.compiled import assert_same
from tests.support.modules import Function
from torchtrt.errors import ExportError

POOLING = {
    "whole-windows": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "last-window-in-the-padding": lambda x: F.max_pool2d(x, 3, 3, 1, ceil_mode=True),
    "dilated": lambda x: F.max_pool2d(x, 2, 3, 1, dilation=2, ceil_mode=True),
    "average": lambda x: F.avg_pool2d(x, (2, 3), (3, 2), (1, 0), ceil_mode=True),
    "one-dimension": lambda x: F.max_pool1d(x.flatten(1, 2), 2, 3, ceil_mode=True),
}


@pytest.mark.parametrize("name", POOLING)
def test_pooling_that_rounds_up_takes_every_size(version, name):
    """PyTorch compares the last window with the padding, which chose every second or third size."""
    del version
    model = Function(POOLING[name]).eval()
    sizes = {2: Dim("height", min=6, max=13), 3: Dim("width", min=6, max=13)}
    compiled = torchtrt.compile(
        model, (torch.rand(1, 2, 8, 9),), dynamic_shapes=((sizes,),), min_block_size=1
    )

    assert [] == compiled.report.narrowed
    for height, width in itertools.product((6, 7, 8, 11, 13), (6, 9, 10, 12)):
        assert_same(compiled, model, torch.randn(1, 2, height, width))


def test_a_view_takes_a_batch_of_one_beside_named_dimensions():
    """PyTorch asks whether five rows are a multiple of two, and takes the answer for a guard on the batch."""
    model = Function(lambda x: x.view(-1, 25)).eval()
    compiled = torchtrt.compile(
        model,
        (torch.rand(5, 5, 10),),
        dynamic_shapes=(({0: Dim("batch", min=1, max=8)},),),
        min_block_size=1,
    )

    for batch in (1, 2, 7, 8):
        assert_same(compiled, model, torch.rand(batch, 5, 10))


def test_a_decoder_takes_a_batch_of_one():
    """Its attention reads views of the batch, and masks are filled in place before they are expanded."""
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    model = nn.TransformerDecoder(layer, 1).eval()
    batch, length = Dim("batch", min=1, max=4), Dim("length", min=2, max=9)
    compiled = torchtrt.compile(
        model,
        (torch.rand(2, 5, 8), torch.rand(2, 6, 8)),
        dynamic_shapes=({0: batch, 1: length}, {0: batch}),
        min_block_size=1,
    )

    assert [] == compiled.report.narrowed
    for size in (1, 3):
        assert_same(compiled, model, torch.rand(size, 4, 8), torch.rand(size, 6, 8))


def test_a_view_that_does_not_fit_is_still_an_error():
    """The sizes of a view are checked as before."""
    with pytest.raises(ExportError, match="invalid for input of size"):
        torchtrt.compile(
            Function(lambda x: x.view(x.shape[0], 7)).eval(),
            (torch.rand(2, 6),),
            dynamic_shapes=(({0: Dim("batch", min=1, max=8)},),),
        )
