"""Files that appear complete or not at all."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from torchtrt.errors import UnwritableFileError

_LOCK = ".torchtrt-lock"
"""The file in a temporary folder that its writer has locked. It marks the folder as a writer's."""
_ABANDONED_SECONDS = 600.0
"""The age from which a folder without a lock has no writer, also where another machine's lock is not seen."""


@contextmanager
def complete_file(path: Path) -> Iterator[Path]:
    """Yields a path to write to, of the same name; the file gets its place at the end of the ``with`` block.

    If the path is a link, the place is the link's target.
    Folders that writers of the same file left behind, because they were killed, are removed.

    Raises:
        UnwritableFileError: There can be no file at this path.
    """
    path = check_place(path)
    try:
        _remove_abandoned(path)
        with (
            tempfile.TemporaryDirectory(dir=path.parent, prefix=_prefix(path)) as folder,
            _locked(Path(folder)),
        ):
            temporary = Path(folder) / path.name
            yield temporary
            os.replace(temporary, path)
    except OSError as error:
        raise UnwritableFileError(
            f"{path} cannot be written: {error.strerror or error}. Make room, or name another file."
        ) from error


def _prefix(path: Path) -> str:
    """Returns how the names of temporary folders of a file start: a name of 255 bytes leaves no room for more."""
    return f".{path.name[:50]}."


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Holds the lock of a temporary folder, as long as the process lives; yields whether no other process has it."""
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(blocking=False)
    except (
        Timeout,
        NotImplementedError,
        OSError,
    ):  # another has it, or the file system has no locks
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _remove_abandoned(path: Path) -> None:
    """Removes the temporary folders of writers of a file that were killed."""
    for folder in path.parent.glob(f"{glob.escape(_prefix(path))}*"):
        with suppress(OSError):
            if not (folder / _LOCK).is_file():
                continue
            latest = max(entry.stat().st_mtime for entry in (folder, *folder.iterdir()))
            if time.time() - latest < _ABANDONED_SECONDS:
                continue
            with _locked(folder) as is_abandoned:
                if is_abandoned:
                    shutil.rmtree(folder)


def check_path(path: Path) -> None:
    """Checks that a file system can have a path.

    Raises:
        UnwritableFileError: It cannot.
    """
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as error:
        message = f"{str(path)!r} is no path: {error.reason}. Name another."
        raise UnwritableFileError(message) from error
    if b"\0" in encoded:
        message = f"{str(path)!r} is no path: it has a NUL character. Name another."
        raise UnwritableFileError(message)


def check_place(path: Path) -> Path:
    """Checks that there can be a file at a path, and returns the file's own path, which has no links.

    Raises:
        UnwritableFileError: It is no path, or a folder, or in one that does not exist, or another kind of file.
    """
    check_path(path)
    real_path = Path(os.path.realpath(path))
    if os.path.isdir(real_path):
        example = path / f"model{path.suffix or '.pt2'}"
        raise UnwritableFileError(f"{path} is a folder. Name a file in it: {example}.")
    if os.path.exists(path) and not os.path.isfile(path):  # a device, or a pipe
        raise UnwritableFileError(
            f"{path} is no regular file. Name another path; torchtrt.save also accepts an open file object."
        )
    if os.path.islink(real_path):
        raise UnwritableFileError(f"{path} is a link to itself. Remove it, or name another path.")
    if not os.path.isdir(real_path.parent):
        message = (
            f"There is no folder {real_path.parent} for {real_path.name}. Make it, or name another."
        )
        raise UnwritableFileError(message)
    return real_path
