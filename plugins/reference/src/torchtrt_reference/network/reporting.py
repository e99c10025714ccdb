"""Loggers, and how the reference reports what it refuses."""

from __future__ import annotations

import re
import sys
from typing import Any

from torchtrt_reference.implementation import Implementation


class ILogger(Implementation):
    """The base of a logger; a subclass defines ``log(severity, msg)``."""

    _implements = ("ILogger",)

    def __init__(self) -> None:
        """Nothing to set up."""

    def log(self, severity: Any, msg: str) -> None:  # noqa: ARG002
        """Takes one message; to be overridden."""
        message = 'Tried to call pure virtual function "nvinfer1::ILogger::log"'
        raise RuntimeError(message)


class Logger(ILogger):
    """A logger that writes to standard error what is at least as severe as ``min_severity``."""

    _implements = ("Logger",)

    def __init__(self, min_severity: Any = None) -> None:
        self._min_severity = (
            self._trt.ILogger.Severity.WARNING if min_severity is None else min_severity
        )

    @property
    def min_severity(self) -> Any:
        """The minimum severity that is written."""
        return self._min_severity

    @min_severity.setter
    def min_severity(self, value: Any) -> None:
        self._min_severity = value

    def log(self, severity: Any, msg: str) -> None:
        """Writes a message that is severe enough."""
        if int(severity) <= int(self._min_severity):
            letter = "IEWIV"[int(severity)]
            print(f"[TRT] [{letter}] {msg}", file=sys.stderr)


def report(logger: Any, message: str, *owners: Any) -> None:
    """Sends an error to a logger of any kind, and to the error recorder of the first owner that has one.

    Args:
        logger: Where every error goes.
        message: What happened; "Error Code 4" in it is the code for the recorder, invalid argument by default.
        owners: Who might have an ``error_recorder``, the closest first.
    """
    logger.log(logger._trt.ILogger.Severity.__members__["ERROR"], message)
    recorders = (getattr(owner, "error_recorder", None) for owner in owners)
    recorder = next((recorder for recorder in recorders if recorder is not None), None)
    if recorder is not None:
        code = re.search(r"Error Code (\d+)", message)
        codes = logger._trt.ErrorCodeTRT
        recorder.report_error(
            codes.INVALID_ARGUMENT if code is None else codes(int(code[1])), message
        )
