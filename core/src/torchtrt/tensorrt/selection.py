"""Chooses the TensorRT in use and gives it one name, ``trt``.

The installed ``tensorrt`` is built in, under the name ``real``. Others are found through the entry-point group
``torchtrt.tensorrt``. An entry names a module with ``VERSIONS``, the versions that it implements, and with
``load(version)``. This function returns an object that is used like the module ``tensorrt``; without a version it
chooses one. The module may also have

- ``DESCRIPTION``, a sentence about it for users,
- ``INTERFACE``, the version of TensorRT whose interface it has, where its own versions count differently,
- ``DEVICES``, the devices that run its engines, in words,
- ``COMPUTE_CAPABILITIES``, the compute capabilities that engines run on without a stated target: ``("8.6", "12.0+")``,
- ``device_objection(device)``, which returns why engines do not run on a PyTorch device (``""`` where they do); without
  it they run on CUDA and on the CPU. ``device_objection(device, targets)`` is for an engine of stated targets,
- ``capability_objection(name)``, which declares what the implementation can do here: for the name of a
  ``torchtrt.capability.Capability`` it returns ``""`` if the implementation has it, the reason if it lacks it, and
  ``None`` if the names in its module decide.

A module that wraps a TensorRT names it as ``__wrapped__``, as functions do, and counts as that one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchtrt.errors import TensorRTUnavailableError
from torchtrt.packs import TENSORRTS
from torchtrt.packs.extensions import installed, module_of

if TYPE_CHECKING:
    import torch

ENVIRONMENT_VARIABLE = "TORCHTRT_TENSORRT"

_chosen: ContextVar[Any] = ContextVar("torchtrt_tensorrt", default=None)
_lock = threading.Lock()
_loaded: dict[int, tuple[str, ModuleType]] = {}
"""The name and the entry point's module of each TensorRT loaded so, by identity; they are never unloaded."""


class _TensorRT:
    """Forwards every attribute to the TensorRT in use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(current(), name)

    def __repr__(self) -> str:
        return f"<TensorRT in use: {describe()}>"


trt: Any = _TensorRT()
"""The TensorRT in use, with the interface of the ``tensorrt`` module."""


def current() -> Any:
    """Returns the module that ``trt`` forwards to now, choosing one on first use."""
    return _chosen.get() or _default()


@contextlib.contextmanager
def use_tensorrt(spec: str) -> Iterator[Any]:
    """Uses another TensorRT inside a ``with`` block, in this thread (or task) only.

    Args:
        spec: ``"auto"``, ``"real"``, or an installed one: ``"reference"``, ``"reference@VERSION"``. ``"auto"`` is the
            installed ``tensorrt``, TensorRT for RTX or the reference, the first one that suits the machine.

    Yields:
        The TensorRT module.

    Raises:
        TensorRTUnavailableError: There is no such TensorRT here.
    """
    with use_module(load(spec)) as module:
        yield module


@contextlib.contextmanager
def use_module(module: Any) -> Iterator[Any]:
    """Uses a TensorRT that ``current`` returned earlier inside a ``with`` block."""
    token = _chosen.set(module)
    try:
        yield module
    finally:
        _chosen.reset(token)


@functools.lru_cache(maxsize=1)
def _default() -> Any:
    return load(os.environ.get(ENVIRONMENT_VARIABLE, "auto"))


def load(spec: str) -> Any:
    """Returns the TensorRT that ``spec`` names; see ``use_tensorrt``."""
    if not isinstance(spec, str):
        raise TensorRTUnavailableError(
            f"use_tensorrt() takes the name of a TensorRT, such as 'reference@10.16.1', not {spec!r}."
        )
    if _chosen.get() is not None and spec == describe():
        return _chosen.get()  # also where it wraps the one of this name
    name, _, wanted_version = spec.strip().partition("@")
    if name == "auto" and not wanted_version:
        name = _automatic()
    if name == "real" and not wanted_version:
        return _load_real()
    return _load_installed(name, wanted_version)


def _automatic() -> str:
    """Returns the name of the TensorRT for this machine.

    With a GPU, that is the installed ``tensorrt``, or else an implementation that declares that it runs engines on this
    GPU. Otherwise, it is the first implementation by name.
    """
    import torch

    extensions = installed(TENSORRTS)
    names = sorted(extensions)
    if torch.cuda.is_available():
        if importlib.util.find_spec("tensorrt") is not None:
            return "real"
        gpu = torch.device("cuda", torch.cuda.current_device())
        names.sort(key=lambda name: not _is_for(module_of(extensions[name]), gpu))
    return next(iter(names), "reference")


def _is_for(module: ModuleType | str, device: torch.device) -> bool:
    """Returns whether an implementation is installed whole and declares that it runs engines on a device."""
    if isinstance(module, str):  # why it cannot be imported
        return False
    objection = getattr(module, "device_objection", None)
    return objection is not None and bool(module.VERSIONS) and not objection(device)


def _load_installed(name: str, wanted_version: str) -> Any:
    """Returns the module of an installed TensorRT, in the version that is wanted.

    Raises:
        TensorRTUnavailableError: There is none of this name or version, or it cannot be imported.
    """
    extensions = installed(TENSORRTS)
    if name not in extensions:
        options = ", ".join(repr(option) for option in ("auto", "real", *sorted(extensions)))
        if "reference" in extensions:
            advice = "A version follows an @, such as 'reference@10.16.1'."
        else:
            advice = "`pip install torchtrt-reference` brings one that runs anywhere."
        raise TensorRTUnavailableError(
            f"No TensorRT named {name!r} is installed. {ENVIRONMENT_VARIABLE} and use_tensorrt(...) take {options}. "
            f"{advice}"
        )
    extension = extensions[name]
    module = module_of(extension)
    if isinstance(module, str):
        message = f"The TensorRT {name!r} ({extension.info.origin}) cannot be used: {module}."
        raise TensorRTUnavailableError(message)
    versions = tuple(module.VERSIONS)
    if wanted_version and versions and wanted_version not in versions:
        raise TensorRTUnavailableError(
            f"The TensorRT {name!r} has no version {wanted_version!r}. Select one that it has: "
            f"{', '.join(versions)}."
        )
    with _lock:
        loaded = module.load(wanted_version or None)
        _loaded[id(loaded)] = (name, module)
    return loaded


def _load_real() -> Any:
    try:
        return importlib.import_module("tensorrt")
    except Exception as error:
        raise TensorRTUnavailableError(
            f"The tensorrt package cannot be used here: {type(error).__name__}: {error}. Install it with "
            "`pip install tensorrt`, or run anywhere with torchtrt-reference installed and "
            f"{ENVIRONMENT_VARIABLE}=reference."
        ) from error


def is_real() -> bool:
    """Returns whether the TensorRT in use is the installed ``tensorrt``, which builds and runs on a GPU."""
    return implementation() is None


def implementation(module: Any = None) -> ModuleType | None:
    """Returns the module of the entry point that a TensorRT came through; ``None`` if it is ``tensorrt``.

    Args:
        module: The TensorRT; the one in use if omitted.
    """
    return _origin(module or current())[1]


def _origin(module: Any) -> tuple[str, ModuleType | None]:
    """Returns the name and the entry point's module of a TensorRT, or of the one that it wraps."""
    return _loaded.get(id(inspect.unwrap(module)), ("", None))


def default_compute_capabilities() -> tuple[str, ...]:
    """Returns the compute capabilities that engines run on without a stated target; empty if none is known."""
    return tuple(getattr(implementation(), "COMPUTE_CAPABILITIES", ()))


def device_objection(device: torch.device, targets: Sequence[str] = ()) -> str:
    """Returns why the TensorRT in use runs no engine on a device; ``""`` where it does.

    Args:
        device: The device.
        targets: The compute capabilities that the engine was built for, if any were stated.
    """
    declared = getattr(implementation(), "device_objection", None)
    if declared is not None:
        return str(declared(device, targets) if targets else declared(device))
    supported = ("cuda",) if is_real() else ("cuda", "cpu")
    if device.type in supported:
        return ""
    names = " and ".join(map(str.upper, supported))
    return f"{describe()} runs on {names} tensors, and the tensors are on {device}"


def devices() -> str:
    """Returns the devices that run engines of the TensorRT in use, in words."""
    default = "NVIDIA GPUs" if is_real() else "the CPU and NVIDIA GPUs"
    return str(getattr(implementation(), "DEVICES", default))


def version() -> str:
    """Returns the version of TensorRT, such as ``"10.16.1"``, whose interface the TensorRT in use has."""
    return str(getattr(implementation(), "INTERFACE", current().__version__))


def describe_gpu() -> str:
    """Returns the GPU that engines are built for, ``"NVIDIA H200 (9.0)"``; ``""`` for a TensorRT that needs none."""
    if not is_real():
        return ""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()} ({major}.{minor})"


def describe() -> str:
    """Returns the name of the TensorRT in use: ``"reference@11.4.0"``, ``"rtx@1.7.1.116"``, ``"TensorRT 10.16.1"``."""
    name, _ = _origin(current())
    own_version = current().__version__
    return f"{name}@{own_version}" if name else f"TensorRT {own_version}"
