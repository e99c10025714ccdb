"""Inputs and outputs by index, as TensorRT 8 has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def context_of(bench: Any) -> Any:
    """A context for ``y = exp(x)`` with a dynamic first dimension and two profiles."""
    n = bench("8.6.0")
    trt = n.trt
    x = n.net.add_input("x", trt.float32, (-1, 2))
    y = n.net.add_unary(x, trt.UnaryOperation.EXP).get_output(0)
    y.name = "y"
    n.net.mark_output(y)
    for sizes in ((1, 2, 4), (8, 8, 16)):
        profile = n.builder.create_optimization_profile()
        profile.set_shape("x", *[(size, 2) for size in sizes])
        n.config.add_optimization_profile(profile)
    plan = n.builder.build_serialized_network(n.net, n.config)
    engine = trt.Runtime(n.logger).deserialize_cuda_engine(plan)
    return n, engine.create_execution_context()


def test_bindings_repeat_for_every_profile(bench: Any) -> None:
    """Two tensors and two profiles are four bindings; the names of the second two contain the profile."""
    n, context = context_of(bench)
    engine = context.engine
    names = ["x", "y", "x [profile 1]", "y [profile 1]"]
    assert engine.num_bindings == len(engine) == 4
    assert [engine.get_binding_name(index) for index in range(4)] == list(engine) == names
    assert [engine.get_binding_index(name) for name in names] == [0, 1, 2, 3]
    assert engine["y"] == 1
    assert [engine.binding_is_input(name) for name in names] == [True, False, True, False]
    assert engine.get_binding_index("nobody") == engine.get_binding_index("x [profile 2]") == -1
    assert engine.get_binding_name(4) is None
    assert n.errors


def test_bindings_say_what_tensors_say(bench: Any) -> None:
    """Shape, type, place and format are those of the tensor."""
    n, context = context_of(bench)
    engine, trt = context.engine, n.trt
    for binding in (0, "x [profile 1]"):
        assert engine.get_binding_shape(binding) == (-1, 2)
    assert engine.get_binding_dtype(1) == trt.float32
    assert engine.get_location("y") == trt.TensorLocation.DEVICE
    assert engine.get_profile_shape(1, "x") == [(8, 2), (8, 2), (16, 2)]
    assert engine.is_execution_binding(0)
    assert not engine.is_shape_binding(0)
    assert engine.get_binding_format(3) == trt.TensorFormat.LINEAR
    assert "linear" in engine.get_binding_format_desc(0)
    assert engine.get_binding_vectorized_dim(0) == -1
    assert engine.get_binding_bytes_per_component(0) == -1
    assert engine.get_binding_components_per_element(0) == -1


@pytest.mark.parametrize("profile", [0, 1])
def test_execution_by_binding_reads_the_active_profiles_addresses(profile: int, bench: Any) -> None:
    """The list has an address for every binding; those of the other profile are not looked at."""
    n, context = context_of(bench)
    context.active_optimization_profile = profile
    values = torch.rand(4 if profile == 0 else 8, 2)
    result = torch.empty_like(values)
    start = 2 * profile
    assert context.set_binding_shape(start, tuple(values.shape))
    assert context.get_binding_shape(start + 1) == tuple(values.shape)
    assert context.get_strides(start) == (2, 1)
    assert not context.set_binding_shape(2 - start, (8, 2))
    assert "the active one is" in n.errors[-1]
    addresses = [0] * 4
    addresses[start : start + 2] = values.data_ptr(), result.data_ptr()
    assert context.execute_v2(addresses)
    torch.testing.assert_close(result, values.exp())
    result.zero_()
    assert context.execute_async_v2(addresses, 0)
    torch.testing.assert_close(result, values.exp())
    assert not context.execute_v2(addresses[:3])
    assert "4 inputs and outputs, not 3" in n.errors[-1]


def test_an_explicit_batch_is_executed_by_version_two(bench: Any) -> None:
    """The calls with a batch size name their successors."""
    n, context = context_of(bench)
    assert not context.execute(1, [0] * 4)
    assert "call execute_v2" in n.errors[-1]
    assert not context.execute_async(1, [0] * 4, 0)
    assert "call execute_async_v2" in n.errors[-1]


def test_values_of_a_shape_input_are_given_by_binding(bench: Any) -> None:
    """They need no address at execution."""
    n = bench("8.6.0")
    trt = n.trt
    x, size = n.net.add_input("x", trt.float32, (2, 3)), n.net.add_input("size", trt.int32, (2,))
    part = n.net.add_slice(x, (0, 0), (0, 0), (1, 1))
    part.set_input(2, size)
    n.profile.set_shape_input("size", (1, 1), (2, 1), (2, 3))
    context = engine_of(n, part.get_output(0)).create_execution_context()
    engine = context.engine
    assert engine.is_shape_binding(1)
    assert engine.get_location(1) == trt.TensorLocation.HOST
    assert engine.get_profile_shape_input(0, 1) == [[1, 1], [2, 1], [2, 3]]
    with pytest.raises(RuntimeError, match="set_shape_input"):
        context.get_shape(1)
    assert not context.set_shape_input(0, [1])
    assert not context.set_shape_input(1, [1])
    assert context.set_shape_input(1, [2, 2])
    assert context.get_shape(1) == [2, 2]
    assert context.get_binding_shape(2) == (2, 2)
    values, result = torch.rand(2, 3), torch.empty(2, 2)
    assert context.execute_v2([values.data_ptr(), 0, result.data_ptr()])
    torch.testing.assert_close(result, values[:, :2])


def engine_of(n: Any, output: Any) -> Any:
    """The engine with one output."""
    return n.trt.Runtime(n.logger).deserialize_cuda_engine(n.plan(output))


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_fully_connected_layer_flattens_the_last_three_dimensions(
    has_bias: bool, bench: Any
) -> None:
    """``[N, C, H, W]`` becomes ``[N, K, 1, 1]``."""
    n = bench("8.6.0")
    x, kernel, bias = torch.rand(2, 3, 2, 2), torch.rand(5, 12), torch.rand(5)
    weights = n.trt.Weights(bias.numpy()) if has_bias else None
    layer = n.net.add_fully_connected(
        n.input(x, (-1, 3, 2, 2)), 5, n.trt.Weights(kernel.numpy()), weights
    )
    assert layer.num_output_channels == 5
    assert layer.type == n.trt.LayerType.FULLY_CONNECTED
    assert layer.get_output(0).shape == (-1, 5, 1, 1)
    (result,) = n.run(layer.get_output(0))
    expected = torch.nn.functional.linear(x.flatten(1), kernel, bias if has_bias else None)
    torch.testing.assert_close(result, expected.view(2, 5, 1, 1))


def test_a_fully_connected_layer_counts_its_weights(bench: Any) -> None:
    """A kernel of another size is refused by the build."""
    n = bench("8.6.0")
    kernel = torch.rand(5, 11)
    layer = n.net.add_fully_connected(
        n.input(torch.rand(2, 3, 2, 2)), 5, n.trt.Weights(kernel.numpy())
    )
    assert n.plan(layer.get_output(0)) is None
    assert "must have 60 elements, not 55" in " ".join(n.errors)
