"""Warnings about the line of the program that called torchtrt."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_PROJECT = __name__.partition(".")[0]
_between = {_PROJECT, "contextlib", "functools", "importlib", "pluggy", "torch"}
"""Packages whose lines are not those of a program: our own, and others that lie between."""


def skip_callers(*packages: str) -> None:
    """Declares libraries that call torchtrt for a program: a warning then names the line that called the library."""
    _between.update(packages)


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns about the line of the program that led here, as ``warnings.warn`` does with the right ``stacklevel``.

    Args:
        message: The words.
        category: The kind of warning.
    """
    frame = calling_frame()
    module = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno or 1,
        module=module.get("__name__"),
        registry=module.setdefault("__warningregistry__", {}),
    )


def calling_frame() -> FrameType:
    """Returns the innermost frame of the program: neither torchtrt's nor of what torchtrt is called through.

    If there is none, as in a thread of a library, this is the outermost frame.
    """
    frame = sys._getframe()
    while _is_between(frame) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _is_between(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    if name is None:  # the code of a graph, which PyTorch generates
        return True
    package = name.partition(".")[0]
    return package in _between or package.startswith(f"{_PROJECT}_")
