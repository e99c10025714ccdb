"""Gives the root distribution its dependencies, and the README without links that only the repository has.

The dependencies are the sibling folders in a checkout, exact versions elsewhere.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

FOLDERS = ("core", "plugins/*", "plugins/contrib/*")
"""Where the other distributions of this project are: every such folder with a pyproject.toml."""

FOR_TESTS = "Framework :: Pytest"
"""The classifier of what only tests need: ``torchtrt-all`` does not bring it."""


class SiblingDependencies(MetadataHookInterface):
    """Depends on the checkout's own folders, or on one released version of each (TORCHTRT_RELEASE=1)."""

    def update(self, metadata: dict) -> None:
        """Fills in the dynamic fields of ``pyproject.toml``."""
        root, version = Path(self.root), metadata["version"]
        readme = _without_relative_links((root / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
        from_checkout = not os.environ.get("TORCHTRT_RELEASE")

        def requirement(folder: Path, extra: str = "") -> str:
            name = _name(folder) + extra
            return f"{name} @ {folder.as_uri()}" if from_checkout else f"{name}=={version}"

        folders = sorted(
            path.parent
            for pattern in FOLDERS
            for path in root.glob(f"{pattern}/pyproject.toml")
            if FOR_TESTS not in path.read_text(encoding="utf-8")
        )
        metadata["dependencies"] = [requirement(folder) for folder in folders]
        metadata["optional-dependencies"] = {
            "tensorrt": [requirement(root / "core", "[tensorrt]")],
            "rtx": [requirement(root / "plugins/rtx", "[tensorrt]")],
        }


def _without_relative_links(text: str) -> str:
    """Returns a page as a package index can show it: only the texts of links to files beside it."""
    return re.sub(r"\[([^\]]*)\]\((?![a-z]+:|#)[^)]*\)", r"\1", text)


def _name(folder: Path) -> str:
    text = (folder / "pyproject.toml").read_text()
    return re.search(r'^name = "(.+)"$', text, re.MULTILINE)[1]  # tomllib is newer than Python 3.10
