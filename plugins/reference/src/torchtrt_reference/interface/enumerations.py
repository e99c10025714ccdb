"""Enumerations that behave as TensorRT's do in Python.

A member equals only itself and is no integer: ``trt.DataType.FLOAT == 0`` is False, ``1 << member`` is a TypeError.
It has a ``name`` and a ``value``. Some flag-like enumerations can be ordered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

# Observed on the bindings: these support < and >, the others do not.
_ORDERED = {
    "BuilderFlag",
    "EngineCapability",
    "NetworkDefinitionCreationFlag",
    "QuantizationFlag",
    "Severity",
    "TacticSource",
    "TensorFormat",
}


Restore = Callable[[str, str, int], Any]


class Enumeration:
    """One member of an enumeration; the subclasses are made by ``make_enumeration``."""

    __members__: ClassVar[dict[str, Any]] = {}
    _by_value: ClassVar[dict[int, Any]] = {}
    _home: ClassVar[
        tuple[Restore, str, str]
    ]  # for pickling: what restores it, version and qualified name
    name: str
    value: int

    def __new__(cls, value: int) -> Enumeration:
        """Returns the member with this value."""
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            message = f"{cls.__name__} takes an int, not {type(value).__name__}."
            raise TypeError(message)
        member: Enumeration | None = cls._by_value.get(value.__index__())
        if member is None:
            message = f"{value} is not a valid {cls.__name__}."
            raise ValueError(message)
        return member

    def __setattr__(self, name: str, value: object) -> None:
        message = f"{self} cannot be changed."
        raise AttributeError(message)

    def __int__(self) -> int:
        return self.value

    def __hash__(self) -> int:
        return hash((type(self), self.value))

    def __eq__(self, other: object) -> bool:
        return self is other

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self.value}>"

    def __copy__(self) -> Enumeration:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Enumeration:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        restore, version, qualified_name = self._home
        return restore, (version, qualified_name, self.value)


@functools.total_ordering
class _OrderedEnumeration(Enumeration):
    def __lt__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Enumeration)
        return self.value < other.value

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = Enumeration.__hash__


def make_enumeration(
    version: str, qualified_name: str, members: Mapping[str, int], restore: Restore
) -> type[Enumeration]:
    """Returns an enumeration type with these members; a second name for a value is an alias of the first.

    Args:
        version: The version it belongs to.
        qualified_name: Its name in the namespace of the version.
        members: The values of its members by name.
        restore: What makes a member of version, qualified name and value when it is unpickled: a function of a module.
    """
    name = qualified_name.rpartition(".")[2]
    base = _OrderedEnumeration if name in _ORDERED else Enumeration
    made: type[Enumeration] = type(
        name,
        (base,),
        {
            "__members__": {},
            "_by_value": {},
            "_home": (restore, version, qualified_name),
            "__doc__": f"TensorRT {version} {name}.",
        },
    )
    for member_name, value in members.items():
        member = made._by_value.get(value)
        if member is None:
            member = object.__new__(made)
            object.__setattr__(member, "name", member_name)
            object.__setattr__(member, "value", value)
            made._by_value[value] = member
        made.__members__[member_name] = member
        setattr(made, member_name, member)
    return made
