"""The documentation as a site."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_site_builds_with_every_page_in_its_place(tmp_path):
    """Links, anchors and the navigation are checked, and any warning fails."""
    pytest.importorskip("mkdocs")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        tmp_path,
    ]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert 0 == done.returncode, done.stderr
    assert (tmp_path / "index.html").is_file()
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"}
    assert pages <= {path.parent.name for path in tmp_path.glob("*/index.html")}
    assert not list(tmp_path.rglob("*.py"))
