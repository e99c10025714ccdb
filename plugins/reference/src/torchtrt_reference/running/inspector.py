"""``EngineInspector``: the layers of an engine as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torchtrt_reference import dtypes
from torchtrt_reference.graphs.graph import Node
from torchtrt_reference.implementation import Implementation
from torchtrt_reference.network.reporting import report
from torchtrt_reference.running.engine import Engine


class Inspector(Implementation):
    """Describes an engine's layers as text or JSON."""

    _implements = ("EngineInspector",)
    _stored: ClassVar[Mapping[str, Any]] = {"execution_context": None, "error_recorder": None}

    def _initialize(self, engine: Engine) -> None:
        self._engine = engine
        self._values: dict[str, Any] = {}

    def _layer(self, node: Node) -> Any:
        if self._engine._description.settings["profiling_verbosity"] != "DETAILED":
            return node.name
        return {
            "Name": node.name,
            "LayerType": node.operation,
            "Inputs": [self._slot(slot) for slot in node.inputs if slot >= 0],
            "Outputs": [self._slot(slot) for slot in node.outputs],
            "Metadata": node.metadata,
        }

    def _slot(self, slot: int) -> dict[str, Any]:
        ports = {port.slot: port for port in self._engine._ports}
        if slot in ports:
            port = ports[slot]
            return {
                "Name": port.name,
                "Dimensions": list(port.shape),
                "Datatype": dtypes.SPELLING[port.dtype],
            }
        return {"Name": f"(slot {slot})"}

    def get_layer_information(self, layer_index: int, format: Any) -> str:
        """Returns the description of one layer."""
        nodes: Sequence[Node] = self._engine._description.graph.nodes
        if not 0 <= layer_index < len(nodes):
            report(
                self._engine._logger, f"The engine has no layer {layer_index}.", self, self._engine
            )
            return ""
        return _shown(self._layer(nodes[layer_index]), format)

    def get_engine_information(self, format: Any) -> str:
        """Returns the description of all layers, and the names of inputs and outputs."""
        layers = [self._layer(node) for node in self._engine._description.graph.nodes]
        if format.name == "ONELINE":
            return "\n".join(_shown(layer, format) for layer in layers)
        names = [port.name for port in self._engine._ports]
        key = "I/O Tensors" if self._engine._rules.typing == "strong" else "Bindings"
        return json.dumps({"Layers": layers, key: names}, indent=1)


def _shown(layer: Any, form: Any) -> str:
    if form.name == "JSON":
        return json.dumps(layer)
    return layer if isinstance(layer, str) else str(layer["Name"])
