"""A folder of engines that many processes read and write at once.

An engine is one file, named by its key, that appears complete. Its age is the time when it was last used. A build
holds a lock, so that other processes wait and find the engine there. A process that dies releases it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import platformdirs
from filelock import FileLock, Timeout

from torchtrt.callers import warn_caller
from torchtrt.errors import CacheWarning, SettingsError, TorchTRTError
from torchtrt.setting_kinds import SWITCHES
from torchtrt_compiler.cache.engines import FOLDER_VARIABLE, BeingBuiltError
from torchtrt_compiler.cache.entries import ENGINE, read_header

SIZE_VARIABLE = "TORCHTRT_CACHE_SIZE"
DEFAULT_LIMIT = 10 * 10**9

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_ABANDONED_SECONDS = 24 * 3600
_UNFINISHED = ".tmp"
"""The suffix of a file that is being written."""


@dataclass(frozen=True)
class CachedEngine:
    """A file of the cache.

    Attributes:
        key: The engine's key.
        tensorrt: The TensorRT that built it.
        gpu: The GPU that it was built on.
        nodes: How many calls of a graph it computes.
        bytes: The size of the file.
        used: When it was last used, in seconds since 1970.
    """

    key: str
    tensorrt: str
    gpu: str
    nodes: int
    bytes: int
    used: float


def open_folder(where: bool | str | os.PathLike[str]) -> CacheFolder:
    """Returns the cache in a folder; ``True`` stands for the default one.

    Raises:
        SettingsError: ``TORCHTRT_CACHE_SIZE`` is no size.
    """
    folder = default_folder() if isinstance(where, bool) else Path(where)
    return CacheFolder(folder.expanduser(), size_limit())


def default_folder() -> Path:
    """Returns the folder that ``TORCHTRT_CACHE`` names, or the one that belongs to this user's caches."""
    named = os.environ.get(FOLDER_VARIABLE, "")
    is_folder = named.lower() not in SWITCHES
    return Path(named) if is_folder else platformdirs.user_cache_path("torchtrt")


def size_limit() -> int:
    """Returns how many bytes a cache may have: ``TORCHTRT_CACHE_SIZE``, or 10 GB.

    Raises:
        SettingsError: The variable holds no size.
    """
    text = os.environ.get(SIZE_VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT
    parsed = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text, re.IGNORECASE)
    if parsed is None:
        message = f"{SIZE_VARIABLE}={text!r} is no size. Write bytes, or a number with a unit: 500MB, 20GB."
        raise SettingsError(message)
    return int(float(parsed[1]) * _UNITS[parsed[2].lower()])


class CacheFolder:
    """The engines and the timings in a folder.

    Args:
        folder: The folder. It is made when something is kept.
        limit: How many bytes the engines may have together. The least recently used ones go first.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def load(self, key: str) -> Any | None:
        """Returns the bytes of a file, which is young again; None if there is none.

        Raises:
            OSError: It cannot be read; another user may own it.
        """
        path = self._path(key)
        try:
            with _open_regular(path) as stream:
                content = np.fromfile(stream, np.uint8)
        except FileNotFoundError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def save(self, key: str, parts: Sequence[Any]) -> None:
        """Writes a file, and removes the oldest engines beyond the limit of their size.

        Raises:
            OSError: It cannot be written.
        """
        _write_complete(self._path(key), parts)
        self._sweep(self._path(key).parent)
        if key.endswith(ENGINE):
            with self.lock("limit"):
                self._evict()

    def discard(self, key: str, reason: str) -> None:
        """Removes a file."""
        del reason
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def entries(self) -> list[CachedEngine]:
        """Returns the engines, those used last first."""
        engines = []
        for path in self.folder.glob(f"engines/*{ENGINE}"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, TorchTRTError):
                status = path.stat()
                with _open_regular(path) as stream:
                    header = read_header(stream, status.st_size)
                engine, nodes = header["engine"], header["report"]["nodes"]
                engines.append(
                    CachedEngine(
                        path.stem,
                        engine["tensorrt"],
                        engine["gpu"],
                        nodes,
                        status.st_size,
                        status.st_mtime,
                    )
                )
        return sorted(engines, key=lambda entry: (-entry.used, entry.key))

    def clear(self) -> int:
        """Removes all engines and timings, and returns how many bytes they had."""
        freed = 0
        for path in (*self.folder.glob("engines/*"), *self.folder.glob("timings/*")):
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                path.unlink()
                freed += size
        return freed

    def _path(self, key: str) -> Path:
        return self.folder / ("engines" if key.endswith(ENGINE) else "timings") / key

    def _sweep(self, folder: Path) -> None:
        """Removes what writers that died left behind."""
        for path in folder.glob(f"*{_UNFINISHED}"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    path.unlink()

    def _evict(self) -> None:
        """Removes the engines that were used least recently beyond the limit."""
        files = []
        for path in self.folder.glob(f"engines/*{ENGINE}"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        size = sum(size for _, size, _ in files)
        for _, bytes_, path in sorted(files):
            if size <= self.limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                size -= bytes_

    @contextlib.contextmanager
    def lock(self, name: str, waits: bool = True) -> Iterator[bool]:
        """Holds a lock among all processes and threads; goes on without where the folder has none.

        Raises:
            BeingBuiltError: Another one holds it, and this one does not wait.
        """
        with contextlib.ExitStack() as stack:
            try:
                folder = self.folder / "locks"
                folder.mkdir(parents=True, exist_ok=True)
                path = str(folder / f"{name}.lock")
                timeout = -1 if waits else 0
                stack.enter_context(FileLock(path, timeout, thread_local=False))
            except Timeout as error:
                raise BeingBuiltError from error
            except (OSError, NotImplementedError) as error:
                self.warn(error)
            yield True

    def warn(self, error: Exception) -> None:
        """Warns that the folder cannot be used."""
        warn_caller(
            f"Engines cannot be kept in {self.folder}: {error}. Compiling goes on without. Make room, allow this "
            "user to read and write there, remove what is in the way, or give another folder with engine_cache=... or "
            "TORCHTRT_CACHE.",
            CacheWarning,
        )


def _open_regular(path: Path) -> BinaryIO:
    """Opens a file for reading. Opening a pipe would wait for its writer.

    Raises:
        OSError: There is no such file, it cannot be read, or it is no regular file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "It is no regular file", str(path))
    return path.open("rb")


def _write_complete(path: Path, parts: Sequence[Any]) -> None:
    """Writes a file that appears complete, with the permissions that the umask leaves to new files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{uuid.uuid4().hex}{_UNFINISHED}")
    try:
        with temporary.open("xb") as stream:
            for part in parts:
                stream.write(part)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
