"""``tensorrt`` as adopted modules see it: the TensorRT in use when a name is used, not when it was imported."""

from __future__ import annotations

import enum
import functools
import types
from typing import Any

from torchtrt.tensorrt import trt


class _Late(type):
    """The kind of a class that stands for a class of the TensorRT in use."""

    _name: str

    def _current(cls) -> Any:
        return getattr(trt, cls._name)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._current())

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, cls._current())

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._current()(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._current(), name)


@functools.cache
def late_class(name: str) -> Any:
    """Returns a class that stands for ``trt.<name>`` in ``isinstance``, in annotations and when it is called."""
    return _Late(name, (), {"_name": name, "__module__": "tensorrt"})


class TensorRTModule(types.ModuleType):
    """The module ``tensorrt``: it forwards to the TensorRT in use."""

    def __getattr__(self, name: str) -> Any:
        if name == "tensorrt":  # the package has a module of its own name inside
            return self
        value = getattr(trt, name)
        is_plain_class = isinstance(value, type) and not issubclass(value, enum.Enum)
        return late_class(name) if is_plain_class else value


TENSORRT = TensorRTModule("tensorrt", "The TensorRT in use.")
