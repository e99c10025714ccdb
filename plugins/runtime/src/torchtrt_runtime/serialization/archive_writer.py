"""PyTorch's writer of archives, whose destructor ends the process if the file raises an error."""

from __future__ import annotations

import ctypes
import errno
import io
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
import torch

from torchtrt_runtime.torch_internals import PyTorchFileWriter


class ArchiveWriter:
    """Writes the records of an archive to a file object. The archive is complete at the end of the ``with`` block.

    Each method raises an ``OSError`` if the file object raises an error.

    Args:
        file: A file object that accepts bytes.
    """

    def __init__(self, file: Any) -> None:
        self._target = _Target(file)
        create: Any = PyTorchFileWriter  # PyTorch declares fewer types than it accepts
        self._writer = create(self._target)
        self._writer.set_min_version(6)

    def __enter__(self) -> ArchiveWriter:
        """Returns the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Writes the directory of the archive, unless the block raised an error."""
        try:
            if kind is None:
                self._writer.write_end_of_file()
                self._target.flush()
                self._target.check()
        finally:
            self._target.close()

    def write(self, name: str, data: bytes) -> None:
        """Writes a record."""
        self._writer.write_record(name, data, len(data))
        self._target.check()

    def write_memory(self, name: str, address: int, size: int) -> None:
        """Writes memory of another owner, which may be read-only for PyTorch, without copying it."""
        if not size:
            self.write(name, b"")
            return
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        self._writer.write_record(name, torch.from_numpy(memory).untyped_storage(), size)
        self._target.check()


class _Target:
    """Passes bytes to a file object, and keeps the first error for ``check``: it never raises one into C++."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._failure: BaseException | None = None
        self._is_open = True

    def write(self, data: memoryview) -> None:
        """Writes all bytes; none after an error or ``close``."""
        self._call(_write_all, self._file, data)

    def flush(self) -> None:
        """Writes what the file object still holds."""
        if callable(flush := getattr(self._file, "flush", None)):
            self._call(flush)

    def check(self) -> None:
        """Raises the error that the file object raised, an ``Exception`` as an ``OSError``."""
        failure = self._failure
        if isinstance(failure, Exception) and not (isinstance(failure, OSError) and failure.errno):
            raise OSError(f"{type(failure).__name__}: {failure}") from failure
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Ignores what is written from now on: PyTorch's writer writes again when it is deleted."""
        self._is_open = False

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        if not self._is_open:
            return
        try:
            function(*arguments)
        except BaseException as error:
            self._failure = error
            self.close()


def _write_all(file: Any, data: memoryview) -> None:
    """Writes bytes to a file object, which may accept fewer in each call.

    An object that is no file of Python may return something else than their number.
    """
    while data:
        count = file.write(data)
        if count is None and isinstance(file, io.RawIOBase):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if type(count) is not int:
            return
        if count <= 0:
            raise OSError(errno.EIO, "it accepts no bytes")
        data = data[count:]
