"""The layout of the site: long names in tables, the navigation of the first page, the order of search results."""

from __future__ import annotations

import re
from typing import Any

_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_CODE = re.compile(r"<code>.*?</code>", re.DOTALL)
_JOINT = re.compile(r"(?<=[A-Za-z_])([./]|::)(?=[A-Za-z_<])")
_WORD = re.compile(r"\w{12,}")
_UNDERSCORE = re.compile(r"(?<=[^\W_])_(?=[^\W_])")
_NARROW = '<wbr class="narrow">'
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Sets how the theme shows a page.

    The first page is alone in its section, so it has no list of pages beside it.
    The generated pages name every function and op. In search results, they come after pages that explain.
    """
    if page.is_homepage:
        page.meta.setdefault("hide", ["navigation"])
    if "\n::: " in markdown or page.file.src_path in ("ops.md", "coverage.md"):
        page.meta.setdefault("search", {"boost": 0.2})


def on_page_content(html: str, **_: Any) -> str:
    """Returns a page in which a browser may break dotted names, paths and long words in the code of tables.

    They break behind a dot, a slash or colons, and words of more than 20 characters behind an underscore.
    On a narrow screen, each word of 12 characters may, and also before a capital letter.
    The style sheet forbids other breaks, so that readers see each part of a name whole.
    """
    return _CELL.sub(lambda cell: _CODE.sub(_with_breaks, cell[0]), html)


def _with_breaks(code: re.Match[str]) -> str:
    joints = _JOINT.sub(r"\1<wbr>", code[0])
    return _WORD.sub(_with_breaks_in_word, joints)


def _with_breaks_in_word(word: re.Match[str]) -> str:
    capitals = _CAPITAL.sub(_NARROW, word[0])
    return _UNDERSCORE.sub("_<wbr>" if len(word[0]) > 20 else f"_{_NARROW}", capitals)
