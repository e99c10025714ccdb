"""Chooses the TensorRT in use and gives it one name, ``trt``."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from torchtrt.errors import TensorRTUnavailableError

ENVIRONMENT_VARIABLE = "TORCHTRT_TENSORRT"

_chosen: ContextVar[Any] = ContextVar("torchtrt_tensorrt", default=None)


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
        spec: ``"auto"``, ``"real"``, ``"reference"`` or ``"reference@VERSION"``.

    Yields:
        The TensorRT module.

    Raises:
        TensorRTUnavailableError: There is no such TensorRT here.
    """
    with use_module(load(spec)) as module:
        yield module


@contextlib.contextmanager
def use_module(module: Any) -> Iterator[Any]:
    """Uses a TensorRT that :func:`current` returned earlier inside a ``with`` block."""
    token = _chosen.set(module)
    try:
        yield module
    finally:
        _chosen.reset(token)


@functools.lru_cache(maxsize=1)
def _default() -> Any:
    return load(os.environ.get(ENVIRONMENT_VARIABLE, "auto"))


def load(spec: str) -> Any:
    """Returns the TensorRT that ``spec`` names; see :func:`use_tensorrt`."""
    kind, _, wanted_version = spec.strip().partition("@")
    if kind == "auto":
        return _load_real() if _real_is_usable() else _load_reference("")
    if kind == "real" and not wanted_version:
        return _load_real()
    if kind == "reference":
        return _load_reference(wanted_version)
    message = (
        f"{spec!r} names no TensorRT. Use 'auto', 'real', 'reference' or 'reference@VERSION' in "
        f"{ENVIRONMENT_VARIABLE} or use_tensorrt(...)."
    )
    raise TensorRTUnavailableError(message)


def _load_reference(wanted_version: str) -> Any:
    from torchtrt import reference

    if wanted_version and wanted_version not in reference.VERSIONS:
        message = (
            f"The reference TensorRT does not speak version {wanted_version!r}. "
            f"It speaks {', '.join(reference.VERSIONS)}."
        )
        raise TensorRTUnavailableError(message)
    return reference.load(wanted_version or None)


def _load_real() -> Any:
    try:
        return importlib.import_module("tensorrt")
    except Exception as error:
        message = (
            f"The tensorrt package cannot be used here: {type(error).__name__}: {error}. Install it with "
            "`pip install torchtrt[tensorrt]`, or run anywhere with "
            f"{ENVIRONMENT_VARIABLE}=reference."
        )
        raise TensorRTUnavailableError(message) from error


def _real_is_usable() -> bool:
    import torch

    return importlib.util.find_spec("tensorrt") is not None and torch.cuda.is_available()


def is_reference() -> bool:
    """Returns whether the TensorRT in use is the reference, which runs without a GPU."""
    from torchtrt import reference

    return bool(reference.is_reference(current()))


def version() -> str:
    """Returns the version of the TensorRT in use, such as ``"10.16.1"``."""
    return str(current().__version__)


def describe() -> str:
    """Returns the TensorRT in use as a person would name it, such as ``"reference@11.4.0"``."""
    return f"reference@{version()}" if is_reference() else f"TensorRT {version()}"
