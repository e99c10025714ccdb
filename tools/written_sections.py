"""The part of a page of the documentation that a command writes, between two lines that name the command."""

from __future__ import annotations


def with_section(page: str, command: str, text: str) -> str:
    """Returns a page with a text as the part that a command writes.

    Args:
        page: The page.
        command: The command, as the two lines name it.
        text: The new part.
    """
    mark = f"<!-- written by `{command}` up to the next line like this -->"
    before, _, behind = page.split(mark)
    return f"{before}{mark}\n\n{text}\n{mark}{behind}"
