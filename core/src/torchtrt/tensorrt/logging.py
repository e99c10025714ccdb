"""One logger for everything of the TensorRT in use: to Python's logging, with errors kept for their cause."""

from __future__ import annotations

import functools
import logging
import re
import threading
from collections import deque
from typing import Any, ClassVar

from torchtrt.tensorrt.selection import current

_log = logging.getLogger("torchtrt.tensorrt")
_REMEDIES = {
    "(?i)out of ?memory|memory .*could not be allocated": "The GPU has no memory left for it: free what others hold "
    "(nvidia-smi shows who), or compile for smaller sizes.",
    "(?i)illegal (memory|address)|launch failure|uncorrectable|no CUDA-capable|device.* lost": "This process can use "
    "the GPU no more: look at nvidia-smi, and start another process.",
    "load library: libnvinfer_(lean|dispatch|builder_resource)": "Install that library, of TensorRT's own version: "
    "`pip install tensorrt_lean==<version>` (engines for later versions need it), tensorrt_dispatch or tensorrt_libs.",
}


class ErrorLog:
    """Collects the errors that TensorRT logs inside a ``with`` block, in the block's own thread.

    The log of TensorRT's own threads goes to every open block, because it does not name its owner.
    """

    _open: ClassVar[list[ErrorLog]] = []
    _unclaimed: ClassVar[deque[tuple[int, str]]] = deque(maxlen=16)
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._thread = threading.get_ident()

    def __enter__(self) -> ErrorLog:
        with self._lock:
            self._open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._open.remove(self)

    def text(self, separator: str = "; ") -> str:
        """Returns the errors, each once, with a remedy for each known cause."""
        text = separator.join(dict.fromkeys(self.errors)) or "it logged no reason"
        remedies = (what for words, what in _REMEDIES.items() if re.search(words, text))
        return " ".join((text, *remedies))

    @classmethod
    def record(cls, message: str) -> None:
        """Gives an error to the innermost block of this thread, or to all where the thread has none."""
        thread = threading.get_ident()
        with cls._lock:
            if not (mine := [block for block in cls._open if block._thread == thread]):
                cls._unclaimed.append((thread, message))
            for block in mine[-1:] or cls._open:
                block.errors.append(message)


def unclaimed_errors() -> str:
    """Takes the last errors that this thread caused outside of a block: running an engine opens none."""
    log = ErrorLog()
    with ErrorLog._lock:
        left = list(ErrorLog._unclaimed)
        log.errors = [message for thread, message in left if thread == log._thread]
        ErrorLog._unclaimed.clear()
        ErrorLog._unclaimed.extend(
            (thread, message) for thread, message in left if thread != log._thread
        )
    return log.text()


@functools.cache
def _logger(module: Any) -> Any:
    """Returns the logger for one TensorRT module, whose base class it needs."""
    others = {"INTERNAL_ERROR": logging.ERROR, "VERBOSE": logging.DEBUG}

    class ForwardingLogger(module.ILogger):  # type: ignore[misc]
        """Sends TensorRT's messages to Python's logging, and errors to the logs that collect them."""

        def __init__(self) -> None:
            module.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            level = others.get(severity.name) or getattr(logging, severity.name)
            if level >= logging.ERROR:
                ErrorLog.record(message)
            # An error reaches the user in the exception; warnings are about TensorRT's own choices.
            _log.log(min(level, logging.INFO), "%s", message)

    return ForwardingLogger()


def logger() -> Any:
    """Returns the logger that everything of the TensorRT in use shares (TensorRT keeps the first it is given)."""
    return _logger(current())
