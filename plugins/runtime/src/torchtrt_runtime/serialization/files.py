"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchtrt.errors import UnwritableFileError


@contextmanager
def complete_file(path: Path) -> Iterator[Path]:
    """Yields a path to write to, of the same name; the file gets its place at the end of the ``with`` block.

    Raises:
        UnwritableFileError: There can be no file at this path.
    """
    check_place(path)
    try:
        # An archive is named after its file, so the folder is temporary and not the name.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            temporary = Path(folder) / path.name
            yield temporary
            os.replace(temporary, path)
    except OSError as error:
        raise UnwritableFileError(
            f"{path} cannot be written: {error.strerror or error}. Make room, or name a file in another folder."
        ) from error


def check_path(path: Path) -> None:
    """Checks that a file system can have a path.

    Raises:
        UnwritableFileError: It cannot.
    """
    if "\0" in str(path):
        message = f"{str(path)!r} is no path: it has a NUL character. Name another."
        raise UnwritableFileError(message)


def check_place(path: Path) -> None:
    """Checks that there can be a file at a path.

    Raises:
        UnwritableFileError: It is no path, or a folder, or in one that is not there.
    """
    check_path(path)
    if path.is_dir():
        example = path / f"model{path.suffix or '.pt2'}"
        raise UnwritableFileError(f"{path} is a folder. Name a file in it: {example}.")
    if not path.parent.is_dir():
        message = f"There is no folder {path.parent} for {path.name}. Make it, or name another."
        raise UnwritableFileError(message)
