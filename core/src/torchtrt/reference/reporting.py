"""Loggers, and how the reference reports what it refuses."""

from __future__ import annotations

import sys
from typing import Any, ClassVar


class ILogger:
    """The base of a logger; a subclass defines ``log(severity, msg)``."""

    _trt: ClassVar[Any]

    def __init__(self) -> None:
        """Nothing to set up."""

    def log(self, severity: Any, msg: str) -> None:  # noqa: ARG002
        """Takes one message; to be overridden."""
        message = 'Tried to call pure virtual function "nvinfer1::ILogger::log"'
        raise RuntimeError(message)


class Logger(ILogger):
    """A logger that writes to standard error what is at least as severe as ``min_severity``."""

    def __init__(self, min_severity: Any = None) -> None:
        self._least = self._trt.ILogger.Severity.WARNING if min_severity is None else min_severity

    @property
    def min_severity(self) -> Any:
        """The least severity that is written."""
        return self._least

    @min_severity.setter
    def min_severity(self, value: Any) -> None:
        self._least = value

    def log(self, severity: Any, msg: str) -> None:
        """Writes a message that is severe enough."""
        if int(severity) <= int(self._least):
            letter = "IEWIV"[int(severity)]
            print(f"[TRT] [{letter}] {msg}", file=sys.stderr)


def report(logger: Any, severity: str, message: str) -> None:
    """Sends a message to a logger of any kind."""
    logger.log(logger._trt.ILogger.Severity.__members__[severity], message)
