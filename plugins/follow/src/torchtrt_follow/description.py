"""The state of a model as text, to compare with that of a model in another process."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import torch

from torchtrt_follow.libraries import is_idle, only_collects
from torchtrt_follow.state import PLAIN, ModelState
from torchtrt_runtime.weights.recipe import digest

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def describe(model: torch.nn.Module, state: ModelState) -> list[str]:
    """Returns what a program depends on: the model's Python state, the form of its weights, and its code.

    The values of weights are left out, and so are the hooks of the model itself, which run around programs.

    Args:
        model: The model.
        state: Its state.
    """
    lines = {
        f"modules of {path or 'the model'}: {' '.join(names)}" for path, names in _order(state)
    }
    idle: list[str] = []  # the places of registries without hooks, before what is in them
    for path, keys, values, is_fixed in state.containers():
        owner, _, kind = path.rpartition(".")
        idle += _idle(path, keys, values)
        if any(f"{path}.".startswith(f"{place}.") for place in idle):
            continue
        if kind in _HOOKS:
            hooks = [text_of(each) for each in values if not only_collects(each)]
            lines |= {f"{path}: {each}" for each in hooks if owner}
        else:
            lines |= _entries(path, keys, values, is_fixed)
    lines |= {f"form of {name}: {text_of(form)}" for name, form in state.forms()}
    unnamed = ", ".join(digest(tensor) for tensor, *_ in state.unnamed)
    memory = ", ".join(hashlib.sha256(each).hexdigest() for each in state.contents())
    devices = {str(each.device) for each in state.weights.values()}
    lines |= {f"tensors in containers: {unnamed}", f"arrays: {memory}"}
    lines |= {f"devices: {', '.join(sorted(devices))}", *_code(model, state)}
    return sorted(lines)


def _idle(path: str, keys: Sequence[Any] | None, values: Sequence[Any]) -> list[str]:
    """Returns the places of a container's registries that have no hooks, neither for their module nor inside of it."""
    return [
        f"{path}.{key}".lstrip(".")
        for key, value in zip(keys or (), values, strict=False)
        if is_idle(value)
    ]


def _order(state: ModelState) -> Iterator[tuple[str, list[str]]]:
    """Yields the modules of each module in their order, in which a ``torch.nn.Sequential`` calls them."""
    for path, keys, _, _ in state.containers():
        owner, _, kind = path.rpartition(".")
        if kind == "_modules" and keys:
            yield owner, list(map(str, keys))


def _entries(
    path: str, keys: Sequence[Any] | None, values: Sequence[Any], is_fixed: bool
) -> set[str]:
    """Returns a line for each entry of a container."""
    names: Sequence[Any] = range(len(values)) if keys is None else keys
    return {
        f"{path}.{name if isinstance(name, str) else text_of(name)} = {text_of(value) if is_fixed else ''}"
        for name, value in zip(names, values, strict=True)
        if not is_idle(value)
    }


def text_of(value: Any) -> str:
    """Returns a value as text that is the same in each process; of objects, only the class."""
    if isinstance(value, Enum):
        return f"{_name(type(value))}.{value.name}"
    if isinstance(value, (*PLAIN, torch.layout)):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(text_of, value))})"
    if isinstance(value, partial):
        return f"partial of {text_of(value.func)}"
    if isinstance(value, MethodType):
        return f"method {text_of(value.__func__)}"
    return _name(
        value if isinstance(value, type) or hasattr(value, "__qualname__") else type(value)
    )


def _name(value: Any) -> str:
    return f"{_module_of(value)}.{value.__qualname__}"


def _module_of(value: Any) -> str:
    return getattr(value, "__module__", None) or type(value).__module__


def _code(model: torch.nn.Module, state: ModelState) -> Iterator[str]:
    """Yields the versions of the libraries, and the digests of the files, whose code a model runs."""
    places = {type(each).__module__ for each in model.modules()}
    for _, _, values, _ in state.containers():
        functions = [value for value in values if isinstance(value, FunctionType)]
        places |= {each.__module__ for each in functions if not only_collects(each)}
    for place in sorted(filter(None, places)):
        file = getattr(sys.modules.get(place), "__file__", None)
        content = Path(file).read_bytes() if file and Path(file).is_file() else b""
        yield f"code of {place}: {hashlib.sha256(content).hexdigest()}"
    roots = {place.partition(".")[0] for place in filter(None, places)} | {"torch"}
    for root in sorted(roots):
        for name in _distributions().get(root, ())[:1]:
            yield f"version of {name}: {importlib.metadata.version(name)}"


@functools.cache
def _distributions() -> Mapping[str, Sequence[str]]:
    """Returns the distributions of each importable name; to read them takes a third of a second."""
    return importlib.metadata.packages_distributions()


_OF_THE_PROGRAM = ("modules of ", "form of ", "devices: ")


def differences(saved: Sequence[str], now: Sequence[str]) -> tuple[str, str]:
    """Returns the first difference that makes another program, and the first that may; empty where there is none."""
    before, after = set(saved), set(now)
    gone = [each for each in saved if each not in after]
    new = [each for each in now if each not in before]
    certain = [
        [each for each in lines if each.startswith(_OF_THE_PROGRAM)] for lines in (gone, new)
    ]
    return _difference(*certain), _difference(gone, new)


def _difference(gone: Sequence[str], new: Sequence[str]) -> str:
    if not gone:
        return f"it has {new[0]!r}" if new else ""
    about = gone[0].partition(" = ")[0].partition(": ")[0]
    other = next((each for each in new if each.startswith(about)), None)
    return f"it has {other!r} and not {gone[0]!r}" if other else f"it does not have {gone[0]!r}"
