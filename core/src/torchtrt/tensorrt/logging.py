"""One logger for everything of the TensorRT in use: to Python's logging, with the errors kept for exceptions."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

from torchtrt.tensorrt.selection import current

_log = logging.getLogger("torchtrt.tensorrt")


@functools.cache
def _logger_class(module: Any) -> type:
    """Returns the collecting logger class for one TensorRT module, whose base class it needs."""
    levels = {
        "INTERNAL_ERROR": logging.ERROR,
        "ERROR": logging.ERROR,
        "WARNING": logging.WARNING,
        "INFO": logging.INFO,
        "VERBOSE": logging.DEBUG,
    }

    class CollectingLogger(module.ILogger):  # type: ignore[misc]
        """Sends TensorRT's messages to Python's logging and keeps the errors."""

        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            level = levels[severity.name]
            if level >= logging.ERROR:
                self.errors.append(message)
                level = logging.INFO  # the error reaches the person in the exception
            _log.log(min(level, logging.INFO), "%s", message)

    return CollectingLogger


@functools.cache
def _logger(module: Any) -> Any:
    return _logger_class(module)()


def logger() -> Any:
    """Returns the logger that everything of the TensorRT in use shares (TensorRT keeps the first it is given)."""
    return _logger(current())


def take_errors() -> Sequence[str]:
    """Returns the errors logged since the last call."""
    errors = list(dict.fromkeys(logger().errors))
    logger().errors.clear()
    return errors
