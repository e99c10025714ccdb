"""A program reads in a builder's configuration and in a network the values that it set there."""

from __future__ import annotations

import numpy as np
import pytest

import torchtrt_reference as reference


@pytest.fixture(params=reference.VERSIONS)
def trt(request):
    """The interface of each version."""
    return reference.load(request.param)


@pytest.fixture
def builder(trt):
    return trt.Builder(trt.Logger())


@pytest.fixture
def network(trt, builder):
    """A network of one layer, whose result is its output."""
    made = builder.create_network(0)
    x = made.add_input("x", trt.float32, (2, 3))
    made.mark_output(made.add_activation(x, trt.ActivationType.RELU).get_output(0))
    return made


def test_the_processor_of_a_layer_is_read_and_reset(trt, builder, network):
    config, layer = builder.create_builder_config(), network.get_layer(0)

    assert (trt.DeviceType.GPU, False) == (
        config.get_device_type(layer),
        config.is_device_type_set(layer),
    )
    config.set_device_type(layer, trt.DeviceType.DLA)
    assert trt.DeviceType.DLA == config.get_device_type(layer)
    assert config.is_device_type_set(layer)
    config.reset_device_type(layer)
    assert not config.is_device_type_set(layer)


def test_the_sources_of_kernels_are_read(builder):
    config = builder.create_builder_config()

    assert config.set_tactic_sources(4)
    assert 4 == config.get_tactic_sources()


def test_a_preview_feature_is_switched_on_and_off(trt, builder):
    config = builder.create_builder_config()
    feature = next(iter(trt.PreviewFeature.__members__.values()))

    for is_on in (True, False):
        config.set_preview_feature(feature, is_on)
        assert is_on == config.get_preview_feature(feature)


def test_a_tensor_is_marked_for_debugging_and_unmarked(trt, network):
    if not hasattr(network, "mark_debug"):
        pytest.skip(f"TensorRT {trt.__version__} has no marks for debugging")
    tensor = network.get_output(0)

    network.mark_debug(tensor)
    assert network.is_debug_tensor(tensor)
    network.unmark_debug(tensor)
    assert not network.is_debug_tensor(tensor)


def test_weights_are_marked_refittable_by_name_and_unmarked(trt, network):
    if not hasattr(network, "mark_weights_refittable"):
        pytest.skip(f"TensorRT {trt.__version__} refits all weights or none")
    weights = trt.Weights(np.ones(3, np.float32))
    network.add_constant((3,), weights)

    assert not network.mark_weights_refittable("bias")
    assert network.set_weights_name(weights, "bias")
    assert network.mark_weights_refittable("bias")
    assert network.are_weights_marked_refittable("bias")
    assert network.unmark_weights_refittable("bias")
    assert not network.are_weights_marked_refittable("bias")
