"""Writes the table of Torch-TensorRT's capabilities into its page: ``python -m tools.peer_page``."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tools.import_graph import ROOT
from tools.written_sections import with_section

PAGE = ROOT / "docs/peer-capabilities.md"
DATA = ROOT / "docs/peer-capabilities.json"
COMMAND = "python -m tools.peer_page"
STATES = {"here": "yes", "partly": "in part", "absent": "no"}
"""How the table writes each state, in the order of the rows."""


def table() -> Iterator[str]:
    """Yields the lines of the table: first what is here."""
    yield from ("| capability | here | page, and what differs |", "|---|---|---|")
    rows = json.loads(DATA.read_text(encoding="utf-8"))
    for row in sorted(rows, key=lambda row: list(STATES).index(row["state"])):
        title = (ROOT / "docs" / row["page"]).read_text(encoding="utf-8").partition("\n")[0]
        words = f"[{title.removeprefix('# ')}]({row['page']}). {row['note']}".strip()
        yield f"| {row['capability']} | {STATES[row['state']]} | {words} |"


def page() -> str:
    """Returns the page with the table of today."""
    text = "\n".join(table())
    return with_section(PAGE.read_text(encoding="utf-8"), COMMAND, f"{text}\n")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
