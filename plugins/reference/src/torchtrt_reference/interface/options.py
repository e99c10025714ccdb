"""Small objects of options, and the interfaces that a user implements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torchtrt_reference.implementation import Implementation


class RuntimeConfig(Implementation):
    """The options of an execution context."""

    _implements = ("IRuntimeConfig",)

    def _initialize(self) -> None:
        self._strategy = "STATIC"

    def set_execution_context_allocation_strategy(self, strategy: Any) -> None:
        """Sets who provides the memory of the context."""
        self._strategy = strategy.name

    def get_execution_context_allocation_strategy(self) -> Any:
        """Returns who provides the context's memory."""
        return self._trt.ExecutionContextAllocationStrategy.__members__[self._strategy]


class SerializationConfig(Implementation):
    """The options of serialization."""

    _implements = ("ISerializationConfig",)
    _stored: ClassVar[Mapping[str, Any]] = {"flags": 0}

    def _initialize(self, flags: int = 0) -> None:
        self._values: dict[str, Any] = {"flags": flags}

    def set_flag(self, flag: Any) -> bool:
        """Sets a flag."""
        self._values["flags"] |= 1 << int(flag)
        return True

    def clear_flag(self, flag: Any) -> bool:
        """Clears a flag."""
        self._values["flags"] &= ~(1 << int(flag))
        return True

    def get_flag(self, flag: Any) -> bool:
        """Returns whether a flag is set."""
        return bool(self._values["flags"] >> int(flag) & 1)


class Interface(Implementation):
    """An interface that a user implements, such as an output allocator or a profiler."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes whatever a subclass passes on."""


class Profiler(Interface):
    """A profiler that prints what it receives."""

    _implements = ("Profiler",)

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Prints the time of one layer."""
        print(f"{layer_name}: {ms:.6f}ms")
