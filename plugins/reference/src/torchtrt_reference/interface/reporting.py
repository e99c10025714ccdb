"""Loggers, and how the reference reports what it refuses."""

from __future__ import annotations

import re
import sys
from typing import Any, ClassVar

from torchtrt_reference.operations.tensor_facts import RefusedError


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


class Progress:
    """One phase of a build, told to a progress monitor; without a monitor it does nothing."""

    _PHASE = "Building the engine"
    _STEPS = 3  # lowering, shape inference, rewriting

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor
        self._done = 0

    def __enter__(self) -> Progress:
        if self._monitor is not None:
            self._monitor.phase_start(self._PHASE, None, self._STEPS)
        return self

    def step(self) -> None:
        """Tells that a step is complete.

        Raises:
            RefusedError: The monitor wants the build to end.
        """
        if self._monitor is not None and not self._monitor.step_complete(self._PHASE, self._done):
            message = "the progress monitor cancelled the build"
            raise RefusedError(message)
        self._done += 1

    def __exit__(self, *error: object) -> None:
        if self._monitor is not None:
            self._monitor.phase_finish(self._PHASE)


def report(logger: Any, message: str, *owners: Any) -> None:
    """Sends an error to a logger of any kind, and to the error recorder of the first owner that has one.

    Args:
        logger: Where every error goes.
        message: What happened; "Error Code 4" in it is the code for the recorder, invalid argument by default.
        owners: Who might have an ``error_recorder``, the closest first.
    """
    logger.log(logger._trt.ILogger.Severity.__members__["ERROR"], message)
    recorders = (getattr(owner, "error_recorder", None) for owner in owners)
    recorder = next((each for each in recorders if each is not None), None)
    if recorder is not None:
        code = re.search(r"Error Code (\d+)", message)
        codes = logger._trt.ErrorCodeTRT
        recorder.report_error(
            codes.INVALID_ARGUMENT if code is None else codes(int(code[1])), message
        )
