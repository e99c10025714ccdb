"""Files that several users and processes share: they appear complete, and only regular ones are read."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

UNFINISHED = ".tmp"


def open_regular(path: Path) -> BinaryIO:
    """Opens a file for reading. Opening a pipe would wait for its writer.

    Raises:
        OSError: There is no such file, it cannot be read, or it is no regular file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "It is no regular file", str(path))
    return path.open("rb")


def write_complete(path: Path, parts: Sequence[Any]) -> None:
    """Writes a file that appears complete, with the permissions that the umask leaves to new files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{uuid.uuid4().hex}{UNFINISHED}")
    try:
        with temporary.open("xb") as stream:
            for part in parts:
                stream.write(part)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
