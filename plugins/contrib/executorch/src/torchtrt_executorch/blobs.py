"""The bytes of one delegate: an engine, the names of its inputs and outputs, and where it runs.

The layout is that of Torch-TensorRT's ``TensorRTBackend`` for ExecuTorch. Its runtime binds inputs and outputs in the
order of the names. The header has little-endian numbers:

- four letters
- the offset and the size of the metadata, which are JSON, in 32 bits each
- the offset of the plan in 32 bits, a multiple of 16
- the size of the plan in 64 bits
- eight bytes: a 1, and zeros
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

_HEADER = struct.Struct("<4sIIIQ8s")
_MAGIC = b"TR01"
_ALIGNMENT = 16


def engine_blob(
    plan: bytes, inputs: Sequence[str], outputs: Sequence[str], *, on_later_gpus: bool
) -> bytes:
    """Returns the bytes of a delegate.

    Args:
        plan: The plan of the engine.
        inputs: The names of its inputs, in the order of the delegate's arguments.
        outputs: The names of its outputs, in the order of the delegate's results.
        on_later_gpus: Whether the plan is hardware compatible.
    """
    bindings = [
        {"name": name, "dtype": "", "shape": [], "is_input": is_input}
        for names, is_input in ((inputs, True), (outputs, False))
        for name in names
    ]
    # The runtime reads the fields in this order, and takes names as they are, without escapes of JSON.
    metadata = {
        "io_bindings": bindings,
        "aliased_io": [],
        "hardware_compatible": on_later_gpus,
        "device_id": 0,
        "serialized_metadata": "",
        "target_platform": "",
    }
    text = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False).encode()
    start = -(-(_HEADER.size + len(text)) // _ALIGNMENT) * _ALIGNMENT
    header = _HEADER.pack(_MAGIC, _HEADER.size, len(text), start, len(plan), b"\1".ljust(8, b"\0"))
    return (header + text).ljust(start, b"\0") + plan
