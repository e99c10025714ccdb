"""What TensorRT takes back or refuses although it is well-formed: setters, types, names, shape tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

NAN, INF = torch.nan, torch.inf


def only(layer: Any) -> Any:
    """The first output of a layer."""
    return layer.get_output(0)


def convolution(n: Any, x: Any) -> Any:
    """A 1 x 1 convolution."""
    return n.net.add_convolution_nd(x, 1, (1, 1), n.trt.Weights(np.ones(1, np.float32)))


def pooling(n: Any, x: Any) -> Any:
    """A blend of 2 x 2 windows."""
    return n.net.add_pooling_nd(x, n.trt.PoolingType.MAX_AVERAGE_BLEND, (2, 2))


SETTERS = {
    "stride": (convolution, "stride_nd", (0, 1)),
    "dilation": (convolution, "dilation_nd", (1, 0)),
    "padding": (convolution, "padding_nd", (-1, 0)),
    "pooling stride": (pooling, "stride_nd", (1, 0)),
    "pooling padding": (pooling, "pre_padding", (0, -1)),
    "blend": (pooling, "blend_factor", 1.5),
    "softmax axes": (lambda n, x: n.net.add_softmax(x), "axes", 3),
    "concatenation axis": (lambda n, x: n.net.add_concatenation([x]), "axis", -1),
}


@pytest.mark.parametrize("name", SETTERS)
def test_a_setter_that_refuses_keeps_the_old_value(version: str, name: str, bench: Any) -> None:
    """The error names the layer and the attribute, and the network builds as if nothing had been set."""
    make, attribute, value = SETTERS[name]
    n = bench(version)
    layer = make(n, n.input(torch.rand(1, 1, 3, 3)))
    before = getattr(layer, attribute)
    before = before if isinstance(before, (int, float)) else tuple(before)
    setattr(layer, attribute, value)
    after = getattr(layer, attribute)
    assert before == (after if isinstance(after, (int, float)) else tuple(after))
    assert n.errors[-1].startswith(layer.name)
    assert n.errors[-1].endswith(f"keeps its {attribute}.")
    assert n.plan(only(layer)) is not None


READERS = {
    "unary": lambda n, x, foreign: n.net.add_unary(foreign, n.trt.UnaryOperation.EXP),
    "concatenation": lambda n, x, foreign: n.net.add_concatenation([x, foreign]),
    "recurrence": lambda n, x, foreign: n.net.add_loop().add_recurrence(foreign),
    "conditional input": lambda n, x, foreign: n.net.add_if_conditional().add_input(foreign),
    "second input": lambda n, x, foreign: n.net.add_shuffle(x).set_input(1, foreign),
}


@pytest.mark.parametrize("name", READERS)
def test_a_network_refuses_the_tensor_of_another(version: str, name: str, bench: Any) -> None:
    """As TensorRT does, in each method that reads a tensor."""
    n, other = bench(version), bench(version)
    foreign = only(other.net.add_identity(other.input(torch.ones(2))))
    x = n.input(torch.ones(2))

    assert READERS[name](n, x, foreign) is None
    assert "containsTensor" in n.errors[-1]
    assert foreign.name in n.errors[-1]
    assert n.plan(only(n.net.add_identity(x))) is not None


def test_layers_have_distinct_names(version: str, bench: Any) -> None:
    """Two layers of one name do not build, and the error says which name."""
    n = bench(version)
    x = n.input(torch.ones(2))
    for _ in range(2):
        layer = n.net.add_unary(x, n.trt.UnaryOperation.EXP)
        layer.name = "twice"
    assert n.plan(only(layer)) is None
    assert "Repeated layer name: twice" in n.errors[-1]


@pytest.mark.parametrize("which", ["an input", "inside", "an output"])
def test_tensors_have_distinct_names(version: str, which: str, bench: Any) -> None:
    """Two tensors of one name do not build, wherever they are in the network, and the error says which name."""
    n = bench(version)
    x = n.input(torch.ones(2))
    first = only(n.net.add_unary(x, n.trt.UnaryOperation.EXP))
    second = only(n.net.add_unary(first, n.trt.UnaryOperation.EXP))
    result = only(n.net.add_unary(second, n.trt.UnaryOperation.EXP))
    first.name = name = {"an input": x.name, "inside": "twice", "an output": "o0"}[which]
    if which == "inside":
        second.name = name
    assert n.plan(result) is None
    assert f"Repeated tensor name: {name} (tensors must have distinct names)" in n.errors[-1]


def test_a_scatter_is_no_shape_tensor(version: str, bench: Any) -> None:
    """A reshape by a scattered shape does not build; the scattered shape as an output does."""
    n = bench(version)
    x = n.input(torch.rand(3, 4), (-1, 4))
    shape = only(n.net.add_shape(x))
    index = n.const([0], np.int32)
    value = n.const([-1], np.int32 if version == "8.6.0" else np.int64)
    layer = n.net.add_scatter(shape, index, value, n.trt.ScatterMode.ELEMENT)
    reshaped = n.net.add_shuffle(x)
    reshaped.set_input(1, only(layer))
    assert n.plan(only(reshaped)) is None
    assert "cannot be a shape tensor" in n.errors[-1]
    n.net.unmark_output(only(reshaped))
    only(reshaped).name = "reshaped"
    assert n.run(only(layer))[0].tolist() == [-1, 4]


def test_weights_of_nothing_have_a_type_and_no_address(version: str, bench: Any) -> None:
    """An empty array is refused when the constant is added, ``Weights(dtype)`` is not."""
    n = bench(version)
    empty = n.trt.Weights(np.empty(0, np.float32))
    assert n.net.add_constant((0, 3), empty) is None
    assert "Weights(dtype)" in n.errors[-1]
    made = n.net.add_constant((0, 3), n.trt.Weights(n.trt.float32))
    assert n.run(only(n.net.add_identity(only(made))))[0].shape == (0, 3)


@pytest.mark.parametrize("weak", ["8.6.0", "10.16.1"])
@pytest.mark.parametrize("how", ["output type", "precision"])
def test_float16_in_a_weakly_typed_network_needs_its_flag(weak: str, how: str, bench: Any) -> None:
    """What a layer is asked to compute in, the builder must be allowed to use."""
    n = bench(weak, ("EXPLICIT_BATCH",))
    layer = n.net.add_unary(n.input(torch.ones(2)), n.trt.UnaryOperation.EXP)
    if how == "precision":
        layer.precision = n.trt.float16
    else:
        layer.set_output_type(0, n.trt.float16)
    assert n.plan(only(layer)) is None
    assert "set the flag FP16" in n.errors[-1]
    n.config.set_flag(n.trt.BuilderFlag.FP16)
    assert n.plan() is not None


def test_8_6_drops_a_cast_to_float16_that_nothing_requires(bench: Any) -> None:
    """There and back keeps float32's digits, unless the flag FP16 is set."""
    x = torch.tensor([2.999, 70000.0])
    for flag, expected in ((False, x), (True, x.half().float())):
        n = bench("8.6.0")
        if flag:
            n.config.set_flag(n.trt.BuilderFlag.FP16)
        half = only(n.net.add_cast(n.input(x), n.trt.float16))
        back = only(n.net.add_cast(half, n.trt.float32))
        torch.testing.assert_close(n.run(back)[0], expected, rtol=0, atol=0)


def test_8_6_calls_what_a_layer_makes_float(bench: Any) -> None:
    """Constants and casts of float16 too, and what is made of them; an input is what it was declared as."""
    n = bench("8.6.0", ("EXPLICIT_BATCH",))
    half = n.input(torch.ones(2).half())
    constant = only(n.net.add_constant((2,), np.ones(2, np.float16)))
    cast = only(n.net.add_cast(half, n.trt.float16))
    total = only(n.net.add_elementwise(constant, cast, n.trt.ElementWiseOperation.SUM))
    assert [n.trt.float16] + [n.trt.float32] * 3 == [x.dtype for x in (half, constant, cast, total)]
    total.dtype = n.trt.float16
    assert n.trt.float16 == total.dtype


def test_8_6_may_compute_in_float16_what_is_not_required_to_be_float32(bench: Any) -> None:
    """Where it may, the reference does; where float32 is required, it stays."""
    x = torch.tensor([1.0009, 2.999])
    for required in (None, "precision", "output type"):
        n = bench("8.6.0")
        n.config.set_flag(n.trt.BuilderFlag.FP16)
        layer = n.net.add_unary(n.input(x), n.trt.UnaryOperation.ABS)
        if required == "precision":
            layer.precision = n.trt.float32
        elif required:
            layer.set_output_type(0, n.trt.float32)
        torch.testing.assert_close(
            n.run(only(layer))[0], x if required else x.half().float(), rtol=0, atol=0
        )


def test_8_6_may_read_in_float16_what_is_not_required_to_be_float32(bench: Any) -> None:
    """Constants, too."""
    for held in (False, True):
        n = bench("8.6.0")
        n.config.set_flag(n.trt.BuilderFlag.FP16)
        less = only(n.net.add_constant((1,), n.trt.Weights(np.array([2048.5], np.float32))))
        kind = n.trt.ElementWiseOperation.SUB
        layer = n.net.add_elementwise(n.input(torch.tensor([2050.0])), less, kind)
        if held:
            layer.precision = n.trt.float32
        assert n.run(only(layer))[0].tolist() == [1.5 if held else 2.0]


def test_8_6_calls_an_output_float_until_it_is_declared(bench: Any) -> None:
    """What is half becomes float32; what is an integer does not build, and the error says what to declare."""
    n = bench("8.6.0")
    half = only(n.net.add_identity(n.input(torch.ones(2).half())))
    assert n.run(half)[0].dtype is torch.float32
    n = bench("8.6.0")
    whole = only(n.net.add_cast(n.input(torch.ones(2)), n.trt.int32))
    assert n.plan(whole) is None
    assert "declare its dtype" in n.errors[-1]
    whole.dtype = n.trt.int32
    assert n.plan() is not None


@pytest.mark.parametrize(
    ("add", "block", "double", "reason"),
    [
        ("", (1, 64), np.float32, "supports only 16 or 32 element blocks, not 64"),
        ("", (1, 16), None, "scales of type FP8 require two inputs"),
        ("", (1, 16), np.float16, "a scalar of type FLOAT or of the type of the first"),
        ("_v2", (1, 16), np.float32, "a second input needs a scalar block size"),
    ],
)
def test_scales_that_are_computed_have_the_forms_of_tensorrt(
    add: str, block: Any, double: Any, reason: str, bench: Any
) -> None:
    """TensorRT for RTX 1.7 refuses the others."""
    n = bench("11.4.0")
    x = n.input(torch.rand(2, 64))
    sizes = (block,) if add else (1, block[1])
    layer = getattr(n.net, f"add_dynamic_quantize{add}")(x, *sizes, n.trt.fp4, n.trt.fp8)
    if double is not None:
        layer.set_input(1, n.const(0.5, double))
    values, scales = layer.get_output(0), layer.get_output(1)
    assert n.plan(only(n.net.add_dequantize(values, scales, n.trt.float32))) is None
    assert reason in str(n.errors)


def test_8_6_keeps_int8_for_quantized_values(bench: Any) -> None:
    """An int8 input or constant without Quantize and Dequantize does not build, Quantize without the flag neither."""
    n = bench("8.6.0")
    assert n.plan(only(n.net.add_identity(n.input(torch.ones(2, dtype=torch.int8))))) is None
    assert "dynamic range" in n.errors[-1]
    n = bench("8.6.0")
    assert n.plan(only(n.net.add_identity(n.const([1, 2], np.int8)))) is None
    assert "only allowed before DQ" in n.errors[-1]
    n = bench("8.6.0")
    scale = n.const(0.5)
    quantized = only(n.net.add_quantize(n.input(torch.rand(2)), scale))
    assert n.plan(only(n.net.add_dequantize(quantized, scale))) is None
    assert "set the flag INT8" in n.errors[-1]


def test_relu_and_pooling_drop_nan(version: str, bench: Any) -> None:
    """ReLU of NaN is 0, and the maximum of a window ignores it."""
    n = bench(version)
    relu = only(
        n.net.add_activation(n.input(torch.tensor([NAN, -1, 2])), n.trt.ActivationType.RELU)
    )
    image = torch.tensor([[NAN, 1.0], [-5.0, 3.0]]).view(1, 1, 2, 2)
    pooled = n.net.add_pooling_nd(n.input(image), n.trt.PoolingType.MAX, (2, 1))
    results = n.run(relu, only(pooled))
    assert [result.flatten().tolist() for result in results] == [[0, 0, 2], [-5, 3]]


def test_the_maximum_of_nothing_but_minus_infinity_is_the_lowest_number(
    version: str, bench: Any
) -> None:
    """Pooling starts from the lowest finite number, also beside NaN and padding."""
    for window, padding in (([[-INF, -INF]], 0), ([[NAN, -INF]], 0), ([[-INF, -INF]], 1)):
        n = bench(version)
        image = torch.tensor(window).view(1, 1, 1, 2)
        pooled = n.net.add_pooling_nd(n.input(image), n.trt.PoolingType.MAX, (1, 2))
        pooled.padding_nd = (0, padding)
        (result,) = n.run(only(pooled))
        assert set(result.flatten().tolist()) == {torch.finfo(torch.float32).min}


def test_a_scatter_out_of_range_writes_nothing(version: str, bench: Any) -> None:
    """In both modes, and what is in range is written."""
    n = bench(version)
    index = n.const([3, 0], np.int32)
    x, updates = n.input(torch.zeros(3)), n.input(torch.tensor([1.0, 2.0]))
    element = n.net.add_scatter(x, index, updates, n.trt.ScatterMode.ELEMENT)
    rows = n.const([[0], [-4]], np.int32)
    nd = n.net.add_scatter(x, rows, updates, n.trt.ScatterMode.ND)
    results = n.run(only(element), only(nd))
    assert [result.tolist() for result in results] == [[2, 0, 0], [1, 0, 0]]


def test_8_6_never_selects_the_wrong_infinity(version: str, bench: Any) -> None:
    """TopK gives index -1 for NaN and -inf there; later versions give their places."""
    n = bench(version)
    x = n.input(torch.tensor([[1.0, NAN, -INF]]))
    layer = n.net.add_topk(x, n.trt.TopKOperation.MAX, 3, 2)
    indices = n.run(only(layer), layer.get_output(1))[1]
    assert indices.tolist() == [[0, -1, -1] if version == "8.6.0" else [0, 1, 2]]


def test_a_layer_that_fails_at_run_time_is_named(version: str, bench: Any) -> None:
    """What only data can break is an error with the layer's name."""
    n = bench(version)
    lengths = n.input(torch.tensor([4], dtype=torch.int32))
    layer = n.net.add_reverse_sequence(n.input(torch.rand(1, 3)), lengths)
    layer.batch_axis, layer.sequence_axis, layer.name = 0, 1, "the reversal"
    context = n.context(only(layer))
    result = torch.empty(1, 3)
    context.set_tensor_address("o0", result.data_ptr())
    assert not context.execute_async_v3(0)
    assert "the reversal: the lengths [4] go beyond the 3 elements" in n.errors[-1]


@pytest.mark.parametrize("computed", [False, True])
def test_8_6_gathers_by_no_mask_that_the_network_is_given(computed: bool, bench: Any) -> None:
    """A mask that a layer computes builds, if only by a cast and back; newer versions take both."""
    for version in ("8.6.0", "10.16.1"):
        n = bench(version)
        rows, mask = n.input(torch.rand(3, 2)), n.input(torch.tensor([True, False, True]))
        if computed:
            mask = only(n.net.add_cast(only(n.net.add_cast(mask, n.trt.int32)), n.trt.bool))
        positions = n.net.add_shuffle(only(n.net.add_non_zero(mask)))
        positions.first_transpose = (1, 0)
        gather = n.net.add_gather_v2(rows, only(positions), n.trt.GatherMode.ND)
        n.net.mark_output(only(gather))

        plan = n.builder.build_serialized_network(n.net, n.builder.create_builder_config())

        assert (computed or version != "8.6.0") == (plan is not None)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 1)])
def test_a_fill_value_is_one_element(version: str, shape: tuple[int, ...], bench: Any) -> None:
    """What lies beyond a slice is a scalar, or a vector of one element, as 8.6 was seen to take it."""
    n = bench(version)
    x = torch.arange(6.0).reshape(2, 3)
    layer = n.net.add_slice(n.input(x), (-1, 0), (4, 4), (1, 1))
    layer.mode = (n.trt.SampleMode if hasattr(n.trt, "SampleMode") else n.trt.SliceMode).FILL
    layer.set_input(4, n.const(np.full(shape, 9)))
    if len(shape) > 1 or shape == (2,):
        assert n.plan(only(layer)) is None
        assert "the fill value must be a scalar, or one element of rank 1" in n.errors[-1]
        return
    torch.testing.assert_close(
        n.run(only(layer))[0], torch.nn.functional.pad(x, (0, 1, 1, 1), value=9.0)
    )


def _scaled(n: Any, dtype: torch.dtype, weights: type, power: Any) -> Any:
    """Returns a Scale layer over channels, or None where it is refused."""
    factors = n.trt.Weights(np.array([2, 3], weights))
    x = n.input(torch.ones(1, 2, 1, 2, dtype=dtype))
    return n.net.add_scale_nd(x, n.trt.ScaleMode.CHANNEL, factors, factors, power, 1)


def test_the_weights_of_scale_have_one_type(version: str, bench: Any) -> None:
    """Seen on TensorRT for RTX 1.7; 8.6 was seen to take a power of Float, as empty weights are."""
    n = bench(version)
    assert _scaled(n, torch.float16, np.float16, n.trt.Weights(n.trt.float16)) is not None
    mixed = _scaled(n, torch.float16, np.float16, n.trt.Weights())
    if version == "8.6.0":
        assert mixed is not None
        return
    assert mixed is None
    assert "shift, scale and power weights must have one type" in n.errors[-1]


def test_the_weights_of_scale_have_the_type_of_its_input(version: str, bench: Any) -> None:
    """Seen on TensorRT for RTX 1.7, which adds the layer and does not build it."""
    n = bench(version)
    layer = _scaled(n, torch.float16, np.float32, n.trt.Weights())
    if version != "8.6.0":
        assert n.plan(only(layer)) is None
        assert "shift weights must have the type of the input" in n.errors[-1]


def _einsum(n: Any) -> Any:
    return n.net.add_einsum([n.input(torch.ones(2, 3)), n.input(torch.ones(3, 2))], "iJ,Jk->ik")


def _normalization(n: Any) -> Any:
    scale, bias = n.const(np.ones((1, 3))), n.const(np.full((1, 1), 3.0))
    return n.net.add_normalization(n.input(torch.ones(2, 3)), scale, bias, 2)


def _scale(n: Any) -> Any:
    factors, no = n.trt.Weights(np.array([2, 3], np.float32)), n.trt.Weights()
    x = n.input(torch.ones(2, 2, 2))
    return n.net.add_scale(x, n.trt.ScaleMode.CHANNEL, no, factors, no)


def _grid_sample(n: Any) -> Any:
    image = torch.tensor([[[[-1, -4]]]], dtype=torch.int32)
    layer = n.net.add_grid_sample(n.input(image), n.input(torch.zeros(1, 1, 1, 2)))
    layer.sample_mode = n.trt.SampleMode.CLAMP
    return layer


def _convolution(n: Any) -> Any:
    kernel = n.trt.Weights(np.ones((1, 3, 1, 1), np.float32))
    x = n.input(torch.ones(1, 3, 1, 2), (1, -1, 1, 2))
    return n.net.add_convolution_nd(x, 1, (1, 1), kernel)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (_einsum, torch.full((2, 2), 3.0)),
        (_normalization, torch.full((2, 3), 3.0)),
        (_scale, torch.tensor([2.0, 3.0])[:, None, None].expand(2, 2, 2)),
        (_grid_sample, torch.full((1, 1, 1, 1), -2, dtype=torch.int32)),
        (_convolution, torch.full((1, 1, 1, 2), 3.0)),
    ],
)
def test_8_6_takes_what_later_versions_refuse(
    version: str, make: Any, expected: torch.Tensor, bench: Any
) -> None:
    """Seen on 8.6 against its documentation; what 10 and 11 document holds for them."""
    n = bench(version)
    layer = make(n)
    if version == "8.6.0":
        if expected.dtype is torch.int32:
            only(layer).dtype = n.trt.int32
        torch.testing.assert_close(n.run(only(layer))[0], expected.contiguous())
        return
    assert n.plan(only(layer)) is None


def test_a_kernel_says_how_many_channels_there_are_on_8_6(bench: Any) -> None:
    """Channels that vary may be no others than the kernel's when the engine runs."""
    n = bench("8.6.0")
    layer = _convolution(n)
    n.profile.set_shape("i0", (1, 1, 1, 2), (1, 3, 1, 2), (1, 4, 1, 2))
    context = n.context(only(layer))
    context.set_input_shape("i0", (1, 2, 1, 2))
    with pytest.raises(RuntimeError):
        context.infer_shapes()
