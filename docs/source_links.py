"""Links of the pages to the repository around them: they lead there, or become text."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)\s]*)\)")


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Returns a page's text for the site: mkdocs reads only its folder."""
    if config.repo_url:
        return _OUTSIDE.sub(
            rf"[\1]({config.repo_url.rstrip('/')}/blob/main/\2)", markdown
        )
    return _OUTSIDE.sub(r"\1", markdown)
