"""Where the entries of a cache are: a folder, or an object of the program's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from torchtrt.callers import warn_caller
from torchtrt.errors import CacheWarning
from torchtrt.stores import ByteStore, load_from, name_of, save_to


class Storage(Protocol):
    """Keeps the entries of a cache by key."""

    def load(self, key: str) -> Any | None:
        """Returns an entry in some buffer; None if there is none.

        Raises:
            OSError: It cannot be read, and is to be left alone.
        """
        ...

    def save(self, key: str, parts: Sequence[Any]) -> None:
        """Keeps an entry, given as its parts.

        Raises:
            OSError: It cannot be written.
        """
        ...

    def discard(self, key: str, reason: str) -> None:
        """Gives up an entry that cannot be used."""
        ...

    def lock(self, name: str, waits: bool = True) -> contextlib.AbstractContextManager[bool]:
        """Holds a lock among all processes and threads; yields whether another one may have held it before.

        Raises:
            BeingBuiltError: Another one holds it, and this one does not wait.
        """
        ...

    def warn(self, error: OSError) -> None:
        """Warns the user that entries cannot be kept."""
        ...


class StoreStorage:
    """Entries in an object of the program's own, which has no locks."""

    def __init__(self, store: ByteStore) -> None:
        self.store = store

    def load(self, key: str) -> bytes | None:
        """Returns an entry; None if there is none.

        Raises:
            StoreError: The object failed.
        """
        return load_from(self.store, key)

    def save(self, key: str, parts: Sequence[Any]) -> None:
        """Gives the object an entry.

        Raises:
            StoreError: The object failed.
        """
        save_to(self.store, key, parts)

    def discard(self, key: str, reason: str) -> None:
        """Warns of an entry: the object gets another one later."""
        warn_caller(
            f"{name_of(self.store)} returned {key!r}, which is {reason}. Compiling goes on without, and saves it "
            "again.",
            CacheWarning,
        )

    @contextlib.contextmanager
    def lock(self, name: str, waits: bool = True) -> Iterator[bool]:
        """Holds nothing."""
        del name, waits
        yield False

    def warn(self, error: OSError) -> None:
        """Warns that the object failed."""
        warn_caller(
            f"Engines and timings cannot be kept: {error}. Compiling goes on without.", CacheWarning
        )
