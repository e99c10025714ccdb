"""Objects of a program that keep bytes by key, where a setting otherwise takes a folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torchtrt.errors import kind_of


@runtime_checkable
class ByteStore(Protocol):
    """Keeps bytes by key, for instance in a database: an object of the program's own.

    Keys are text of letters, digits, ``-`` and ``.``, as names of files. The part behind the dot is ``engine``,
    ``timings`` or ``kernels``. torchtrt checks what it loads. An error of the object, or damaged bytes, are a
    ``CacheWarning``, after which a compilation builds the engine.
    """

    def load(self, key: str) -> bytes | None:
        """Returns the bytes that were saved last under a key; None if there are none."""
        ...

    def save(self, key: str, data: bytes) -> None:
        """Keeps bytes under a key, in place of earlier ones."""
        ...


class StoreError(OSError):
    """A ``ByteStore`` cannot be read or written. The message names its class and its method."""


def is_store(value: object) -> bool:
    """Returns whether a value is a ``ByteStore``, and no class of them."""
    return isinstance(value, ByteStore) and not isinstance(value, type)


def load_from(store: ByteStore, key: str) -> bytes | None:
    """Returns the bytes that a program's object has under a key; None if it has none.

    Raises:
        StoreError: Its ``load`` raised an error, or returned something else.
    """
    try:
        data: object = store.load(key)
    except Exception as error:
        raise StoreError(_problem(store, f"load({key!r})", error)) from error
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise StoreError(f"load({key!r}) of {name_of(store)} returned {kind_of(data)}, not bytes")


def save_to(store: ByteStore, key: str, parts: Sequence[Any]) -> None:
    """Gives a program's object the parts of an entry, joined.

    Raises:
        StoreError: Its ``save`` raised an error.
    """
    try:
        store.save(key, b"".join(parts))
    except Exception as error:
        raise StoreError(_problem(store, f"save({key!r})", error)) from error


def name_of(store: ByteStore) -> str:
    """Returns the name of an object's class, with its module."""
    return f"{type(store).__module__}.{type(store).__qualname__}"


def _problem(store: ByteStore, call: str, error: Exception) -> str:
    return f"{call} of {name_of(store)} raised {type(error).__name__}: {error}"
