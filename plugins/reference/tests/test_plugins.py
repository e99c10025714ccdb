"""Plugins of the interface IPluginV3: the protocol that a plugin sees, and what the reference refuses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import torchtrt_reference as reference

VERSIONS = ("10.16.1", "11.4.0")


def double(trt: Any, **changes: Any) -> tuple[Any, Any]:
    """Returns the classes of a plugin that doubles its input and appends rows, and of its creator.

    Args:
        trt: The version.
        **changes: Methods and attributes that differ.
    """
    calls: list[Any] = []

    class Double(
        trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
    ):
        log = calls

        def __init__(self, rows: int) -> None:
            self.plugin_name, self.plugin_version, self.plugin_namespace = "Double", "1", "tests"
            self.num_outputs = 1
            self.rows = rows

        def get_capability_interface(self, type: Any) -> Any:
            return self

        def clone(self) -> Any:
            return Double(self.rows)

        def get_output_data_types(self, input_types: Any) -> Any:
            calls.append(("types", [input_type.name for input_type in input_types]))
            return input_types[:1]

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
            shape = trt.DimsExprs(inputs[0])
            calls.append(("shapes", [size.is_constant() for size in shape]))
            more = builder.constant(self.rows)
            shape[0] = builder.operation(trt.DimensionOperation.SUM, shape[0], more)
            return [shape]

        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            calls.append(("format", pos, num_inputs))
            return bool(in_out[pos].desc.format == trt.TensorFormat.LINEAR)

        def configure_plugin(self, inputs: Any, outputs: Any) -> None:
            calls.append(("configure", tuple(inputs[0].desc.dims), tuple(outputs[0].desc.dims)))

        def get_fields_to_serialize(self) -> Any:
            rows = np.array([self.rows], np.int32)
            return trt.PluginFieldCollection(
                [trt.PluginField("rows", rows, trt.PluginFieldType.INT32)]
            )

        def attach_to_context(self, resource_context: Any) -> Any:
            calls.append("attach")
            return self.clone()

        def on_shape_change(self, inputs: Any, outputs: Any) -> None:
            calls.append(("shape", tuple(inputs[0].dims), tuple(outputs[0].dims)))

        def enqueue(self, *arguments: Any) -> None:
            (address,), (made,), (source,), (target,), _, stream = arguments
            calls.append(("enqueue", stream, self.torch_device.type))
            values = _floats(source, address)
            result = _floats(target, made)
            result[...] = 0
            result[: len(values)] = 2 * values

    for name, value in changes.items():
        setattr(Double, name, value)

    class Creator(trt.IPluginCreatorV3One):
        def __init__(self) -> None:
            super().__init__()
            self.name, self.plugin_version, self.plugin_namespace = "Double", "1", "tests"
            self.field_names = trt.PluginFieldCollection([trt.PluginField("rows")])

        def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
            (field,) = field_collection
            calls.append(("create", name, field.name, field.type.name, phase.name))
            return Double(int(np.frombuffer(field.data.tobytes(), np.int32)[0]))

    return Double, Creator


def _floats(address: int, description: Any) -> Any:
    """Returns the values behind an address."""
    shape = tuple(description.dims)
    memory = (ctypes.c_float * int(np.prod(shape))).from_address(address)
    return np.ctypeslib.as_array(memory).reshape(shape)


@pytest.fixture(params=VERSIONS)
def trt(request: pytest.FixtureRequest) -> Any:
    """A version with plugins."""
    return reference.load(request.param)


@pytest.fixture
def registered(trt: Any) -> Iterator[Callable[[Any], Any]]:
    """Registers a creator until the end of the test."""
    creators: list[Any] = []

    def register(creator: Any) -> Any:
        assert trt.get_plugin_registry().register_creator(creator, "tests")
        creators.append(creator)
        return creator

    yield register
    for creator in creators:
        trt.get_plugin_registry().deregister_creator(creator)


def test_a_plugin_is_driven_by_tensorrts_protocol(trt: Any, bench: Any, registered: Any) -> None:
    """In the order of TensorRT: it is checked, built, created anew from its fields, attached, shaped and run."""
    plugin, creator = double(trt)
    registered(creator())
    n = bench(trt.__version__)
    x = n.input(torch.arange(6.0).reshape(2, 3), shape=(-1, 3))

    layer = n.net.add_plugin_v3([x], [], plugin(1))

    assert layer.type is trt.LayerType.PLUGIN_V3
    assert isinstance(layer.plugin, plugin)
    assert tuple(layer.get_output(0).shape) == (-1, 3)
    (result,) = n.run(n.net.add_unary(layer.get_output(0), trt.UnaryOperation.NEG).get_output(0))
    expected = -2 * torch.arange(6.0).reshape(2, 3)
    torch.testing.assert_close(result, torch.cat([expected, -torch.zeros(1, 3)]))
    assert plugin.log == [
        ("types", ["FLOAT"]),
        ("shapes", [False, True]),
        ("format", 0, 1),
        ("format", 1, 1),
        ("configure", (-1, 3), (-1, 3)),
        ("create", "Double", "rows", "INT32", "RUNTIME"),
        "attach",
        ("shape", (2, 3), (3, 3)),
        ("enqueue", 0, "cpu"),
    ]


def test_a_plan_without_its_creator_does_not_load(trt: Any, bench: Any) -> None:
    """The error has the name, the version and the namespace, as TensorRT's."""
    plugin, _ = double(trt)
    n = bench(trt.__version__)
    n.net.mark_output(n.net.add_plugin_v3([n.input(torch.rand(2, 3))], [], plugin(1)).get_output(0))
    plan = n.builder.build_serialized_network(n.net, n.config)

    assert trt.Runtime(n.logger).deserialize_cuda_engine(plan) is None
    assert "Cannot find plugin: Double, version: 1, namespace: tests" in n.errors[-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"get_output_data_types": lambda self, types: 1 / 0}, "raised ZeroDivisionError"),
        ({"get_output_shapes": lambda self, *_: []}, "has 1 outputs, 1 types and 0 shapes"),
    ],
)
def test_a_plugin_that_answers_wrongly_is_not_added(
    trt: Any, bench: Any, changes: Any, message: str
) -> None:
    """The reason is logged."""
    plugin, _ = double(trt, **changes)
    n = bench(trt.__version__)

    assert n.net.add_plugin_v3([n.input(torch.rand(2, 3))], [], plugin(1)) is None
    assert message in n.errors[-1]


def test_a_plugin_that_takes_no_linear_tensors_does_not_build(trt: Any, bench: Any) -> None:
    """The reference has no other format."""
    plugin, _ = double(trt, supports_format_combination=lambda self, pos, *_: pos == 0)
    n = bench(trt.__version__)
    n.net.mark_output(n.net.add_plugin_v3([n.input(torch.rand(2, 3))], [], plugin(1)).get_output(0))

    assert n.builder.build_serialized_network(n.net, n.config) is None
    assert "the plugin refuses Float in the linear format at position 1" in n.errors[-1]


def test_shape_inputs_are_refused(trt: Any, bench: Any) -> None:
    """And said to be."""
    plugin, _ = double(trt)
    n = bench(trt.__version__)
    x = n.input(torch.rand(2, 3))

    assert n.net.add_plugin_v3([x], [x], plugin(1)) is None
    assert "gives plugins no shape inputs" in n.errors[-1]


def test_expressions_of_constants_are_constants(trt: Any) -> None:
    """All operations of TensorRT; a dimension that is not known has none of them."""
    builder = trt.IExprBuilder()
    operations = trt.DimensionOperation
    seven, two = builder.constant(7), builder.constant(2)

    values = {
        name: builder.operation(member, seven, two).get_constant_value()
        for name, member in operations.__members__.items()
    }

    assert values == {
        "SUM": 9, "PROD": 14, "MAX": 7, "MIN": 2, "SUB": 5, "EQUAL": 0, "LESS": 0, "FLOOR_DIV": 3, "CEIL_DIV": 4,
    }  # fmt: skip
