"""The symbols of the sizes in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy

from torchtrt.conversion.inputs import SizeRange
from torchtrt_runtime.size_ranges import Profile


class SymbolsByName(dict[str, Any]):
    """The symbols of the sizes in one file, by name. Reading a name makes its symbol."""

    def __missing__(self, name: str) -> Any:
        made = self[name] = sympy.Symbol(name, integer=True, nonnegative=True)
        return made

    def profiles_from(self, data: Iterable[Mapping[str, Any]]) -> tuple[Profile, ...]:
        """Returns profiles from data: for each one its ranges ``[min, opt, max]``, by the names of symbols."""
        return tuple(
            {self[name]: SizeRange(*map(int, bounds)) for name, bounds in profile.items()}
            for profile in data
        )
