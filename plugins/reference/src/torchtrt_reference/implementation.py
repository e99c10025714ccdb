"""The base of the classes behind TensorRT's: what the assembly of a version reads from them, and gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from torchtrt_reference.rules import Rules

_Made = TypeVar("_Made", bound="Implementation")


class Implementation:
    """A class that stands behind classes of TensorRT; every version gets subclasses of its own.

    Attributes:
        _implements: The classes of TensorRT that it stands behind; a subclass names its own.
        _stored: Properties that are kept and have no effect, with their defaults.
        _checks_arguments: Whether it checks its arguments itself, instead of by the description.
        _is_called_inside: Whether the reference makes objects by calling the class, though users cannot.
        _trt: The namespace of the version, given by the assembly.
        _rules: The rules of the version, given by the assembly.
    """

    _implements: ClassVar[tuple[str, ...]] = ()
    _stored: ClassVar[Mapping[str, Any]] = {}
    _checks_arguments: ClassVar[bool] = False
    _is_called_inside: ClassVar[bool] = False
    _trt: ClassVar[Any]
    _rules: ClassVar[Rules]

    @classmethod
    def _made(cls: type[_Made], *arguments: Any) -> _Made:
        """An object of a class that users cannot call."""
        made = cls.__new__(cls)
        made._initialize(*arguments)
        return made

    def _initialize(self, *arguments: Any, **named: Any) -> None:
        """The constructor of a class that users cannot call."""

    @classmethod
    def _follow(cls, spec: Mapping[str, Any]) -> None:
        """Adapts the class of a version to its description, beyond its members."""
