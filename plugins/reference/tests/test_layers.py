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
    total = n.net.add_reduce(only(taken), n.trt.ReduceOperation.SUM, 1, False)
    values, result = n.run(only(taken), only(total))
    assert values.tolist() == [1, 2, 3]
    assert result == 6


def test_the_shape_of_a_result_of_data_is_no_shape_for_8_6(version: str, bench: Any) -> None:
    """The Shape layer takes what NonZero makes from TensorRT 10 on."""
    n = bench(version)
    found = only(n.net.add_non_zero(n.input(torch.tensor([[1.0, 0, 2], [0, 3, 0]]))))
    shape = only(n.net.add_shape(found))
    if version == "8.6.0":
        assert n.plan(shape) is None
        assert "depend on data" in n.errors[-1]
    else:
        assert n.run(shape)[0].tolist() == [2, 3]


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


def test_a_recurrence_may_take_a_value_from_outside_of_the_loop(version: str, bench: Any) -> None:
    """One that is computed by layers which were added after the loop, and which nothing inside reads."""
    n = bench(version)
    loop = n.net.add_loop()
    loop.add_trip_limit(n.const(3, np.int32), n.trt.TripLimit.COUNT)
    start = n.input(torch.tensor(1.0))
    carried = loop.add_recurrence(start)
    output = loop.add_loop_output(only(carried), n.trt.LoopOutput.LAST_VALUE)
    outside = n.net.add_elementwise(start, n.const(5.0), n.trt.ElementWiseOperation.SUM)
    carried.set_input(1, only(outside))
    (result,) = n.run(only(output))
    assert result.item() == 6


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
    output = loop.add_loop_output(only(carried), n.trt.LoopOutput.LAST_VALUE)
    assert n.plan(only(output)) is None
    assert "trip limit" in n.errors[-1]
    loop.add_trip_limit(n.const(1, np.int32), n.trt.TripLimit.COUNT)
    assert n.plan() is None
    assert "next value" in n.errors[-1]
    following = only(n.net.add_unary(only(carried), n.trt.UnaryOperation.EXP))
    carried.set_input(1, following)
    n.net.unmark_output(only(output))
    only(output).name = "unmarked"
    assert n.plan(following) is None
    assert "through a loop output" in n.errors[-1]


@pytest.mark.parametrize("mistake", ["another tensor", "two counts"])
def test_a_loop_with_a_mistake_at_its_boundary_does_not_build(
    version: str, bench: Any, mistake: str
) -> None:
    """LAST_VALUE takes a recurrence, and there is one limit of each kind; both are found out by the build."""
    n = bench(version)
    loop = n.net.add_loop()
    start = n.input(torch.tensor(0.0))
    for _ in range(2 if mistake == "two counts" else 1):
        assert loop.add_trip_limit(n.const(1, np.int32), n.trt.TripLimit.COUNT) is not None
    carried = loop.add_recurrence(start)
    carried.set_input(1, only(n.net.add_unary(only(carried), n.trt.UnaryOperation.EXP)))
    last = start if mistake == "another tensor" else only(carried)
    output = loop.add_loop_output(last, n.trt.LoopOutput.LAST_VALUE)
    assert n.plan(only(output)) is None
    wanted = "recurrence of the same loop" if mistake == "another tensor" else "one of each kind"
    assert wanted in n.errors[-1]


def test_an_assertion_about_a_shape_fails_when_the_shape_is_known(version: str, bench: Any) -> None:
    """What a shape decides fails when the shape is known."""
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
    context = n.context()
    context.set_input_shape("i0", (1, 3))
    with pytest.raises(RuntimeError, match="two rows are wanted"):
        context.infer_shapes()


def test_what_is_provably_false_does_not_build(version: str, bench: Any) -> None:
    """An assertion of a constant, or of a static size, is checked by the build."""
    n = bench(version)
    n.net.add_assertion(n.const(False, np.bool_), "never")
    output = only(n.net.add_unary(n.input(rand(2)), n.trt.UnaryOperation.EXP))
    assert n.plan(output) is None
    assert "never" in n.errors[-1]


def test_the_ends_of_a_profile_need_not_fit_together(version: str, bench: Any) -> None:
    """The optimum shapes decide about the build; each set of shapes is checked when it is used."""
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
        "FP4": [*magnitudes, *(-each for each in magnitudes)],
    }
    for kind, values in wanted.items():
        n = bench(new)
        data = only(_block_scaled(n, kind, packed, torch.tensor([[1.0, 2.0]])))
        added = n.net.add_elementwise(
            data, n.input(torch.zeros(1, 16)), n.trt.ElementWiseOperation.SUM
        )
        (result,) = n.run(only(added))
        assert values[:8] + [2 * each for each in values[8:]] == result[0].tolist()


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
    layer.set_gated_weights(*[n.const(each) for each in (gate, up, down)], n.trt.MoEActType.SILU)
    if biased:
        layer.set_gated_biases(*[n.const(each) for each in biases])
    expected = torch.zeros_like(hidden)
    zero = [torch.zeros_like(each) for each in biases]
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
    join = torch.cat if packed_keys else lambda each: torch.stack(each).transpose(1, 2).contiguous()
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
    """Every sequence writes its own number of rows where it says."""
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


def test_what_only_a_branch_needs_is_inside_the_conditional(version: str, bench: Any) -> None:
    """Two outputs, and a conditional in a branch of the other: the engine has no unary layer outside."""
    n = bench(version)
    x, choice = n.input(rand(2, 3)), n.input(torch.tensor(True))
    outer, inner = n.net.add_if_conditional(), n.net.add_if_conditional()
    outer.set_condition(choice)
    inside = only(outer.add_input(x))
    exp = only(n.net.add_unary(inside, n.trt.UnaryOperation.EXP))
    neg = only(n.net.add_unary(inside, n.trt.UnaryOperation.NEG))
    inner.set_condition(n.input(torch.tensor(False)))
    deeper = only(inner.add_input(exp))
    root = only(n.net.add_unary(deeper, n.trt.UnaryOperation.SQRT))
    nested = only(inner.add_output(root, only(n.net.add_unary(deeper, n.trt.UnaryOperation.LOG))))
    first = only(outer.add_output(nested, neg))
    second = only(outer.add_output(exp, only(n.net.add_unary(neg, n.trt.UnaryOperation.ABS))))
    plan = n.plan(first, second)
    assert plan is not None, n.errors
    outside = set(layer_names(n, plan))
    assert not any("Unary" in name for name in outside)
    assert sum("Output" in name for name in outside) == 1


def test_a_conditional_in_a_loop_decides_anew_in_every_iteration(version: str, bench: Any) -> None:
    """Halve what is even, otherwise three times it plus one: 6, 3, 10, 5, 16."""
    n = bench(version)
    trt, kind = n.trt, n.trt.ElementWiseOperation

    def computed(a: Any, op: Any, b: float) -> Any:
        return only(n.net.add_elementwise(a, n.const(b), op))

    loop = n.net.add_loop()
    loop.add_trip_limit(n.const(4, np.int32), trt.TripLimit.COUNT)
    carried = loop.add_recurrence(n.input(torch.tensor(6.0)))
    value = only(carried)
    whole = computed(computed(value, kind.FLOOR_DIV, 2.0), kind.PROD, 2.0)
    made = n.net.add_if_conditional()
    made.set_condition(only(n.net.add_elementwise(value, whole, kind.EQUAL)))
    inside = only(made.add_input(value))
    odd = computed(computed(inside, kind.PROD, 3.0), kind.SUM, 1.0)
    carried.set_input(1, only(made.add_output(computed(inside, kind.DIV, 2.0), odd)))
    (result,) = n.run(only(loop.add_loop_output(value, trt.LoopOutput.LAST_VALUE)))
    assert result == 16


def layer_names(n: Any, plan: bytes) -> list[str]:
    """The names of an engine's layers, without those inside of branches and loops."""
    engine = n.trt.Runtime(n.logger).deserialize_cuda_engine(plan)
    inspector, form = engine.create_engine_inspector(), n.trt.LayerInformationFormat.ONELINE
    return [inspector.get_layer_information(i, form) for i in range(engine.num_layers)]


@pytest.mark.parametrize("taken", [True, False])
def test_both_branches_of_a_conditional_give_their_values(
    version: str, taken: bool, bench: Any
) -> None:
    """What the branches share is computed before; a tensor from outside may be a result."""
    n = bench(version)
    values = rand(2, 3)
    x, made = n.input(values), n.net.add_if_conditional()
    made.set_condition(n.input(torch.tensor(taken)))
    inside = only(made.add_input(x))
    shared = only(n.net.add_unary(inside, n.trt.UnaryOperation.EXP))
    first = only(made.add_output(only(n.net.add_unary(shared, n.trt.UnaryOperation.LOG)), shared))
    second = only(made.add_output(shared, x))
    results = n.run(first, second)
    torch.testing.assert_close(results[0], values if taken else values.exp())
    torch.testing.assert_close(results[1], values.exp() if taken else values)


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
