"""Makes the sizes of a program such that PyTorch's reader reads them.

The reader lacks some functions that PyTorch's sizes have. Each symbol that depends on data must also be a size or a
number of the program by itself. In a compiled program, the number of selected rows may be inside an engine, which
returns one row more. In both cases, new symbols that depend on data stand for the results. The program computes its
sizes as before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from torchtrt.errors import UnreadableFileError, UnsupportedProgramError
from torchtrt.expressions.data import FUNCTIONS, from_json
from torchtrt_runtime.serialization.program_sizes import UNREAD, size_of

_WHOLE = frozenset({"floor", "ceiling", *(name for name in FUNCTIONS if name.endswith("ToInt"))})
"""Functions that make whole numbers of floats."""
_ROLES = {"sizes": "size", "sym_bool_values": "bool"}
_DEPENDS_ON_DATA = ("u", "zuf")
"""How the names of symbols start that no size of an input determines."""


def make_readable(program: dict[str, Any]) -> None:
    """Changes sizes of a program, in place, where PyTorch's reader would not read them.

    Args:
        program: The program, as JSON has it.

    Raises:
        UnsupportedProgramError: A file may not have a size.
    """
    sizes = _Sizes(program)
    if any(map(_has_unread, sizes.values())) or sizes.unbound():
        sizes.replace_unread()
        sizes.bind()
        sizes.write()


@dataclass
class _Entry:
    """A size in a program.

    Attributes:
        holder: What JSON has there: the text, and perhaps a number as its hint.
        value: The size.
        role: ``"size"`` of a tensor, ``"bool"``, or another ``"number"``.
        is_outer: Whether it is in the graph itself, and not in a branch or a loop of it.
    """

    holder: dict[str, Any]
    value: Any
    role: str
    is_outer: bool

    def binds(self, symbol: Any) -> bool:
        """Returns whether PyTorch's reader finds the value of a symbol here."""
        if self.role == "bool":
            return bool(self.value == sympy.Eq(symbol, 1))
        return bool(self.value.as_coeff_Mul()[1] == symbol)


class _Sizes:
    """The sizes of one program."""

    def __init__(self, program: dict[str, Any]) -> None:
        self._ranges: dict[str, Any] = program["range_constraints"]
        self._entries = list(_entries(program["graph_module"], {}))
        self._made: dict[Any, Any] = {}
        names = {*self._ranges, *map(str, self._symbols())}
        numbers = (int(name.lstrip("zuf")) for name in names if name.startswith(_DEPENDS_ON_DATA))
        self._numbers = itertools.count(max(numbers, default=-1) + 1)

    def values(self) -> set[Any]:
        """Returns the different sizes."""
        return {entry.value for entry in self._entries}

    def _symbols(self) -> set[Any]:
        return {symbol for value in self.values() for symbol in value.free_symbols}

    def replace_unread(self) -> None:
        """Puts symbols for what PyTorch does not read."""
        for entry in self._entries:
            entry.value = self._read(entry.value)

    def _read(self, value: Any) -> Any:
        """Returns a size with symbols for the parts of it that PyTorch does not read."""
        if not _has_unread(value):
            return value
        if {type(value).__name__} & (UNREAD | _WHOLE):
            if value not in self._made:
                self._made[value] = self._new_symbol(value)
            return self._made[value]
        return value.func(*map(self._read, value.args))

    def _new_symbol(self, value: Any) -> Any:
        is_whole = value.is_integer or type(value).__name__.startswith("BitwiseFn")
        number = next(self._numbers)
        return (
            sympy.Symbol(f"u{number}", integer=True) if is_whole else sympy.Symbol(f"zuf{number}")
        )

    def unbound(self) -> list[Any]:
        """Returns the symbols that depend on data and whose value the reader would find nowhere."""
        symbols = (symbol for symbol in self._symbols() if str(symbol).startswith(_DEPENDS_ON_DATA))
        return sorted((symbol for symbol in symbols if not self._is_bound(symbol)), key=str)

    def _is_bound(self, symbol: Any) -> bool:
        having = [entry for entry in self._entries if symbol in entry.value.free_symbols]
        outer = [entry for entry in having if entry.is_outer]
        return any(entry.binds(symbol) for entry in outer or having)

    def bind(self) -> None:
        """Puts symbols for whole sizes until the reader finds the values of all symbols.

        Raises:
            UnsupportedProgramError: A condition depends on a symbol that no size has.
        """
        while unbound := self.unbound():
            symbol = unbound[0]
            having = [
                entry
                for entry in self._entries
                if symbol in entry.value.free_symbols and entry.role != "bool"
            ]
            if not having:
                raise UnsupportedProgramError(
                    f"The model has a condition on the size {symbol}, which depends on data and is no size of the "
                    "compiled graph's tensors. A file cannot have it: return a tensor of that size."
                )
            self._replace(_definition(symbol, having, self._new_symbol))

    def _replace(self, values: Mapping[Any, Any]) -> None:
        for entry in self._entries:
            entry.value = entry.value.xreplace(values)

    def write(self) -> None:
        """Writes the sizes, and the ranges of their symbols."""
        for entry in self._entries:
            text = sympy.srepr(entry.value)
            if text != entry.holder["expr_str"]:
                entry.holder.update(expr_str=text, hint=None)
        symbols = self._symbols()
        for name in self._ranges.keys() - set(map(str, symbols)):
            del self._ranges[name]
        for symbol in symbols:
            if str(symbol) not in self._ranges and symbol.is_integer:
                is_size = any(
                    entry.role == "size" and entry.value == symbol for entry in self._entries
                )
                self._ranges[str(symbol)] = {"min_val": 0 if is_size else None, "max_val": None}


def _definition(symbol: Any, having: Iterable[_Entry], new_symbol: Any) -> dict[Any, Any]:
    """Returns what to replace, by what, so that one of the sizes that have a symbol becomes a new symbol.

    If it is a sum of the old one and others, the old one becomes the new one less the others: what other sizes have in
    common with it stays.
    """
    entries = sorted(having, key=lambda entry: (not entry.is_outer, entry.role != "size"))
    for entry in entries:
        others, own = entry.value.as_independent(symbol, as_Add=True)
        if own in (symbol, -symbol):
            return {symbol: own / symbol * (new_symbol(entry.value) - others)}
    value = entries[0].value
    return {value: new_symbol(value)}


def _has_unread(value: Any) -> bool:
    return any(type(part).__name__ in UNREAD for part in sympy.preorder_traversal(value))


def _entries(
    data: Any, values: dict[str, Any], role: str = "number", is_outer: bool = True
) -> Iterator[_Entry]:
    """Yields the sizes in a part of a program.

    Args:
        data: The part.
        values: The sizes that were read, by their texts.
        role: What they are.
        is_outer: Whether the part is outside of branches and loops.

    Raises:
        UnsupportedProgramError: A file may not have a size.
    """
    if isinstance(data, list):
        for part in data:
            yield from _entries(part, values, role, is_outer)
    elif isinstance(data, dict) and isinstance(text := data.get("expr_str"), str):
        if text not in values:
            values[text] = _value_of(text)
        yield _Entry(data, values[text], role, is_outer)
    elif isinstance(data, dict):
        for key, part in data.items():
            yield from _entries(part, values, _ROLES.get(key, role), is_outer and key != "as_graph")


def _value_of(text: str) -> Any:
    try:
        size = from_json(size_of(text), lambda symbol: sympy.Symbol(symbol[0], **symbol[1]))
        return sympy.sympify(size)
    except UnreadableFileError as error:
        raise UnsupportedProgramError(
            f"The model computes the size {text[:200]}, which has no form in a file. Compute it where the model is "
            "called, or make a fixed size of it."
        ) from error
