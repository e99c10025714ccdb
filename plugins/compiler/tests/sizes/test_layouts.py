"""Tensors that are contiguous for some sizes only, as a slice is that is all of its tensor for the optimal sizes."""

import itertools

import pytest
import torch
from torch.nn import functional as F

import torchtrt
from tests.support.compiled import accepted_calls
from tests.support.modules import Function

pytestmark = pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")

SLICES = {
    "elementwise": lambda x, n: x[:, :n] * 2,
    "clone": lambda x, n: x[:, :n].clone() + 1,
    "matmul": lambda x, n: x[:, :n] @ x[:, :n].t(),
    "softmax": lambda x, n: x[:, :n].softmax(1),
    "concatenation": lambda x, n: torch.cat([x[:, :n], x[:, :n] * 2], 1),
    "stride": lambda x, n: x[:, :n] * x[:, :n].stride(0),
}
VIEWS = {
    "contiguous": lambda x, n: x[:, :n].contiguous() + 1,
    "reshape": lambda x, n: x[:, :n].reshape(-1) * 2,
    "flatten": lambda x, n: x[:, :n].flatten() * 2,
    "in-place": lambda x, n: ((y := x.clone()), y[:, :n].mul_(2), y)[-1],
    "write-through-reshape": lambda x, n: ((y := x * 1), y[:, :n].reshape(-1).mul_(2), y)[-1],
    "write-through-contiguous": lambda x, n: ((y := x * 1), y[:, :n].contiguous().mul_(2), y)[-1],
    "write-to-an-input": lambda x, n: x[:, :n].contiguous().mul_(2),
    "write-to-the-source": lambda x, n: ((v := x[:, :n].contiguous()), x.add_(1), v * 1)[-1],
    "settled-later": lambda x, n: (
        (y := x * 1),
        y[:, :n].contiguous().add_(1),
        y + torch.arange(n),
    )[-1],
    "reshape-to-the-same": lambda x, n: ((y := x[:, :n] * 1), y.t().reshape(y.shape).add_(1), y)[
        -1
    ],
    "identity": lambda x, n: x + (1 if (a := x[:, :n]).contiguous() is a else 2),
    "aten": lambda x, n: x[:, :n] * 2 + (1 if torch.ops.aten.is_contiguous(x[:, :n]) else 2),
}
_SIZES = range(1, 8)


def _compiled(function, optimal=4):
    """Returns a model of a slice as long as another input, and what it is compiled to: for equal optimal sizes."""
    sizes = torchtrt.Input(min_shape=(2, 1), opt_shape=(2, optimal), max_shape=(2, 7))
    model = Function(lambda x, y: function(x, y.shape[1])).eval()
    return model, torchtrt.compile(model, (sizes, sizes), min_block_size=1)


def _accepted(model, compiled):
    """Returns the pairs of sizes that are accepted, whose results are those of the model, inputs included."""
    pairs = itertools.product(_SIZES, _SIZES)
    calls = ((torch.rand(2, whole), torch.rand(2, part)) for whole, part in pairs)
    return [(x.shape[1], y.shape[1]) for x, y in accepted_calls(compiled, model, calls)]


@pytest.mark.parametrize("name", SLICES)
def test_a_slice_that_may_be_all_of_a_tensor_takes_each_length(name):
    """PyTorch asks whether the slice is contiguous, and took the lengths of both inputs for equal ones."""
    accepted = _accepted(*_compiled(SLICES[name]))

    assert accepted == [pair for pair in itertools.product(_SIZES, _SIZES) if pair[1] <= pair[0]]


@pytest.mark.parametrize("name", VIEWS)
def test_what_asks_for_a_contiguous_slice_is_compiled_as_for_the_optimal_sizes(name):
    """A view and a copy are two programs, where something is written or the model's code asks."""
    model, compiled = _compiled(VIEWS[name])
    accepted = _accepted(model, compiled)

    assert {(size, size) for size in _SIZES if size > 2} <= {*accepted}
    if len(accepted) < 28:
        assert compiled.report.narrowed


@pytest.mark.parametrize("optimal", [4, 7])
def test_a_model_that_asks_for_contiguous_tensors_gets_the_answer_for_all_sizes(optimal):
    """PyTorch knows the answer for the sizes of the example, and does not ask again."""

    def scaled(x, n):
        doubled = x[:, :n] * 2  # which had PyTorch ask for the same slice
        if x[:, :n].is_contiguous():
            return doubled
        return doubled + 1

    model, compiled = _compiled(scaled, optimal)

    assert _accepted(model, compiled) == [(size, size) for size in _SIZES]
    (row,) = compiled.report.narrowed
    assert row.condition == "inputs_0.shape[1] == inputs_1.shape[1]"
    assert "in scaled" in row.model_line


def test_channels_last_is_asked_for_by_all_sizes():
    """The order of the dimensions in memory is part of the question."""
    image = torchtrt.Input(min_shape=(1, 2, 2, 1), opt_shape=(1, 2, 4, 4), max_shape=(1, 2, 6, 6))

    def forward(x):
        x = x.to(memory_format=torch.channels_last)[:, :, :, : x.shape[2]]
        return x + (1 if x.is_contiguous(memory_format=torch.channels_last) else 2)

    model = Function(forward).eval()
    compiled = torchtrt.compile(model, (image,), min_block_size=1)

    sizes = itertools.product(range(2, 7), range(1, 7))
    calls = ((torch.rand(1, 2, height, width),) for height, width in sizes)
    assert accepted_calls(compiled, model, calls)


def test_windows_of_a_padded_image_take_each_size():
    """For a multiple of the window, nothing is padded, and the result that is cropped is all of its tensor."""

    def attend(x):
        height, width = x.shape[1:3]
        padded = F.pad(x, (0, 0, 0, -width % 4, 0, -height % 4))
        rows, columns = padded.shape[1] // 4, padded.shape[2] // 4
        windows = (
            padded.view(1, rows, 4, columns, 4, 2).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 2)
        )
        windows = F.scaled_dot_product_attention(windows, windows, windows)
        windows = windows.view(1, rows, columns, 4, 4, 2).permute(0, 1, 3, 2, 4, 5)
        return windows.reshape(1, 4 * rows, 4 * columns, 2)[:, :height, :width]

    model = Function(attend).eval()
    image = torchtrt.Input(min_shape=(1, 1, 1, 2), opt_shape=(1, 8, 8, 2), max_shape=(1, 12, 12, 2))
    compiled = torchtrt.compile(model, (image,), min_block_size=1)

    assert [] == compiled.report.narrowed
    for height, width in itertools.product((1, 3, 4, 8, 9, 12), (1, 2, 4, 7, 12)):
        x = torch.rand(1, height, width, 2)
        torch.testing.assert_close(compiled(x), model(x))
