"""Writes the tables of TensorRT's capabilities into their page, where the site is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchtrt.errors import TensorRTUnavailableError
from torchtrt.tensorrt import Capability, supports, use_tensorrt

PAGE = "tensorrt-capabilities.md"
MARK = "<!-- tables -->"
TENSORRTS = ("reference@8.6.0", "reference@10.16.1", "reference@11.4.0", "rtx")
_COLUMNS = ("8.6", "10.16", "11.4", "RTX 1.7")
TITLES = {
    "networks": "Networks",
    "dtypes": "Dtypes",
    "layers": "Layers",
    "building": "Building",
    "running": "Running",
    "exactness": "Exactness",
}
"""The title of each group of capabilities."""


def available(tensorrt: str) -> set[Capability] | None:
    """Returns the capabilities of a TensorRT; ``None`` if it is not installed."""
    try:
        with use_tensorrt(tensorrt):
            return {capability for capability in Capability if supports(capability)}
    except TensorRTUnavailableError:
        return None


def tables() -> Iterator[str]:
    """Yields the lines of a table for each group of capabilities."""
    supported = [available(tensorrt) for tensorrt in TENSORRTS]
    for group, title in TITLES.items():
        yield f"## {title}\n"
        yield f"| capability | meaning | since | {' | '.join(_COLUMNS)} |"
        yield "|---|---|---|" + "---|" * len(_COLUMNS)
        for capability in Capability:
            if capability.group == group:
                cells = (_cell(capabilities, capability) for capabilities in supported)
                facts = (
                    f"`{capability.name}`",
                    capability.description,
                    capability.since,
                    *cells,
                )
                yield f"| {' | '.join(facts)} |"
        yield ""


def _cell(supported: set[Capability] | None, capability: Capability) -> str:
    if supported is None:
        return "not installed"
    return "yes" if capability in supported else ""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the text of a page, with the tables in place of the mark."""
    if page.file.src_path != PAGE:
        return markdown
    return markdown.replace(MARK, "\n".join(tables()))
