"""Layers whose kernel is a plugin."""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchtrt_reference import dtypes
from torchtrt_reference.semantics.operation import Call, Function, Operation, frozen
from torchtrt_reference.semantics.plugins import PluginRecord, evaluate
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts


class PluginV3(Operation):
    """A plugin of the interface ``IPluginV3``; its attribute ``record`` has all that the plan keeps of it."""

    name = "plugin_v3"
    interface = "IPluginV3Layer"
    keeps_types = True

    def is_pure(self, attributes: Mapping[str, Any]) -> bool:
        """A plugin runs when the engine runs, whatever its inputs are."""
        return False

    def output_count(self, attributes: Mapping[str, Any]) -> int:
        """As many as the plugin has."""
        record: PluginRecord = attributes["record"]
        return len(record.output_types)

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The plugin's types, and its shapes for the inputs' dimensions."""
        record: PluginRecord = call["record"]
        facts = [call.facts(index) for index in range(len(record.input_types))]
        types = tuple(fact.dtype for fact in facts)
        call.require(
            types == record.input_types,
            f"the plugin {record.name} was added for inputs of type {_spelled(record.input_types)}, not "
            f"{_spelled(types)}",
        )
        shapes = [fact.shape for fact in facts]
        output_shapes = [
            tuple(evaluate(size, shapes) for size in output_shape)
            for output_shape in record.output_shapes
        ]
        call.require(
            all(size >= -1 for shape in output_shapes for size in shape),
            f"the plugin {record.name} has an output of negative size: {output_shapes}",
        )
        if record.launch is not None and all(size >= 0 for shape in shapes for size in shape):
            record.launch.at(shapes)
        return tuple(map(TensorFacts, record.output_types, output_shapes))

    def bind(self, call: Call) -> Function:
        """The plugin's ``enqueue``, or its compiled kernel."""
        record: PluginRecord = call["record"]
        call.require(record.kernel is not None, f"no runtime created the plugin {record.name}")
        assert record.kernel is not None
        input_facts = [call.facts(index) for index in range(len(record.input_types))]
        return record.kernel.bind(input_facts, self.infer(call))


class RefusedPlugin(Operation):
    """A layer of a plugin's older interface, which the reference refuses to add."""

    name = "plugin_v2"
    methods = frozen({"add_plugin_v2": {}})
    defaults = frozen({"plugin": None})

    def admit(self, call: Call) -> None:
        """Never."""
        message = (
            "the reference executes plugins of the interface IPluginV3 only: add one with add_plugin_v3, or leave the "
            "op to PyTorch"
        )
        raise RefusedError(message)


class RefusedQuickPlugin(RefusedPlugin):
    """A layer of a plugin of ``tensorrt.plugin``, which the reference refuses to add."""

    name = "plugin"
    layer_type = "PLUGIN_V3"
    methods = frozen({"add_plugin": {}})


def _spelled(types: tuple[str, ...]) -> str:
    return "(" + ", ".join(dtypes.SPELLING[name] for name in types) + ")"


OPERATIONS = (PluginV3(), RefusedPlugin(), RefusedQuickPlugin())
