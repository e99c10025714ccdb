"""Layers that TensorRT 8.6 lacks or was not watched on, and rules that hold in every version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

NEWER = ["10.16.1", "11.4.0"]


def rand(*shape: int) -> torch.Tensor:
    """Reproducible random numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def only(layer: Any) -> Any:
    """The first output of a layer."""
    return layer.get_output(0)


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
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_softmax_of_products(new: str, causal: bool, bench: Any) -> None:
    """There is no scaling; grouped heads are repeated; the mask is causal from the upper left."""
    n = bench(new)
    q, k, v = rand(2, 4, 3, 8), rand(2, 2, 5, 8), rand(2, 2, 5, 8)
    inputs = [n.input(each) for each in (q, k, v)]
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
    """A bool mask says what may be attended to; together with causality it is refused."""
    for kind, works in (("NONE", True), ("LOWER_RIGHT", False)):
        n = bench("11.4.0")
        q, k, mask = rand(1, 2, 3, 4), rand(1, 2, 5, 4), torch.rand(1, 1, 3, 5) > 0.3
        mask[..., 0] = True
        inputs = [n.input(each) for each in (q, k, k)]
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


def test_what_follows_a_data_dependent_shape_is_computed_at_run_time(
    version: str, bench: Any
) -> None:
    """Transposed, gathered and counted: every layer after a NonZero sees its real shape."""
    n = bench(version)
    x = torch.tensor([[1.0, 0, 2], [0, 3, 0]])
    found = only(n.net.add_non_zero(n.input(x)))
    assert found.shape == (2, -1)
    shuffle = n.net.add_shuffle(found)
    shuffle.first_transpose = (1, 0)
    taken = n.net.add_gather_v2(n.input(x), only(shuffle), n.trt.GatherMode.ND)
    count = n.net.add_shape(only(taken))
    values, length = n.run(only(taken), only(count))
    assert values.tolist() == [1, 2, 3]
    assert length.tolist() == [3]


def test_shapes_are_known_as_far_as_they_can_be(version: str, bench: Any) -> None:
    """Shape arithmetic keeps the known elements: a reshape by it has known dimensions."""
    n = bench(version)
    x = n.input(rand(2, 6, 4), (-1, 6, 4))
    shape = only(n.net.add_shape(x))
    index = only(n.net.add_constant((2,), np.array([0, 2], np.int32)))
    kept = only(n.net.add_gather(shape, index, 0))
    doubled = only(n.net.add_elementwise(kept, kept, n.trt.ElementWiseOperation.SUM))
    fill = n.net.add_slice(x, (0, 0, 0), (0, 0, 0), (1, 1, 1))
    fill.mode = n.trt.SampleMode.WRAP
    one = only(n.net.add_slice(shape, (1,), (1,), (1,)))
    joined = n.net.add_concatenation([doubled, one])
    joined.axis = 0
    fill.set_input(2, only(joined))
    assert only(fill).shape == (-1, 8, 6)
    (result,) = n.run(only(fill))
    assert result.shape == (4, 8, 6)


def test_a_loop_ends_when_its_condition_is_false(version: str, bench: Any) -> None:
    """A WHILE limit is tested before each iteration."""
    n = bench(version)
    loop = n.net.add_loop()
    carried = loop.add_recurrence(n.input(torch.tensor(1.0)))
    value = only(carried)
    going = n.net.add_elementwise(value, n.const(20.0), n.trt.ElementWiseOperation.LESS)
    loop.add_trip_limit(only(going), n.trt.TripLimit.WHILE)
    carried.set_input(1, only(n.net.add_elementwise(value, value, n.trt.ElementWiseOperation.SUM)))
    (result,) = n.run(only(loop.add_loop_output(value, n.trt.LoopOutput.LAST_VALUE)))
    assert result.item() == 32


def test_loops_nest(version: str, bench: Any) -> None:
    """An inner loop runs in every iteration of the outer one."""
    n = bench(version)
    add, count = n.trt.ElementWiseOperation.SUM, n.trt.TripLimit.COUNT
    outer = n.net.add_loop()
    outer.add_trip_limit(n.const(3, np.int32), count)
    total = outer.add_recurrence(n.input(torch.tensor(0.0)))
    inner = n.net.add_loop()
    inner.add_trip_limit(n.const(4, np.int32), count)
    part = inner.add_recurrence(only(total))
    part.set_input(1, only(n.net.add_elementwise(only(part), n.const(1.0), add)))
    end = only(inner.add_loop_output(only(part), n.trt.LoopOutput.LAST_VALUE))
    total.set_input(1, end)
    (result,) = n.run(only(outer.add_loop_output(only(total), n.trt.LoopOutput.LAST_VALUE)))
    assert result.item() == 12


def test_loops_are_checked(version: str, bench: Any) -> None:
    """A loop needs a limit and closed recurrences, and inner tensors stay inside."""
    n = bench(version)
    loop = n.net.add_loop()
    start = n.input(torch.tensor(0.0))
    carried = loop.add_recurrence(start)
    assert loop.add_loop_output(start, n.trt.LoopOutput.LAST_VALUE) is None
    output = loop.add_loop_output(only(carried), n.trt.LoopOutput.LAST_VALUE)
    assert n.plan(only(output)) is None
    assert "trip limit" in n.errors[-1]
    loop.add_trip_limit(n.const(1, np.int32), n.trt.TripLimit.COUNT)
    assert loop.add_trip_limit(n.const(1, np.int32), n.trt.TripLimit.COUNT) is None
    assert n.plan() is None
    assert "next value" in n.errors[-1]
    following = only(n.net.add_unary(only(carried), n.trt.UnaryOperation.EXP))
    carried.set_input(1, following)
    n.net.unmark_output(only(output))
    assert n.plan(following) is None
    assert "through a loop output only" in n.errors[-1]


def test_an_assertion_fails_the_build_or_the_run(version: str, bench: Any) -> None:
    """What is provably false does not build; what a shape decides fails when the shape is known."""
    n = bench(version)
    x = n.input(rand(2, 3), (-1, 3))
    shape = only(n.net.add_shape(x))
    first = only(n.net.add_slice(shape, (0,), (1,), (1,)))
    two = n.net.add_constant((1,), np.array([2], np.int32 if version == "8.6.0" else np.int64))
    equal = only(n.net.add_elementwise(first, only(two), n.trt.ElementWiseOperation.EQUAL))
    n.net.add_assertion(equal, "two rows are wanted")
    n.profile.set_shape("i0", (2, 3), (2, 3), (2, 3))
    assert n.run(only(n.net.add_unary(x, n.trt.UnaryOperation.EXP)))[0].shape == (2, 3)
    n.profile.set_shape("i0", (1, 3), (1, 3), (2, 3))
    assert n.builder.build_serialized_network(n.net, n.config) is None
    assert "two rows are wanted" in n.errors[-1]


def test_the_ends_of_a_profile_need_not_fit_together(version: str, bench: Any) -> None:
    """The typical shapes decide about the build; each set of shapes is checked when it is used."""
    n = bench(version)
    output = only(
        n.net.add_elementwise(
            n.input(rand(3), (-1,)), n.input(rand(3), (-1,)), n.trt.ElementWiseOperation.SUM
        )
    )
    n.profile.set_shape("i1", (2,), (3,), (3,))
    context = n.context(output)
    assert context.get_tensor_shape("o0") == (3,)
    context.set_input_shape("i1", (2,))
    with pytest.raises(RuntimeError, match="same dimensions"):
        context.infer_shapes()


def test_integer_division_never_ends_the_process(version: str, bench: Any) -> None:
    """By zero it is -1, or -2 for a negative number rounded down; the least number by -1 is itself."""
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


def test_what_needs_special_hardware_is_refused_with_a_reason(bench: Any) -> None:
    """Mixtures of experts and collectives are not added."""
    n = bench("11.4.0")
    x = n.input(rand(1, 2, 4))
    assert n.net.add_moe(x, x, x) is None
    assert "compute capability" in n.errors[-1]
    assert (
        n.net.add_dist_collective(x, n.trt.CollectiveOperation.ALL_GATHER, None, -1, None) is None
    )
    assert "one" in n.errors[-1]


@pytest.mark.parametrize(
    ("shape", "dims", "expected"),
    [
        ((-1, 6), (0, -1), (-1, 6)),
        ((-1, 6), (0, 2, -1), (-1, 2, 3)),
        ((-1, 6), (-1, 3), (-1, 3)),
        ((-1, 6), (-1,), (-1,)),
        ((-1, -1, 6), (0, 0, 3, -1), (-1, -1, 3, 2)),
        ((-1, -1, 6), (0, -1), (-1, -1)),
    ],
)
def test_a_reshape_knows_what_copied_dimensions_leave(
    version: str, shape: Any, dims: Any, expected: Any, bench: Any
) -> None:
    """Unknown lengths that are copied cancel, so the inferred dimension is known; others stay unknown."""
    n = bench(version)
    shuffle = n.net.add_shuffle(
        n.input(rand(*(2 if size == -1 else size for size in shape)), shape)
    )
    shuffle.reshape_dims = dims
    assert only(shuffle).shape == expected


def test_an_unknown_length_that_is_not_copied_leaves_the_rest_unknown(
    version: str, bench: Any
) -> None:
    """A shape tensor may hold another number than the dimension it stands next to."""
    n = bench(version)
    x, other = n.input(rand(2, 6), (-1, 6)), n.input(rand(4), (-1,))
    length = only(n.net.add_shape(other))
    one = only(n.net.add_slice(only(n.net.add_shape(x)), (1,), (1,), (1,)))
    rest = only(n.net.add_elementwise(one, one, n.trt.ElementWiseOperation.SUB))
    minus = only(
        n.net.add_elementwise(
            rest, only(n.net.add_shape(n.input(rand(1)))), n.trt.ElementWiseOperation.SUB
        )
    )
    dims = n.net.add_concatenation([length, minus])
    dims.axis = 0
    shuffle = n.net.add_shuffle(x)
    shuffle.set_input(1, only(dims))
    assert only(shuffle).shape == (-1, -1)
    (result,) = n.run(only(shuffle))
    assert result.shape == (4, 3)
