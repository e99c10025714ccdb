"""How answers are printed: tables for users, JSON for programs."""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console

if TYPE_CHECKING:
    from torchtrt_runtime.reports.text_tables import Listing

_OUTPUT, _ERRORS = 1, 2
_ESCAPING = "backslashreplace"
"""The form of a character that the terminal cannot show, or that is half of one."""
_stream: ContextVar[TextIO | None] = ContextVar("torchtrt_answers", default=None)


@contextmanager
def standard_output(is_last: bool = False) -> Iterator[TextIO]:
    """Yields standard output for answers: everything else that writes to it in the block writes to standard error.

    This includes code that writes to the file descriptor, such as a program that a pack starts.

    Args:
        is_last: Whether the process ends after the block. Threads and exit handlers that write to standard output later
            write to standard error too.
    """
    stream = sys.stdout
    kept = _kept_output(stream)
    try:
        with ExitStack() as stack:
            answers = stream
            if kept is not None:
                answers = stack.enter_context(
                    open(kept, "w", encoding=stream.encoding, errors=_ESCAPING, closefd=False)
                )
            stack.enter_context(redirect_stdout(_lent(sys.stderr)))
            stack.callback(_stream.reset, _stream.set(answers))
            yield answers
            answers.flush()
    finally:
        if kept is not None:
            if not is_last:
                os.dup2(kept, _OUTPUT)
            os.close(kept)


class _Lent(io.TextIOWrapper):
    """A stream that code of packs may write to, and not close."""

    def close(self) -> None:
        """Writes what is buffered."""
        self.flush()


def _lent(stream: TextIO | None) -> TextIO | None:
    """Returns a stream that writes where another one does; the same one if it is no file, as in a notebook."""
    try:
        assert stream is not None
        file = io.FileIO(stream.fileno(), "w", closefd=False)
    except (AssertionError, OSError, ValueError):
        return stream
    return _Lent(io.BufferedWriter(file), stream.encoding, _ESCAPING, line_buffering=True)


def _kept_output(stream: TextIO | None) -> int | None:
    """Returns a new file descriptor of standard output, which from then on leads to standard error.

    A stream that is not the process's, as in a notebook, stays unchanged: None.
    """
    try:
        if stream is None or stream.fileno() != _OUTPUT:
            return None
        stream.flush()
        os.fstat(_ERRORS)  # a process may have none
        kept = os.dup(_OUTPUT)
    except (OSError, ValueError):
        return None
    os.dup2(_ERRORS, _OUTPUT)
    return kept


@contextmanager
def told_alone() -> Iterator[None]:
    """Shows warnings in a ``with`` block without the line of code that they come from."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"{message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def answers() -> TextIO:
    """Returns the stream that answers are printed to."""
    return _stream.get() or sys.stdout


def console() -> Console:
    """Returns a console for answers, wide when it is not a terminal so that lines stay whole."""
    stream = answers()
    width = None if stream.isatty() else 200
    return Console(file=stream, width=width, markup=False, highlight=False)


def print_json(value: Any) -> None:
    """Prints a value as JSON that diffs well: indented, one entry per line."""
    print(json.dumps(value, indent=2, ensure_ascii=False), file=answers())


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Listing:
    """Returns a table to print, which no width breaks a name of."""
    from torchtrt_runtime.reports.text_tables import (
        Listing,  # of a distribution that may be missing
    )

    return Listing(title, headings, rows)
