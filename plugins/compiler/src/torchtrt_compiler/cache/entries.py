"""The bytes of a kept engine: a header with a checksum, and the plan."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

from torchtrt_runtime.serialization.engine_metadata import buffer_of

ENGINE = ".engine"
TIMINGS = ".timings"

_MAGIC = b"TRTCACHE"
_PREFIX = struct.Struct("<8sIQ")  # magic, CRC-32 of the header, its length
_ALIGNMENT = 64


def packed(header: Mapping[str, Any], plan: Any) -> list[Any]:
    """Returns the parts of an entry. In it, the plan is aligned as memory usually is."""
    text = json.dumps(header).encode()
    text += b" " * (-(_PREFIX.size + len(text)) % _ALIGNMENT)
    return [_PREFIX.pack(_MAGIC, zlib.crc32(text), len(text)), text, buffer_of(plan)]


def unpacked(entry: Any) -> tuple[dict[str, Any], Any]:
    """Returns the header of an entry, and what follows it in the same memory.

    Raises:
        ValueError: The entry is truncated or damaged.
    """
    entry = buffer_of(entry)
    length = _PREFIX.unpack(entry[: _PREFIX.size])[2] if entry.size >= _PREFIX.size else 0
    end = _PREFIX.size + length
    return read_header(io.BytesIO(entry[:end].tobytes()), entry.size), entry[end:]


def read_header(stream: BinaryIO, size: int) -> dict[str, Any]:
    """Returns the header at the start of a stream of ``size`` bytes.

    Raises:
        ValueError: It is truncated or damaged.
    """
    prefix = stream.read(_PREFIX.size)
    if len(prefix) != _PREFIX.size:
        raise ValueError("truncated")
    magic, checksum, length = _PREFIX.unpack(prefix)
    header = stream.read(length) if length <= size else b""
    if magic != _MAGIC or zlib.crc32(header) != checksum:
        raise ValueError("damaged")
    data = json.loads(header)
    if not isinstance(data, dict):
        raise ValueError("damaged")
    return data
