"""The state of a model that its ``forward`` can read, and whether it is still the same.

A program is exported for the Python values that the model had: numbers, switches, lists, and the modules themselves.
Tensors are another matter: their values can be given to a program, as long as their form is the same.
"""

from __future__ import annotations

import operator
import re
import sys
from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping
from enum import Enum
from itertools import chain
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from torchtrt.graphs.memory import storage_of
from torchtrt_follow.libraries import labels_of, only_collects, scales_of
from torchtrt_runtime.weights.marks import WatchedWeights, layout_of, version_of

_PLAIN = frozenset({
    int, float, complex, bool, str, bytes, type(None), range, torch.dtype, torch.device, torch.Size, torch.layout,
    torch.memory_format,
})  # fmt: skip
"""The types of values that ``repr`` distinguishes; those of NumPy's numbers as well."""
_NAMED = (type, FunctionType, BuiltinFunctionType)
_CODE = (*_NAMED, MethodType, ModuleType)
_MUTABLE = (Mapping, list, set, deque)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module())) - {"training"}
_DEPTH = 6
"""How many containers and objects inside each other are looked into."""


class ModelState:
    """A model's state at one moment.

    Args:
        model: The model. Its own hooks run around its programs, so they are not a part of the state.

    Attributes:
        weights: Its parameters, buffers, and tensors that are attributes, by name.
        scales: The scales of its adapters, by the names of the buffers that stand for them.
        unnamed: Its tensors in containers and objects, by path.
        facts: All else that a program depends on: for each path the value as text, and what distinguishes
            objects of the same text. Models with equal facts have the same programs.
        opaque: The paths of objects whose text and attributes do not say all of what they are.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.weights: dict[str, torch.Tensor] = {}
        self.scales: dict[str, float] = {}
        self.unnamed: dict[str, torch.Tensor] = {}
        self.facts: dict[str, tuple[str, Any]] = {}
        self.opaque: list[str] = []
        self._objects: list[Any] = []  # alive, so that no other object has their identity
        self._containers: list[Any] = []
        self._memories: dict[int, str] = {}
        modules = list(model.named_modules(remove_duplicate=False))
        self._modules = [module for _, module in modules]
        # What follows a model has the same ``__dict__``, and hooks of libraries may refer to it.
        self._paths = {id(vars(module)): path for path, module in modules}
        for path, module in modules:
            self._add_module(path, module)
        self._filled = [container for container in self._containers if container]
        self._mappings = [filled for filled in self._filled if isinstance(filled, Mapping)]
        self._lengths = list(map(len, self._containers))
        self._contents = list(self._read_contents())
        self._watched = WatchedWeights(self.unnamed)

    def is_same(self) -> bool:
        """Returns whether the model holds the objects that it held; tensors with names may have been written to."""
        try:
            return (
                list(map(len, self._containers)) == self._lengths
                and all(map(operator.is_, self._read_contents(), self._contents))
                and not self._watched.have_changed()
            )
        except RuntimeError:  # another thread changes a container
            return False

    def difference(self, other: ModelState, besides: Collection[str] = ()) -> str:
        """Returns the path of the first fact that differs from another state; empty if all are equal.

        Facts on the weights of the names in ``besides`` may differ.
        """
        one, two = self.facts, other.facts
        ignored = {f"{fact} of {name}" for fact in ("form", "memory") for name in besides}
        paths = (path for path in (one | two) if path not in ignored)
        return next((path for path in paths if one.get(path) != two.get(path)), "")

    def tensors(self) -> dict[str, torch.Tensor]:
        """Returns the weights, and tensors for the scales, by name."""
        return self.weights | {name: torch.tensor(scale) for name, scale in self.scales.items()}

    def _read_contents(self) -> Iterator[Any]:
        """Yields keys, values and elements of the containers, and classes, without Python code for each."""
        values = [mapping.values() for mapping in self._mappings]
        return chain(map(type, self._modules), chain.from_iterable([*self._filled, *values]))

    def _add_module(self, path: str, module: torch.nn.Module) -> None:
        """Adds the weights, hooks and attributes of one module."""
        attributes = vars(module)
        prefix, where = (f"{path}.", path) if path else ("", "the model")
        registered = [attributes[name] for name in ("_parameters", "_buffers", "_modules", *_HOOKS)]
        parameters, buffers, modules, *hooks = registered
        self._containers += [attributes, *registered]
        self._add_object(f"class of {where}", type(module))
        for kind, names in (("modules", modules), ("parameters", parameters), ("buffers", buffers)):
            self.facts[f"{kind} of {where}"] = " ".join(names), 0
        acting = [hook for own in hooks for hook in own.values() if not only_collects(hook)]
        for number, hook in enumerate(acting if path else ()):
            self._add_object(f"hook {number} of {where}", hook)
        for name, tensor in (parameters | buffers).items():
            self._add_weight(prefix + name, tensor)
        labels, scales = labels_of(module), scales_of(module)
        for name, value in list(attributes.items()):
            if value is scales:
                self._containers.append(scales)
                named = {prefix + scale_name(own): scale for own, scale in scales.items()}
                self.scales |= {name: float(scale) for name, scale in named.items()}
                self.facts[prefix + name] = " ".join(scales), 0
            elif isinstance(value, torch.Tensor):
                self._add_weight(prefix + name, value)
            elif name not in labels and name not in _OF_EVERY_MODULE:
                self._add(prefix + name, value, _DEPTH)

    def _add_weight(self, name: str, tensor: torch.Tensor | None) -> None:
        self.facts[f"form of {name}"] = form_of(tensor), 0
        if tensor is not None:
            self.weights[name] = tensor
            # A program reads weights that share memory as one.
            if layout_of(tensor):
                first = self._memories.setdefault(storage_of(tensor), name)
                self.facts[f"memory of {name}"] = first, 0

    def _add(self, path: str, value: Any, depth: int) -> None:
        """Adds a value of an attribute, of a container, or of an object."""
        if isinstance(value, torch.Tensor):
            self.unnamed[path] = value
            moment = version_of(value), layout_of(value)
            self._add_object(path, value, form_of(value), moment)
            return
        if isinstance(value, _MUTABLE):
            self._containers.append(value)
        text = _text_of(value)
        if text is not None:
            self.facts[path] = text, 0
            return
        labels, attributes = labels_of(value), _attributes_of(value)
        identity = id(value if attributes is None else attributes)
        first = self._paths.setdefault(identity, path)
        if first != path:
            self.facts[path] = f"as {first or 'the model'}", 0
            return
        if attributes is not None:
            self._containers.append(attributes)
        text = _name_of(value)
        if isinstance(value, Mapping):
            keys = (key for key in list(value) if key not in labels)
            text += f" of {', '.join(_text_of(key) or _name_of(key) for key in keys)}"
        if type(value) in (list, tuple, dict):
            self.facts[path] = text, 0
        else:
            self._add_object(path, value, text)
        # A module in a container is not a child of the model.
        depth = _DEPTH if isinstance(value, torch.nn.Module) else depth
        for step, name, part in _parts_of(value, attributes or {}) if depth else ():
            if name not in labels:
                self._add(path + step, part, depth - 1)

    def _add_object(self, path: str, value: Any, text: str = "", moment: Any = None) -> None:
        """Adds what is compared by its identity."""
        self._objects.append(value)
        self.facts[path] = text or _name_of(value), (id(value), moment)
        if not (isinstance(value, torch.Tensor) or _is_described(value)):
            self.opaque.append(path)


def _attributes_of(value: Any) -> dict[str, Any] | None:
    attributes = getattr(value, "__dict__", None)
    return None if type(attributes) is not dict or isinstance(value, _CODE) else attributes


def _parts_of(value: Any, attributes: Mapping[str, Any]) -> Iterator[tuple[str, Hashable, Any]]:
    """Yields the elements and attributes of an object, each with its step in a path and its key."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", key, part) for key, part in list(value.items()))
    elif isinstance(value, (tuple, *_MUTABLE)):
        yield from ((f"[{number}]", number, part) for number, part in enumerate(list(value)))
    yield from ((f".{name}", name, part) for name, part in list(attributes.items()))


def _text_of(value: Any) -> str | None:
    """Returns a plain value, or several, as text that is the same for equal values in each process; None for others."""
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if isinstance(value, np.generic):
        return f"{kind.__name__} {value!r}"
    if isinstance(value, Enum):
        return f"{_name_of(value)}.{value.name}"
    if kind in (list, tuple, set, frozenset) and all(type(part) in _PLAIN for part in value):
        parts = map(repr, value)
        return f"{kind.__name__}({', '.join(sorted(parts) if 'set' in kind.__name__ else parts)})"
    return None


def _is_described(value: Any) -> bool:
    """Returns whether an object's name, attributes and elements say what it is, in another process as well.

    They do if Python would pickle nothing else of it.
    """
    if isinstance(value, _NAMED):
        named: Any = sys.modules.get(value.__module__ or "")
        for name in value.__qualname__.split("."):
            named = getattr(named, name, None)
        return named is value
    kind: Any = type(value)
    has_elements = issubclass(kind, (tuple, *_MUTABLE))
    return (
        has_elements
        or (kind.__reduce__ is object.__reduce__ and not hasattr(kind, "__getnewargs__"))
    ) and not any(vars(base).get("__slots__") for base in kind.__mro__)


def _name_of(value: Any) -> str:
    named = value if isinstance(value, _NAMED) else type(value)
    return f"{getattr(named, '__module__', None) or type(named).__module__}.{named.__qualname__}"


def form_of(tensor: torch.Tensor | None) -> str:
    """Returns as text what a program is exported for of a weight; its device is where the inputs are."""
    if tensor is None:
        return "None"
    text = f"{type(tensor).__name__} {tensor.dtype} {tensor.layout}{' inference' * tensor.is_inference()}"
    try:
        return f"{text} {list(tensor.shape)} {list(tensor.stride())}"
    except RuntimeError:  # of a nested or sparse tensor, or of a lazy module
        return text


def scale_name(adapter: str) -> str:
    """Returns the name of the buffer that stands for the scale of an adapter."""
    return "torchtrt_scale_" + re.sub(r"\W", lambda match: f"_{ord(match[0])}_", adapter)
