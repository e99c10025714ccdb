"""Makes the namespace of one TensorRT version from the description of its interface and the implementation.

The descriptions (``api/<version>.json``) list the classes, methods, arguments, properties and enumeration members of a
version. The implementation has all of them once; here each version gets subclasses that check arguments the way
that version does and hide what it lacks.
"""

from __future__ import annotations

import functools
import importlib
import json
import operator
import pkgutil
import threading
from collections.abc import Mapping
from importlib import resources
from typing import Any

from torchtrt_reference import building, dtypes, interface, network, running
from torchtrt_reference.implementation import Implementation
from torchtrt_reference.interface.arguments import Signature, Types, stored
from torchtrt_reference.interface.enumerations import Enumeration, make_enumeration
from torchtrt_reference.interface.module import ReferenceModule
from torchtrt_reference.interface.options import Interface
from torchtrt_reference.interface.plugins import functions
from torchtrt_reference.network.definition import NetworkDefinition
from torchtrt_reference.network.dimensions import volume
from torchtrt_reference.operations import METHODS, OPERATIONS
from torchtrt_reference.rules import RULES
from torchtrt_reference.semantics.operation import Operation
from torchtrt_reference.semantics.tensor_facts import RefusedError

_assembled: dict[str, ReferenceModule] = {}
_assembling = threading.Lock()


def assembled(version: str) -> ReferenceModule:
    """Returns the namespace of a version, made on first use: the same object on every call, from every thread.

    Args:
        version: A version with rules and a description, such as ``"8.6.0"``.
    """
    with _assembling:
        if version not in _assembled:
            text = resources.files(interface).joinpath(f"api/{version}.json").read_text("utf-8")
            _assembled[version] = _Assembly(version, json.loads(text)).module
        return _assembled[version]


@functools.cache
def implementations() -> dict[str, type[Implementation]]:
    """Returns the classes that stand behind TensorRT's, by the names they give, found by listing the modules."""
    classes: dict[str, type[Implementation]] = {}
    for package in (network, building, running, interface):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, Implementation):
                    classes.update(dict.fromkeys(vars(value).get("_implements", ()), value))
    return classes


def _restored(version: str, qualified_name: str, value: int) -> Any:
    """The member of an enumeration that was pickled."""
    return operator.attrgetter(qualified_name)(assembled(version))(value)


class _Absent:
    """Stands where the implementation has something that a version lacks."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise AttributeError(self._text)

    def __set__(self, instance: Any, value: Any) -> None:
        raise AttributeError(self._text)


class _Assembly:
    def __init__(self, version: str, description: Mapping[str, Any]) -> None:
        self._version = version
        self._description = description
        self.module = ReferenceModule(
            f"torchtrt_reference[{version}]", f"Reference TensorRT {version}."
        )
        self._names: dict[str, Any] = self.module.__dict__
        self._names["__version__"] = version
        self._types = Types(self._names)
        self._operations = self._operations_by_interface()
        for name, members in description["enums"].items():
            if "." not in name:
                self._names[name] = make_enumeration(version, name, members, _restored)
        for name in description["classes"]:
            self._class(name)
        # Only now do all types have names that signatures can refer to.
        for name, spec in description["classes"].items():
            self._fill(self._names[name], name, spec)
        for name, target in description["constants"].items():
            enumeration, member = target.split(".")
            self._names[name] = getattr(self._names[enumeration], member)
        self._functions()

    def _functions(self) -> None:
        """Adds the functions of TensorRT's module."""
        members = self._names["DataType"].__members__

        def nptype(trt_type: Any) -> Any:
            """Returns the NumPy type of a data type."""
            name = getattr(trt_type, "name", None)
            if name not in dtypes.NUMPY or members.get(name) is not trt_type:
                message = f"Could not resolve TensorRT datatype {trt_type} to an equivalent numpy datatype."
                raise TypeError(message)
            return dtypes.NUMPY[name]

        self._names["nptype"] = nptype
        self._names["volume"] = volume
        available = functions(self.module)
        for name in self._description["functions"]:
            if name in available:
                self._names[name] = available[name]
        sizes = {name: (None if name == "E8M0" else bits / 8) for name, bits in dtypes.BITS.items()}
        self._names["DataType"].itemsize = property(
            lambda member: int(size) if (size := sizes[member.name]) and size >= 1 else size
        )

    def _operations_by_interface(self) -> dict[str, Operation]:
        """Returns the operations by the names of their layers' classes, such as ``"ISoftMaxLayer"``."""
        methods = self._description["classes"]["INetworkDefinition"]["methods"]
        operations = {
            methods[name][0][1]: operation for name, operation in METHODS.items() if name in methods
        }
        operations.update(
            (operation.interface, operation)
            for operation in OPERATIONS.values()
            if operation.interface
        )
        return operations

    def _class(self, name: str) -> type:
        """Returns a class of TensorRT's interface, made once, with its base classes."""
        if name in self._names:
            made: type = self._names[name]
            return made
        spec = self._description["classes"][name]
        bases = [
            self._class(base) for base in spec["bases"] if base in self._description["classes"]
        ]
        implementation = implementations().get(name)
        if implementation is None and not bases:
            implementation = Interface
        if implementation is not None and not any(
            issubclass(base, implementation) for base in bases
        ):
            bases.insert(0, implementation)
        members: dict[str, Any] = {
            "_trt": self.module,
            "_rules": RULES[self._version],
            "__module__": self.module.__name__,
            "__doc__": f"TensorRT {self._version} {name}.",
            "__reduce_ex__": _unpicklable,
        }
        self._names[name] = made = type(name, tuple(bases), members)
        self._nested(made, name, spec)
        return made

    def _fill(self, made: type[Implementation], name: str, spec: Mapping[str, Any]) -> None:
        """Gives a class the methods, properties and constructor that its interface has in this version."""
        made._follow(spec)
        if not made._checks_arguments:
            self._methods(made, name, spec)
            self._properties(made, name, spec)
            self._hide(made, name, spec)
        if not spec["constructible"] and not made._is_called_inside:
            made.__init__ = _no_constructor(name)  # type: ignore[method-assign]
        elif issubclass(made, Interface) and "__init__" not in vars(made):
            # Its base in TensorRT may have no constructor.
            behind = next(base for base in made.__mro__ if base.__name__ not in self._names)
            made.__init__ = behind.__init__  # type: ignore[method-assign, misc]

    def _nested(self, made: type, name: str, spec: Mapping[str, Any]) -> None:
        """Gives a class the enumerations and constants that are written inside it, such as ``ILogger.Severity``."""
        for text, members in self._description["enums"].items():
            owner, _, inner = text.rpartition(".")
            if owner != name:
                continue
            # Logger and ILogger share one enumeration of severities.
            inherited = getattr(made, inner, None)
            enumeration = inherited or make_enumeration(self._version, text, members, _restored)
            setattr(made, inner, enumeration)
        for constant, value in spec.get("constants", {}).items():
            owner, _, member = value.rpartition(".") if isinstance(value, str) else ("", "", "")
            setattr(made, constant, getattr(getattr(made, owner), member) if owner else value)

    def _methods(self, made: type, name: str, spec: Mapping[str, Any]) -> None:
        """Gives a class its methods, which check their arguments by the signatures of this version."""
        for method, overloads in spec["methods"].items():
            if method.startswith("__") and method != "__init__":
                continue
            signature = Signature(name, method, overloads, self._types)
            if name == "INetworkDefinition" and method in METHODS:
                setattr(made, method, self._adder(method, overloads, signature))
                continue
            function = getattr(made, method, None)
            if method == "__init__" and issubclass(made, Interface):
                continue
            setattr(
                made, method, _checked(method, function or _pure_virtual(name, method), signature)
            )

    def _adder(self, method: str, overloads: Any, signature: Signature) -> Any:
        """Returns the method ``add_*`` of a network for one kind of layer."""
        kind, operation = self._names, METHODS[method]
        interface = operation.interface or overloads[0][1]

        def add(self: NetworkDefinition, *args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(args, kwargs)
            layer = self._add(kind[interface], operation, arguments, method)
            return None if layer is None else layer._held()

        add.__name__ = method
        add.__doc__ = f"{operation.__doc__}\n\nReturns the layer; None, with the reason logged, if it is refused."
        return add

    def _properties(self, made: type[Implementation], name: str, spec: Mapping[str, Any]) -> None:
        """Gives a class its properties, from what is known of them.

        They are attributes of a layer, properties of the implementation, or options that are only stored. Interfaces
        that users derive from have ``None``.
        """
        operation = self._operations.get(name)
        for text, (is_settable, spelling) in spec["properties"].items():
            existing = getattr(made, text, None)
            if operation is not None and (operation.aliases.get(text, text) in operation.defaults):
                attribute = operation.aliases.get(text, text)
                setattr(made, text, self._attribute(attribute, spelling, is_settable, operation))
            elif isinstance(existing, property):
                if existing.fset is not None and is_settable:
                    setattr(made, text, self._converting(existing, spelling))
                elif existing.fset is not None:
                    setattr(made, text, property(existing.fget, doc=existing.__doc__))
            elif text in made._stored:
                default = made._stored[text]
                setattr(made, text, self._stored_property(text, spelling, is_settable, default))
            elif issubclass(made, Interface):
                setattr(made, text, None)

    def _converting(self, existing: property, spelling: str | None) -> property:
        convert, fset = self._types.converter(spelling), existing.fset
        assert fset is not None

        def set_(self: Any, value: Any) -> None:
            fset(self, convert(value))

        return property(existing.fget, set_, doc=existing.__doc__)

    def _attribute(
        self, attribute: str, spelling: str | None, is_settable: bool, operation: Operation
    ) -> property:
        """Returns the property of a layer's attribute, which converts what it is given."""
        if spelling in ("object", "numpy.ndarray"):
            is_weights = attribute in operation.weights_roles
            spelling = (
                "Weights" if is_weights else operation.property_types.get(attribute, spelling)
            )
        convert, show = self._types.converter(spelling), self._shower(spelling)

        def get(self: Any) -> Any:
            return show(operation.read(self, attribute))

        def set_(self: Any, value: Any) -> None:
            converted = stored(convert(value))
            try:
                operation.write(
                    self, attribute, tuple(converted) if isinstance(converted, list) else converted
                )
            except RefusedError as error:
                self._network._error(f"{self._name}: {error}. The layer keeps its {attribute}.")
            self._invalidate()

        return property(get, set_ if is_settable else None, doc=f"The layer's {attribute}.")

    def _stored_property(
        self, text: str, spelling: str | None, is_settable: bool, default: Any
    ) -> property:
        """Returns the property of an option that is only stored. It takes ``None`` where ``None`` is its default."""
        nullable = default is None
        convert, show = self._types.converter(spelling), self._shower(spelling)
        if spelling in (None, "None"):
            convert, show = (lambda value: value), (lambda value: value)

        def get(self: Any) -> Any:
            return show(self._values.get(text, default))

        def set_(self: Any, value: Any) -> None:
            self._values[text] = None if value is None and nullable else stored(convert(value))

        return property(get, set_ if is_settable else None, doc=f"The option {text}.")

    def _shower(self, spelling: str | None) -> Any:
        """How a stored value is shown: the inverse of a converter."""
        kind = self._names.get(spelling or "")
        if isinstance(kind, type) and issubclass(kind, Enumeration):
            members = kind.__members__
            return lambda value: None if value is None else members[value]
        if spelling in ("Dims", "DimsHW"):
            dims: Any = self._class(spelling)
            unset = None if RULES[self._version].unset_dims_are_none else "invalid"
            return lambda value: (
                dims(value) if value is not None else unset and self._names["Dims"]._invalid()
            )
        if spelling == "Permutation":
            permutation: Any = self._class("Permutation")
            return lambda value: permutation(range(8) if value is None else value)
        if spelling == "Weights":
            weights: Any = self._class("Weights")
            return lambda value: (weights() if value is None else value).numpy()
        if (spelling or "").startswith("List["):
            return lambda value: list(value or ())
        return lambda value: value

    def _hide(self, made: type, name: str, spec: Mapping[str, Any]) -> None:
        """Removes the names that an implementation has and TensorRT's class does not."""
        public = set(spec["methods"]) | set(spec["properties"]) | set(spec.get("constants", {}))
        for base in made.__mro__[1:]:
            if base.__name__ in self._description["classes"] and base is self._names.get(
                base.__name__
            ):
                inherited = self._description["classes"][base.__name__]
                public |= (
                    set(inherited["methods"])
                    | set(inherited["properties"])
                    | set(inherited.get("constants", {}))
                )
        own = (key for base in made.__mro__ if base not in (object, bytes) for key in vars(base))
        for key in sorted(set(own)):
            is_folding_disabled = key in public or key.startswith("_") or key == "Severity"
            if not is_folding_disabled and not isinstance(vars(made).get(key), _Absent):
                setattr(
                    made,
                    key,
                    _Absent(
                        f"TensorRT {self._version} {name} has no attribute {key!r} (reference)."
                    ),
                )


def _checked(method: str, function: Any, signature: Signature) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        # By position: some argument names of the bindings are swapped or meaningless.
        return function(self, *signature.bind(args, kwargs).values())

    call.__name__ = method
    call.__doc__ = function.__doc__
    return call


def _pure_virtual(owner: str, method: str) -> Any:
    """Returns a method that raises an error: users must override it, or the reference does not have it."""

    def call(self: Any, *args: Any) -> Any:
        if isinstance(self, Interface):
            message = f'Tried to call pure virtual function "{owner}::{method}"'
            raise RuntimeError(message)
        message = (
            f"The reference TensorRT has no {owner}.{method}: "
            "docs/reference-tensorrt.md says what it leaves out."
        )
        raise NotImplementedError(message)

    call.__doc__ = "To be overridden."
    return call


def _no_constructor(name: str) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        message = f"{name}: No constructor defined!"
        raise TypeError(message)

    return __init__


def _unpicklable(self: Any, protocol: Any) -> Any:
    message = f"cannot pickle {type(self).__name__!r} object"
    raise TypeError(message)
