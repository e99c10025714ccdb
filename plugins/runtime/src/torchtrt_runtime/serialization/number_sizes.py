"""Bounds of the numbers that arithmetic in a file computes: ``9 ** 9 ** 9`` would fill the memory."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torchtrt.errors import UnreadableFileError

_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift", "Float"})
"""Functions whose second argument multiplies the digits of the first. ``Float`` has them as its precision."""
_MOST_BITS = 1 << 16
SYMBOL_BITS = 1
"""A symbol stays a symbol."""


def bits_of_number(value: float) -> int:
    """Returns the bits of the whole part of a number, which for ``inf`` is not computed."""
    return max(int(value).bit_length(), 1) if math.isfinite(value) else 1


def bits_of_result(name: str, arguments: Iterable[int]) -> int:
    """Returns how many bits the result of a function can have.

    Args:
        name: The function.
        arguments: The bits of its arguments.

    Raises:
        UnreadableFileError: The number is too large for any size.
    """
    first, *others = (*arguments, 0)
    bits = first << min(max(others, default=0), 64) if name in _POWERS else first + sum(others) + 1
    if bits > _MOST_BITS:
        message = "The file describes a size by a number that is too large. It is not what torchtrt.save writes."
        raise UnreadableFileError(message)
    return bits
