"""The state of a model that its ``forward`` can read, and whether it is still the same.

A program is exported for the Python values that the model had: numbers, switches, lists, and the modules themselves.
Tensors are another matter: their values can be given to a program, as long as their form is the same.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import chain
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from torchtrt_follow.libraries import labels_of, scales_of
from torchtrt_follow.weights import WeightMark


class NoState:
    """An object that a model may refer to, and whose attributes its ``forward`` does not read."""


_SLOTS = ("_parameters", "_buffers")
_NAMESPACES = ("_modules", "_forward_hooks", "_forward_pre_hooks")
_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
"""The types of values that ``repr`` distinguishes."""
_ATOMS = (
    *PLAIN, Enum, type, FunctionType, BuiltinFunctionType, ModuleType, torch.Generator,
    NoState,
)  # fmt: skip
_DEEPEST = 6
"""How many containers and objects inside each other are looked into."""


class Change(Enum):
    """How a model differs from a state of it.

    Attributes:
        NONE: It does not.
        WEIGHTS: Tensors were replaced by others of the same form, or lists by equal ones.
        STRUCTURE: Anything else: another program may be the right one.
    """

    NONE = 0
    WEIGHTS = 1
    STRUCTURE = 2


class _Values:
    """The values of a container, or of an object's attributes.

    Args:
        path: What leads to it from the model, for messages.
        live: The container.
        is_fixed: Whether its values, and not its keys alone, belong to the state.
        labels: The keys of values that do not belong to the state.
    """

    __slots__ = ("is_fixed", "keys", "labels", "live", "path", "values")

    def __init__(
        self,
        path: str,
        live: Any,
        is_fixed: bool = True,
        labels: frozenset[str] = frozenset(),
    ) -> None:
        self.path = path
        self.live = live
        self.is_fixed = is_fixed
        self.labels = labels
        self.keys, self.values = _content(live, labels)

    def is_same(self) -> bool:
        """Returns whether it has the values that it had: the same objects, or equal numbers and text."""
        keys, values = _content(self.live, self.labels)
        if keys != self.keys or len(values) != len(self.values):
            return False
        if not self.is_fixed or all(map(operator.is_, values, self.values)):
            return True
        if not all(map(_is_equal, values, self.values)):
            return False
        self.values = values
        return True

    def differences(self) -> Iterator[tuple[str, Any, Any]]:
        """Yields the places that have other values, with the old value and the new one."""
        keys, values = _content(self.live, self.labels)
        if keys is not None and self.keys is not None and keys != self.keys:
            new = [key for key in (*keys, *self.keys) if not (key in keys and key in self.keys)]
            yield f"{self.path}.{new[0]}".lstrip(".") if new else self.path, None, None
            return
        if len(values) != len(self.values):
            yield self.path, None, None
            return
        names = keys if keys is not None else range(len(values))
        for name, old, new in zip(names, self.values, values, strict=True):
            if not _is_equal(old, new):
                yield (f"{self.path}.{name}" if self.path else str(name)), old, new


def _content(live: Any, labels: frozenset[str]) -> tuple[list[Any] | None, list[Any]]:
    if isinstance(live, Mapping):
        if labels:
            live = {key: value for key, value in live.items() if key not in labels}
        return list(live), list(live.values())
    return None, list(live)


def _is_equal(one: Any, other: Any) -> bool:
    """Returns whether two values are the same object, or numbers or text of one type that ``repr`` writes alike."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if type(one) is tuple:
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return isinstance(one, PLAIN) and repr(one) == repr(other)


def _are_equal_lists(one: Any, other: Any) -> bool:
    """Returns whether both are lists of the same numbers and text, as PEFT assigns when adapters are switched."""
    return (
        type(one) is type(other) is list
        and len(one) == len(other)
        and all(map(_is_equal, one, other))
    )


class ModelState:
    """A model's state at one time.

    Args:
        model: The model.

    Attributes:
        weights: Its tensors by name: parameters, buffers and plain attributes.
        unnamed: Its tensors in containers, which have no names, as they were.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._values: list[_Values] = []
        self._slots: list[tuple[str, Any, str, torch.Tensor | None, Any]] = []
        self._buffers: list[tuple[Any, bytes]] = []
        modules = list(_modules(model))
        self._seen: dict[int, Any] = {id(module): module for _, module in modules}
        # What follows a model shares its attributes, and hooks of libraries may refer to it.
        self._seen |= {id(vars(module)): vars(module) for _, module in modules}
        self._modules = [module for _, module in modules]
        self._classes = [type(module) for module in self._modules]
        self.unnamed: list[WeightMark] = []
        self.weights: dict[str, torch.Tensor] = {}
        for path, module in modules:
            self._add_module(path, module)
        self._snapshot = _Snapshot([values.live for values in self._values])

    def _add_module(self, path: str, module: torch.nn.Module) -> None:
        """Notes the attributes, tensors and containers of one module."""
        prefix = f"{path}." if path else ""
        attributes = vars(module)
        numbers = scales_of(module)
        self._values.append(_Values(path, attributes, labels=labels_of(module)))
        for name in _NAMESPACES:
            self._values.append(_Values(f"{prefix}{name}", attributes[name]))
        for kind in _SLOTS:
            self._values.append(_Values(f"{prefix}{kind}", attributes[kind], is_fixed=False))
            for name, tensor in attributes[kind].items():
                self._add_slot(prefix + name, attributes[kind], name, tensor)
        for name, value in attributes.items():
            if name in _OF_EVERY_MODULE:
                continue
            if isinstance(value, torch.Tensor):
                self._add_slot(prefix + name, attributes, name, value)
            else:
                self._look_into(prefix + name, value, _DEEPEST, value is numbers)

    def containers(self) -> Iterator[tuple[str, Sequence[Any] | None, Sequence[Any], bool]]:
        """Yields path, keys and values of what the state holds, and whether the values belong to it.

        The values of a set are in an order that is the same in each process.
        """
        for each in self._values:
            is_set = isinstance(each.live, set | frozenset)
            values = sorted(each.values, key=repr) if is_set else each.values
            yield each.path, each.keys, values, each.is_fixed

    def forms(self) -> Iterator[tuple[str, Any]]:
        """Yields the name and the form of each parameter, buffer and plain attribute that is a tensor."""
        for name, _, _, _, form in self._slots:
            yield name, form

    def contents(self) -> Iterator[bytes]:
        """Yields what is in memory that can be written to without PyTorch."""
        for _, content in self._buffers:
            yield content

    def _add_slot(self, name: str, holder: Any, key: str, tensor: torch.Tensor | None) -> None:
        self._slots.append((name, holder, key, tensor, form_of(tensor)))
        if tensor is not None:
            self.weights[name] = tensor

    def _look_into(self, path: str, value: Any, depth: int, are_numbers: bool = False) -> None:
        """Notes the tensors and values that an attribute holds, down to a depth."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self._seen:
                self._seen[id(value)] = value
                self.unnamed.append(WeightMark.of(value))
            return
        if isinstance(
            value, torch.nn.Module
        ):  # in a container, so that it is none of the model's own
            depth = _DEEPEST
        if isinstance(value, _ATOMS) or depth == 0 or self._has_seen(value):
            return
        self._seen[id(value)] = value
        self._add_buffer(value)
        labels = labels_of(value)
        if slots := _Slots(value):
            self._values.append(_Values(path, slots))
        if isinstance(value, Mapping | list | set | frozenset | deque):
            self._values.append(_Values(path, value, not are_numbers, labels))
        for name, each in _parts(value, labels):
            self._look_into(f"{path}.{name}", each, depth - 1)
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is dict and attributes is not value:
            self._values.append(_Values(path, attributes, labels=labels))
            for name, each in _parts(attributes, labels):
                self._look_into(f"{path}.{name}", each, depth - 1)

    def _has_seen(self, value: Any) -> bool:
        return id(value) in self._seen or id(getattr(value, "__dict__", None)) in self._seen

    def _add_buffer(self, value: Any) -> None:
        """Adds the contents of what can be written to without PyTorch, such as an array of NumPy."""
        content = _bytes_of(value)
        if content is not None:
            self._buffers.append((value, content))

    def holds(self) -> bool:
        """Returns whether the model is surely as it was, but for what its tensors are in place."""
        return (
            self._snapshot.is_same() and not self._has_unnamed_changed() and self._has_its_classes()
        )

    def _has_its_classes(self) -> bool:
        return all(map(operator.is_, map(type, self._modules), self._classes))

    def _has_unnamed_changed(self) -> bool:
        return any(mark.has_changed() for mark in self.unnamed) or any(
            _bytes_of(each) != content for each, content in self._buffers
        )

    def compare(self) -> tuple[Change, str]:
        """Returns how the model differs now, and the place of the first difference."""
        change = Change.NONE
        for values in self._values:
            for path, old, new in () if values.is_same() else values.differences():
                is_tensor = isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor)
                if _are_equal_lists(old, new):
                    change = Change.WEIGHTS  # so that the new list is looked into from now on
                elif not is_tensor or path not in self.weights:
                    return Change.STRUCTURE, path
        if self._has_unnamed_changed():
            return Change.STRUCTURE, "a tensor in a container, or an array"
        if not self._has_its_classes():
            return Change.STRUCTURE, "the class of a module"
        for name, holder, key, old_tensor, form in self._slots:
            now = holder.get(key)
            if form_of(now) != form:  # tensors change theirs in place as well
                return Change.STRUCTURE, name
            if now is not old_tensor:
                change = Change.WEIGHTS
        self._snapshot = _Snapshot([values.live for values in self._values])
        return change, ""


class _Snapshot:
    """The objects in many containers, compared by identity in one pass without Python code for each.

    Args:
        containers: The containers.
    """

    def __init__(self, containers: list[Any]) -> None:
        full = [each for each in containers if len(each)]
        self._empty = [each for each in containers if not len(each)]
        self._mappings = [each for each in full if isinstance(each, Mapping)]
        self._others = [each for each in full if not isinstance(each, Mapping)]
        self._lengths = self._sizes()
        self._held = list(self._objects())

    def _sizes(self) -> list[int]:
        return [*map(len, self._mappings), *map(len, self._others)]

    def _objects(self) -> Iterator[Any]:
        return chain(
            chain.from_iterable(self._mappings),
            chain.from_iterable([each.values() for each in self._mappings]),
            chain.from_iterable(self._others),
        )

    def is_same(self) -> bool:
        """Returns whether the containers hold the objects that they held."""
        if any(self._empty) or self._sizes() != self._lengths:
            return False
        return all(map(operator.is_, self._objects(), self._held))


def _modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields modules with all of their names, as the names of their weights follow from them."""
    yield from model.named_modules(remove_duplicate=False)


def _parts(value: Any, labels: frozenset[str]) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from ((name, each) for name, each in value.items() if name not in labels)
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from enumerate(value)
    elif isinstance(value, partial):
        yield from enumerate((value.func, value.args, value.keywords))
    elif isinstance(value, MethodType):
        yield "__self__", value.__self__
    yield from _Slots(value).items()


def _bytes_of(value: Any) -> bytes | None:
    """Returns the contents of an object with memory that can be written to; None for any other."""
    try:
        with memoryview(value) as view:
            return None if view.readonly else view.tobytes()
    except (TypeError, ValueError, BufferError, NotImplementedError):
        return None


class _Slots(Mapping[str, Any]):
    """The attributes that an object has in slots of its classes.

    Args:
        owner: The object.
    """

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._slots = {
            name: member
            for each in reversed(type(owner).__mro__)
            if "__slots__" in vars(each)
            for name, member in vars(each).items()
            if isinstance(member, MemberDescriptorType)
        }

    def __getitem__(self, name: str) -> Any:
        return self._slots[name].__get__(self._owner)

    def __iter__(self) -> Iterator[str]:
        return (name for name, member in self._slots.items() if self._is_set(member))

    def __len__(self) -> int:
        return sum(map(self._is_set, self._slots.values()))

    def _is_set(self, member: Any) -> bool:
        try:
            member.__get__(self._owner)
        except AttributeError:
            return False
        return True


def form_of(tensor: Any) -> Any:
    """Returns what a program is exported for of a weight; its device is where the inputs are."""
    if not isinstance(tensor, torch.Tensor):
        return type(tensor)
    kind = type(tensor), tensor.dtype, tensor.layout
    if is_lazy(tensor) or tensor.is_nested or tensor.layout is not torch.strided:
        return *kind, None if is_lazy(tensor) or tensor.is_nested else tensor.shape
    return *kind, tensor.shape, tensor.stride()
