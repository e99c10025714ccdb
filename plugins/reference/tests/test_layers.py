"""Layers that TensorRT 8.6 lacks or was not watched on, and rules that hold in every version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from plugins.reference.tests.layers import NEWER, only, rand


@pytest.mark.parametrize("new", NEWER)
def test_strong_typing_casts_nothing(new: str, bench: Any) -> None:
    """float16 next to float32 is refused, the message says to cast, and types cannot be set."""
    n = bench(new)
    x, y = n.input(torch.ones(2)), n.input(torch.ones(2).half())
    layer = n.net.add_elementwise(x, y, n.trt.ElementWiseOperation.SUM)
    with pytest.raises(ValueError, match="invalid"):
        len(only(layer).shape)
    assert "add a cast" in n.errors[-1]
    assert n.plan(only(layer)) is None


def test_weak_typing_on_10_mixes_floats(bench: Any) -> None:
    """Without the STRONGLY_TYPED flag float16 and float32 mix, and the result is float32."""
    n = bench("10.16.1", ())
    x, y = n.input(torch.ones(2)), n.input(torch.ones(2).half())
    (result,) = n.run(only(n.net.add_elementwise(x, y, n.trt.ElementWiseOperation.SUM)))
    torch.testing.assert_close(result, torch.full((2,), 2.0))


@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.int32])
def test_strong_types_reach_the_output(new: str, dtype: torch.dtype, bench: Any) -> None:
    """A sum has the type of its operands."""
    n = bench(new)
    x = n.input(torch.tensor([1, 2, 3], dtype=dtype))
    (result,) = n.run(only(n.net.add_elementwise(x, x, n.trt.ElementWiseOperation.SUM)))
    torch.testing.assert_close(result, torch.tensor([2, 4, 6], dtype=dtype))


@pytest.mark.parametrize("new", NEWER)
def test_int64_reductions_are_exact(new: str, bench: Any) -> None:
    """From version 10 on integers are not reduced through float32."""
    n = bench(new)
    x = n.input(torch.tensor([2**40 + 1, 2]))
    (result,) = n.run(only(n.net.add_reduce(x, n.trt.ReduceOperation.SUM, 1, False)))
    assert result.item() == 2**40 + 3


@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize(
    ("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_cumulative_sums(new: str, exclusive: bool, reverse: bool, bench: Any) -> None:
    """Exclusive sums leave the element out; reverse sums start at the end."""
    n = bench(new)
    x = torch.tensor([[1, 2, 3]])
    axis = n.const(-1, np.int32)
    operation = n.trt.CumulativeOperation.SUM
    (result,) = n.run(only(n.net.add_cumulative(n.input(x), axis, operation, exclusive, reverse)))
    expected = {(0, 0): [1, 3, 6], (1, 0): [0, 1, 3], (0, 1): [6, 5, 3], (1, 1): [5, 3, 0]}[
        exclusive, reverse
    ]
    assert result.tolist() == [expected]


@pytest.mark.parametrize("new", NEWER)
def test_squeeze_and_unsqueeze_take_constant_axes(new: str, bench: Any) -> None:
    """Negative axes count from the end; a dimension that is not 1 cannot be squeezed."""
    n = bench(new)
    x = n.input(rand(1, 3, 1))
    squeezed = only(n.net.add_squeeze(x, n.const([-1], np.int32)))
    assert squeezed.shape == (1, 3)
    assert only(n.net.add_unsqueeze(squeezed, n.const([0, -1], np.int64))).shape == (1, 1, 3, 1)
    refused = only(n.net.add_squeeze(x, n.const([1], np.int32)))
    with pytest.raises(ValueError, match="invalid"):
        len(refused.shape)
    assert "cannot be squeezed" in n.errors[-1]


def test_squeeze_without_axes_is_new_in_11_4(bench: Any) -> None:
    """All dimensions of length 1 go; before, the axes were mandatory."""
    n = bench("11.4.0")
    assert only(n.net.add_squeeze(n.input(rand(1, 3, 1)))).shape == (3,)
    older = bench("10.16.1")
    with pytest.raises(TypeError, match="missing"):
        older.net.add_squeeze(older.input(rand(1, 3, 1)))


def test_nms_keeps_the_best_of_overlapping_boxes(version: str, bench: Any) -> None:
    """Results are (batch, class, box), sorted by score; the count comes with them."""
    n = bench(version)
    boxes = torch.tensor([[[0.0, 0, 2, 2], [0, 0, 2, 1.9], [4, 4, 5, 5]]])
    scores = torch.tensor([[[0.8], [0.9], [0.3]]])
    layer = n.net.add_nms(n.input(boxes), n.input(scores), n.const(10, np.int32))
    layer.set_input(3, n.const(0.5))
    layer.set_input(4, n.const(0.1))
    indices, count = n.run(only(layer), layer.get_output(1))
    assert indices.tolist() == [[0, 0, 1], [0, 0, 2]]
    assert count.item() == 2


def test_integer_division_never_ends_the_process(version: str, bench: Any) -> None:
    """By zero it is -1, or -2 for a negative number rounded down; the minimum integer by -1 is itself."""
    n = bench(version)
    a = n.input(torch.tensor([5, -5, -(2**31), 7], dtype=torch.int32))
    b = n.input(torch.tensor([0, 0, -1, -2], dtype=torch.int32))
    kind = n.trt.ElementWiseOperation
    results = n.run(*[only(n.net.add_elementwise(a, b, op)) for op in (kind.DIV, kind.FLOOR_DIV)])
    assert [result.tolist() for result in results] == [
        [-1, -1, -(2**31), -3],
        [-1, -2, -(2**31), -4],
    ]


def test_errors_name_the_layer_and_the_rule(version: str, bench: Any) -> None:
    """The message starts with the layer's own name."""
    n = bench(version)
    layer = n.net.add_elementwise(
        n.input(rand(2, 3)), n.input(rand(3)), n.trt.ElementWiseOperation.SUM
    )
    layer.name = "my sum"
    assert n.plan(only(layer)) is None
    assert n.errors[-1].startswith(
        "Error Code 4: Internal Error (my sum: elementwise inputs must have the same rank"
    )


def test_an_attribute_changes_what_follows(version: str, bench: Any) -> None:
    """Shapes that were read before are inferred again."""
    n = bench(version)
    softmax = n.net.add_softmax(n.input(rand(2, 3)))
    concatenation = n.net.add_concatenation([only(softmax), only(softmax)])
    result = only(n.net.add_unary(only(concatenation), n.trt.UnaryOperation.EXP))
    assert result.shape == (4, 3)
    concatenation.axis = 1
    assert result.shape == (2, 6)


def test_static_attributes_and_tensors_take_each_others_place(version: str, bench: Any) -> None:
    """Setting reshape dimensions drops the shape tensor; unset ones read as the version shows them."""
    n = bench(version)
    shuffle = n.net.add_shuffle(n.input(rand(2, 3)))
    unset = shuffle.reshape_dims
    if version == "11.4.0":
        assert unset is None
    else:
        with pytest.raises(ValueError, match="invalid"):
            len(unset)
    shuffle.set_input(1, n.const([3, 2], np.int32))
    assert shuffle.num_inputs == 2
    assert only(shuffle).shape == (3, 2)
    shuffle.reshape_dims = (6,)
    assert shuffle.num_inputs == 1
    assert only(shuffle).shape == (6,)


def test_a_permutation_that_is_changed_permutes_as_it_shows(version: str, bench: Any) -> None:
    """Entries that are set later count like those of its beginning."""
    n = bench(version)
    x = rand(2, 3)
    shuffle = n.net.add_shuffle(n.input(x))
    order = n.trt.Permutation([0])
    order[0], order[1] = 1, 0
    shuffle.first_transpose = order

    assert only(shuffle).shape == (3, 2)
    (result,) = n.run(only(shuffle))
    torch.testing.assert_close(result, x.mT)


def test_convolutions_agree_with_pytorch(version: str, bench: Any) -> None:
    """Stride, dilation, groups, uneven padding and bias."""
    n = bench(version)
    x, kernel, bias = rand(2, 4, 9, 8), rand(6, 2, 3, 2), rand(6)
    layer = n.net.add_convolution_nd(
        n.input(x), 6, (3, 2), n.trt.Weights(kernel.numpy()), n.trt.Weights(bias.numpy())
    )
    layer.stride_nd, layer.dilation_nd, layer.num_groups = (2, 1), (1, 2), 2
    layer.pre_padding, layer.post_padding = (1, 0), (2, 1)
    (result,) = n.run(only(layer))
    padded = torch.nn.functional.pad(x, (0, 1, 1, 2))
    expected = torch.nn.functional.conv2d(padded, kernel, bias, (2, 1), 0, (1, 2), 2)
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("new", NEWER)
def test_fills_have_the_type_they_are_asked_for(new: str, bench: Any) -> None:
    """int64 ranges, and random numbers that differ from run to run."""
    n = bench(new)
    line = n.net.add_fill((3,), n.trt.FillOperation.LINSPACE, n.trt.int64)
    line.alpha, line.beta = 2, 5
    assert line.is_alpha_beta_int64()
    noise = n.net.add_fill((1000,), n.trt.FillOperation.RANDOM_UNIFORM, n.trt.float32)
    noise.alpha, noise.beta = -1.0, 3.0
    values, random = n.run(only(line), only(noise))
    assert values.tolist() == [2, 7, 12]
    assert -1 <= random.min() < random.max() <= 3
    assert abs(random.mean() - 1) < 0.3


COLLECTIVES = {
    "ALL_REDUCE": ("SUM", -1),
    "ALL_GATHER": ("NONE", -1),
    "BROADCAST": ("NONE", 0),
    "REDUCE": ("AVG", 0),
    "REDUCE_SCATTER": ("MAX", -1),
}


@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("groups", [None, [], [0]])
def test_one_process_exchanges_nothing(new: str, name: str, groups: Any, bench: Any) -> None:
    """Every collective among one process gives back what it got."""
    n = bench(new)
    x, (reduction, root) = rand(2, 3), COLLECTIVES[name]
    kind, op = getattr(n.trt.CollectiveOperation, name), getattr(n.trt.ReduceOperation, reduction)
    (result,) = n.run(only(n.net.add_dist_collective(n.input(x), kind, op, root, groups)))
    torch.testing.assert_close(result, x)


def test_volumes_are_sampled_on_11(bench: Any) -> None:
    """GridSample takes rank 5 there, by nearest and linear interpolation."""
    n = bench("11.4.0")
    volume, grid = rand(1, 2, 3, 4, 5), rand(1, 2, 2, 2, 3).clamp(-1, 1)
    layer = n.net.add_grid_sample(n.input(volume), n.input(grid))
    layer.sample_mode = n.trt.SampleMode.CLAMP
    (result,) = n.run(only(layer))
    expected = torch.nn.functional.grid_sample(
        volume, grid, padding_mode="border", align_corners=False
    )
    torch.testing.assert_close(result, expected)
