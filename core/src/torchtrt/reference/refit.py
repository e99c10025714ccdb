"""``Refitter``: other values for the weights of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torchtrt.reference.reporting import report
from torchtrt.reference.weights import Weights


class Refitter:
    """Replaces the named weights of an engine that was built with a REFIT flag."""

    _trt: ClassVar[Any]
    _stored: ClassVar[Mapping[str, Any]] = {
        "error_recorder": None,
        "max_threads": 1,
        "weights_validation": True,
    }

    def __init__(self, engine: Any, logger: Any) -> None:
        if not engine.refittable:
            report(
                logger,
                "ERROR",
                "The engine was not built with BuilderFlag.REFIT, so it cannot be refitted.",
            )
            message = "pybind11::init(): factory function returned nullptr"
            raise TypeError(message)
        self._engine = engine
        self._logger = logger
        self._pending: dict[str, Weights] = {}
        self._values: dict[str, Any] = {}

    @property
    def logger(self) -> Any:
        """The logger that errors go to."""
        return self._logger

    def _slots(self) -> dict[str, list[int]]:
        slots: dict[str, list[int]] = {}
        for slot, name in self._engine._description.graph.weights_names.items():
            slots.setdefault(name, []).append(slot)
        return slots

    def set_named_weights(self, name: str, weights: Weights, location: Any = None) -> bool:  # noqa: ARG002
        """Gives new values to named weights; returns whether name, type and count fit."""
        slots = self._slots().get(name)
        if slots is None:
            report(self._logger, "ERROR", f"The engine has no refittable weights named {name!r}.")
            return False
        graph = self._engine._description.graph
        count, dtype = graph.constants[slots[0]].numel(), graph.constant_types[slots[0]]
        if weights.size != count or weights._dtype != dtype:
            report(
                self._logger,
                "ERROR",
                f"The weights {name!r} hold {count} elements of type {dtype}, not {weights.size} of {weights._dtype}.",
            )
            return False
        self._pending[name] = weights
        return True

    def set_weights(self, layer_name: str, role: Any, weights: Weights) -> bool:  # noqa: ARG002
        """Gives new values to weights by layer and role; the reference knows weights by name only."""
        report(
            self._logger,
            "ERROR",
            f"The reference refits weights by name: name those of {layer_name!r} with set_weights_name "
            f"and use set_named_weights.",
        )
        return False

    def unset_named_weights(self, weights_name: str) -> bool:
        """Forgets values that were given and not yet applied."""
        return self._pending.pop(weights_name, None) is not None

    def get_named_weights(self, weights_name: str) -> Weights:
        """Returns the values that were given for named weights; empty weights if none were."""
        return self._pending.get(weights_name) or self._trt.Weights()

    def get_weights_location(self, weights_name: str) -> Any:  # noqa: ARG002
        """Returns where given values live: on the host."""
        return self._trt.TensorLocation.HOST

    def get_weights_prototype(self, weights_name: str) -> Weights:
        """Returns weights of the type and count that a name needs, without values."""
        slots = self._slots().get(weights_name)
        if slots is None:
            return self._trt.Weights()  # type: ignore[no-any-return]
        graph = self._engine._description.graph
        dtype = self._trt.DataType.__members__[graph.constant_types[slots[0]]]
        return self._trt.Weights(dtype, 0, graph.constants[slots[0]].numel())  # type: ignore[no-any-return]

    def refit_cuda_engine(self) -> bool:
        """Applies the values that were given; returns whether that succeeded."""
        slots = self._slots()
        constants = self._engine._description.graph.constants
        for name, weights in self._pending.items():
            for slot in slots[name]:
                self._engine._replace_constant(
                    slot, weights._tensor().clone().view(constants[slot].shape)
                )
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
        return sorted(self._slots())

    def get_missing_weights(self) -> list[str]:
        """Returns the names that must be given before a refit; each weight stands alone in the reference."""
        return []

    def get_all(self) -> tuple[list[str], list[Any]]:
        """Returns layers and roles of refittable weights; the reference knows weights by name only."""
        return [], []

    def get_missing(self) -> tuple[list[str], list[Any]]:
        """Returns layers and roles that must be given before a refit; none."""
        return [], []

    def get_dynamic_range(self, tensor_name: str) -> tuple[float, float] | None:  # noqa: ARG002
        """Returns the range of implicit quantization, which the reference does not do."""
        return None

    def set_dynamic_range(self, tensor_name: str, range: Any) -> bool:  # noqa: ARG002
        """Sets the range of implicit quantization, which the reference does not do."""
        return False

    def get_tensors_with_dynamic_range(self) -> list[str]:
        """Returns the tensors with a range of implicit quantization: none."""
        return []
