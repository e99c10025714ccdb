"""Writes the tables of settings into docs/settings.md, from the declarations: ``python -m tools.settings_page``."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator

from tools.import_graph import ROOT
from tools.written_sections import with_section
from torchtrt.settings import CompilationSettings, declarations

PAGE = ROOT / "docs/settings.md"
COMMAND = "python -m tools.settings_page"


def meanings() -> dict[str, str]:
    """Returns what each setting does, in Markdown, from the docstring of the class."""
    attributes = inspect.getdoc(CompilationSettings).partition("Attributes:\n")[2]  # type: ignore[union-attr]
    entries = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", attributes, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", text).replace("``", "`") for name, text in entries}


def tables() -> Iterator[str]:
    """Yields the lines of a heading and a table for each section, in the order of the declarations."""
    texts, section = meanings(), ""
    for spec in dataclasses.fields(CompilationSettings):
        declaration = declarations()[spec.name]
        if declaration.section != section:
            section = declaration.section
            yield from (f"\n## {section}\n", "| setting | default | meaning |", "|---|---|---|")
        how_to = f" ([how to]({declaration.page}))" if declaration.page else ""
        default = getattr(CompilationSettings(), spec.name)
        shown = f"`{default}`" if isinstance(default, (bool, int)) else "none"
        yield f"| `{spec.name}` | {shown} | {texts[spec.name]}{how_to} |"


def page() -> str:
    """Returns the page with the tables of today."""
    text = "\n".join(tables()).strip()
    return with_section(PAGE.read_text(encoding="utf-8"), COMMAND, f"{text}\n")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
