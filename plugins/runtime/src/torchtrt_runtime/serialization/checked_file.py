"""Files that are checked against checksums of their blocks while they are read, in any order."""

from __future__ import annotations

import hashlib
import io
import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BLOCK = 4 << 20
"""The bytes of a block. Readers take the size that a file was written with."""
_KEPT = 2
"""How many blocks stay in memory: readers of archives go to and fro between two places."""


def checksums_of(file: Path, block: int = BLOCK) -> dict[str, Any]:
    """Returns the size of a file, and the checksums of its blocks of so many bytes, as JSON has them."""
    with file.open("rb", buffering=0) as opened:
        blocks = []
        while content := _read(opened, block):
            blocks.append(_checksum(content))
        return {"bytes": opened.tell(), "block": block, "sha256": blocks}


class CheckedFile(io.RawIOBase):
    """A file whose bytes are checked before a reader gets them. It ends where a block is another one.

    Readers written in C++ do not expect an exception, so ``failure`` has it, and their errors follow from it.

    Args:
        opened: The file.
        wanted: What ``checksums_of`` returned of it.

    Attributes:
        failure: Why the file ended; None while it has not.
    """

    def __init__(self, opened: io.FileIO, wanted: Mapping[str, Any]) -> None:
        super().__init__()
        self.name = str(opened.name)
        self.failure: OSError | ValueError | None = None
        self._opened = opened
        self._size, self._block = wanted["bytes"], wanted["block"]
        self._checksums = wanted["sha256"]
        self._position = 0
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._unread = dict.fromkeys(range(len(self._checksums)))

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Returns the position that is read next."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Goes to a position, and returns it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"negative seek position {start + offset}")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """Fills a buffer as far as the file goes, and returns the number of bytes."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view) and self._position < self._size:
            number, start = divmod(self._position, self._block)
            part = memoryview(self._checked(number))[start : start + len(view) - done]
            if not part:
                break
            view[done : done + len(part)] = part
            done += len(part)
            self._position += len(part)
        return done

    def check_rest(self) -> None:
        """Checks the parts that have not been read."""
        for number in list(self._unread):
            self._checked(number)

    def _checked(self, number: int) -> bytes:
        """Returns a block; nothing where the file has failed."""
        if self.failure is not None:
            return b""
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        try:
            self._opened.seek(number * self._block)
            content = _read(self._opened, min(self._block, self._size - number * self._block))
        except OSError as error:
            self.failure = error
            return b""
        if _checksum(content) != self._checksums[number]:
            self.failure = ValueError(f"block {number} has another checksum")
            return b""
        self._unread.pop(number, None)
        self._kept[number] = content
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return content


def _read(opened: io.FileIO, size: int) -> bytes:
    """Returns the next bytes of a file, fewer only at its end: the system may return less than was requested."""
    content = opened.read(size) or b""
    while len(content) < size and (more := opened.read(size - len(content))):
        content += more
    return content


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
