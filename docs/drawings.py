"""Shows the diagrams of the pages as the SVG files that ``python -m tools.diagrams`` draws of them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "diagrams"
FENCE = re.compile(r"^```mermaid\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def drawing_path(page: str, source: str) -> Path:
    """Returns the file with the drawing of a diagram: another source has another name."""
    digest = hashlib.sha256(source.encode()).hexdigest()
    return FOLDER / f"{page}-{digest[:8]}.svg"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns a page's text with drawings in place of Mermaid's language.

    They are a part of the page, so that they have the colors of its theme.

    Raises:
        FileNotFoundError: A diagram has changed since it was drawn.
    """
    name = Path(page.file.src_path).stem

    def drawn(fence: re.Match[str]) -> str:
        svg = drawing_path(name, fence[1]).read_text(encoding="utf-8")
        return f'<div class="diagram">\n{svg}</div>\n'

    return FENCE.sub(drawn, markdown)
