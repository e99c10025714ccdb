"""``Refitter``: other values for the weights of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torchtrt_reference.graphs.graph import Graph
from torchtrt_reference.implementation import Implementation
from torchtrt_reference.network.reporting import report
from torchtrt_reference.network.weights import Weights
from torchtrt_reference.running.engine import Engine


class Refitter(Implementation):
    """Replaces the named weights of an engine that was built with a REFIT flag."""

    _implements = ("Refitter",)
    _stored: ClassVar[Mapping[str, Any]] = {
        "error_recorder": None,
        "max_threads": 1,
        "weights_validation": True,
    }

    def __init__(self, engine: Engine, logger: Any) -> None:
        if not engine.refittable:
            report(
                logger,
                "The engine was not built with BuilderFlag.REFIT, so it cannot be refitted.",
            )
            message = "pybind11::init(): factory function returned nullptr"
            raise TypeError(message)
        self._engine = engine
        self._logger = logger
        self._pending: dict[int, Weights] = {}
        self._values: dict[str, Any] = {}

    @property
    def logger(self) -> Any:
        """The logger that errors go to."""
        return self._logger

    @property
    def _graph(self) -> Graph:
        return self._engine._description.graph

    def _named(self, name: str) -> list[int]:
        return [
            slot for slot, weights_name in self._graph.weights_names.items() if weights_name == name
        ]

    def set_named_weights(self, name: str, weights: Weights, location: Any = None) -> bool:  # noqa: ARG002
        """Gives new values to named weights; returns whether name, type and count fit."""
        return self._give(self._named(name), f"weights named {name!r}", weights)

    def set_weights(self, layer_name: str, role: Any, weights: Weights) -> bool:
        """Gives new values to weights by layer and role; returns whether layer, role, type and count fit."""
        wanted = (layer_name, role.name)
        slots = [
            slot
            for slot, weights_role in self._graph.weights_roles.items()
            if weights_role == wanted
        ]
        return self._give(slots, f"{role.name} weights of layer {layer_name!r}", weights)

    def _give(self, slots: list[int], what: str, weights: Weights) -> bool:
        """Takes weights for all slots of one role, to be put in by the next refit.

        Returns:
            Whether they fit. If not, the reason is logged.
        """
        if not slots:
            report(self._logger, f"The engine has no refittable {what}.", self)
            return False
        count = self._graph.constants[slots[0]].numel()
        dtype = self._graph.constant_types[slots[0]]
        if weights.size != count or weights._dtype != dtype:
            report(
                self._logger,
                f"The {what} hold {count} elements of type {dtype}, not {weights.size} of {weights._dtype}.",
                self,
            )
            return False
        self._pending.update(dict.fromkeys(slots, weights))
        return True

    def unset_named_weights(self, weights_name: str) -> bool:
        """Removes values that were given and not yet applied."""
        removed = [self._pending.pop(slot, None) for slot in self._named(weights_name)]
        return any(weights is not None for weights in removed)

    def get_named_weights(self, weights_name: str) -> Weights:
        """Returns the values that were given for named weights; empty weights if none were."""
        pending = (self._pending.get(slot) for slot in self._named(weights_name))
        return (
            next((weights for weights in pending if weights is not None), None)
            or self._trt.Weights()
        )

    def get_weights_location(self, weights_name: str) -> Any:  # noqa: ARG002
        """Returns where given values live: on the host."""
        return self._trt.TensorLocation.HOST

    def get_weights_prototype(self, weights_name: str) -> Weights:
        """Returns weights of the type and count that a name needs, without values."""
        slots = self._named(weights_name)
        if not slots:
            return self._trt.Weights()  # type: ignore[no-any-return]
        dtype = self._trt.DataType.__members__[self._graph.constant_types[slots[0]]]
        return self._trt.Weights(dtype, 0, self._graph.constants[slots[0]].numel())  # type: ignore[no-any-return]

    def _missing(self) -> set[int]:
        """Returns the stripped weights that are still missing."""
        return self._graph.stripped() - self._pending.keys()

    def refit_cuda_engine(self) -> bool:
        """Applies the values that were given; returns whether that succeeded: all stripped weights must be there."""
        if self._missing():
            wanted = [
                *self.get_missing_weights(),
                *(f"{layer} {role}" for layer, role in self._missing_roles()),
            ]
            report(self._logger, f"Stripped weights are missing: {', '.join(wanted)}.", self)
            return False
        for slot, weights in self._pending.items():
            shape = self._graph.constants[slot].shape
            self._engine._replace_constant(slot, weights._tensor().clone().view(shape))
        self._pending.clear()
        return True

    def refit_cuda_engine_async(self, stream_handle: int) -> bool:  # noqa: ARG002
        """Applies the values that were given; it has finished when this returns."""
        return self.refit_cuda_engine()

    def release_refit_resources(self) -> bool:
        """Frees what a refit needed: nothing."""
        return True

    def get_all_weights(self) -> list[str]:
        """Returns the names of all refittable weights."""
        return sorted(set(self._graph.weights_names.values()))

    def get_missing_weights(self) -> list[str]:
        """Returns the names that must be given before a refit: those of stripped weights."""
        names = self._graph.weights_names
        return sorted({names[slot] for slot in self._missing() if slot in names})

    def get_all(self) -> tuple[list[str], list[Any]]:
        """Returns the layers and the roles of all refittable weights, side by side."""
        weights_roles = list(dict.fromkeys(self._graph.weights_roles.values()))
        roles = self._trt.WeightsRole.__members__
        return [layer for layer, _ in weights_roles], [roles[role] for _, role in weights_roles]

    def get_missing(self) -> tuple[list[str], list[Any]]:
        """Returns the layers and the roles that must be given before a refit: those of stripped weights."""
        missing_roles = self._missing_roles()
        roles = self._trt.WeightsRole.__members__
        return [layer for layer, _ in missing_roles], [roles[role] for _, role in missing_roles]

    def _missing_roles(self) -> list[tuple[str, str]]:
        roles = self._graph.weights_roles
        return sorted({roles[slot] for slot in self._missing() if slot in roles})

    def get_dynamic_range(self, tensor_name: str) -> tuple[float, float] | None:  # noqa: ARG002
        """Returns the range of implicit quantization, which the reference does not do."""
        return None

    def set_dynamic_range(self, tensor_name: str, range: Any) -> bool:  # noqa: ARG002
        """Sets the range of implicit quantization, which the reference does not do."""
        return False

    def get_tensors_with_dynamic_range(self) -> list[str]:
        """Returns the tensors with a range of implicit quantization: none."""
        return []
