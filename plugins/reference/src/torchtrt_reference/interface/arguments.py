"""Python arguments as TensorRT's bindings take them: names, defaults, conversions, and TypeError for the rest."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from torchtrt_reference.interface.enumerations import Enumeration
from torchtrt_reference.network.dimensions import Dims, Permutation, exact_int
from torchtrt_reference.network.weights import Weights

Converter = Callable[[Any], Any]
_REQUIRED = object()


def _to_float(value: Any) -> float:
    if isinstance(value, (str, bytes)) or not (
        hasattr(value, "__float__") or hasattr(value, "__index__")
    ):
        message = f"Expected a number, not {value!r} of type {type(value).__name__}."
        raise TypeError(message)
    return float(value)


def _to_number(value: Any) -> int | float:
    return exact_int(value) if hasattr(value, "__index__") else _to_float(value)


def _to_bool(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)) or hasattr(value, "__index__"):
        return bool(value)
    message = f"Expected a bool, not {value!r} of type {type(value).__name__}."
    raise TypeError(message)


def _to_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    message = f"Expected a str, not {value!r} of type {type(value).__name__}."
    raise TypeError(message)


def _as_is(value: Any) -> Any:
    return value


def _to_permutation(value: Any) -> tuple[int, ...]:
    return value._axes() if isinstance(value, Permutation) else tuple(Permutation(value))


class Types:
    """Turns a type's spelling in the interface description into a converter, for one version.

    A converter returns what the implementation stores: dimensions and permutations as tuples, enumeration members as
    they are, weights as ``Weights``.
    """

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._converters: dict[str, Converter] = {
            "int": exact_int,
            "float": _to_float,
            "bool": _to_bool,
            "str": _to_str,
            "Dims": self.to_dims,
            "DimsHW": self.to_dims,
            "Permutation": _to_permutation,
            "Weights": self.to_weights,
            "numpy.ndarray": self.to_weights,
            "number": _to_number,
            "object": _as_is,
            "buffer": _as_is,
            "capsule": _as_is,
            "tuple": tuple,
            "list": list,
            "": _as_is,
        }

    def converter(self, spelling: str | None) -> Converter:
        """Returns the converter for a type such as ``"ITensor"`` or ``"List[int]"``."""
        name = spelling or ""
        if name not in self._converters:
            self._converters[name] = self._make(name)
        return self._converters[name]

    def _make(self, name: str) -> Converter:
        """Returns the function that converts an argument to a type of TensorRT's interface."""
        if name.startswith("List["):
            element = self.converter(name[5:-1])

            def to_list(value: Any) -> list[Any]:
                if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
                    message = f"Expected a sequence, not {value!r} of type {type(value).__name__}."
                    raise TypeError(message)
                return [element(item) for item in value]

            return to_list
        wanted: Any = None
        for part in name.split("."):
            wanted = self._namespace.get(part) if wanted is None else getattr(wanted, part, None)
        if not isinstance(wanted, type):
            return _as_is

        def to_instance(value: Any) -> Any:
            if isinstance(value, wanted):
                return value
            message = f"Expected {name}, not {value!r} of type {type(value).__name__}."
            raise TypeError(message)

        return to_instance

    def to_dims(self, value: Any) -> tuple[int, ...]:
        """Returns dimensions as a tuple."""
        if isinstance(value, Dims):
            return tuple(value)
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
            message = f"Expected Dims, not {value!r} of type {type(value).__name__}."
            raise TypeError(message)
        return tuple(self._namespace["Dims"](value))

    def to_weights(self, value: Any) -> Weights:
        """Returns weights; NumPy arrays convert, None stands for no weights."""
        if isinstance(value, Weights):
            return value
        made = self._namespace["Weights"]
        if value is None:
            return made()  # type: ignore[no-any-return]
        if isinstance(value, np.ndarray):
            try:
                return made(value)  # type: ignore[no-any-return]
            except ValueError as error:
                raise TypeError(str(error)) from error
        message = f"Expected Weights or a NumPy array, not {type(value).__name__}."
        raise TypeError(message)

    def default(self, text: str, owner: str) -> Any:
        """Returns the default value that the interface description of a method of ``owner`` spells as text."""
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            first, *rest = text.split(".")
            value = (
                self._namespace[first]
                if first in self._namespace
                else getattr(self._namespace[owner], first)
            )
            for part in rest:
                value = getattr(value, part)
            return value


class Signature:
    """The overloads of one method of one version, in order."""

    def __init__(self, owner: str, name: str, overloads: Sequence[Any], types: Types) -> None:
        self._title = f"{owner}.{name}"
        self._forms = []
        for parameters, _ in overloads:
            form = []
            for parameter in parameters:
                default = types.default(parameter[2], owner) if len(parameter) > 2 else _REQUIRED
                nullable = default is None
                form.append((parameter[0], types.converter(parameter[1]), default, nullable))
            self._forms.append(form)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the converted arguments by name, in the order of the overload that fits.

        Raises:
            TypeError: No overload fits.
        """
        problems = []
        for form in self._forms:
            try:
                return self._fit(form, args, kwargs)
            except (TypeError, ValueError) as error:
                problems.append(str(error))
        forms = " or ".join(f"({', '.join(map(_shown, form))})" for form in self._forms)
        reasons = " ".join(dict.fromkeys(problems))
        message = f"{self._title}(): incompatible function arguments. It takes {forms}. {reasons}"
        raise TypeError(message)

    @staticmethod
    def _fit(
        form: Sequence[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the arguments of a call by the names of a form, converted to its types."""
        if len(args) > len(form):
            message = f"{len(args)} arguments were given."
            raise TypeError(message)
        bound: dict[str, Any] = {}
        used = 0
        for position, (name, converter, default, nullable) in enumerate(form):
            if position < len(args):
                value = args[position]
            elif name in kwargs:
                value = kwargs[name]
                used += 1
            elif default is _REQUIRED:
                message = f"The argument {name!r} is missing."
                raise TypeError(message)
            else:
                value = default
            try:
                bound[name] = None if value is None and nullable else converter(value)
            except (TypeError, ValueError) as error:
                message = f"Argument {name!r}: {error}"
                raise TypeError(message) from error
        if used != len(kwargs):
            unknown = sorted(set(kwargs) - {name for name, *_ in form[len(args) :]})
            message = f"Unknown or repeated arguments: {', '.join(unknown)}."
            raise TypeError(message)
        return bound


def _shown(parameter: tuple[str, Any, Any, bool]) -> str:
    name, _, default, _ = parameter
    return name if default is _REQUIRED else f"{name}={default!r}"


def stored(value: Any) -> Any:
    """Returns a converted argument as layers store it: enumeration members by name."""
    return value.name if isinstance(value, Enumeration) else value
