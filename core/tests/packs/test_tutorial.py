"""The tutorial, followed to the letter: its files are taken from the page, built, installed and tested."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
FILE = re.compile(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


LIBRARY = """
import torch


@torch.library.custom_op("audio_ops::snake", mutates_args=())
def snake(x: torch.Tensor, frequency: float) -> torch.Tensor:
    return x + torch.sin(x * frequency) ** 2 / frequency
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The tutorial's project, as a reader would have it."""
    page = (ROOT / "docs" / "publish-a-pack.md").read_text(encoding="utf-8")
    for name, content in FILE.findall(page):
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return tmp_path / "project"


def test_a_stranger_who_follows_the_tutorial_has_a_working_pack(site: Any, project: Path) -> None:
    """It builds, is found, is in use, and its own tests pass on every version of the reference."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    options = ["--no-build-isolation", "--disable-pip-version-check", "--target", str(site.path)]
    subprocess.run([*command, *options, str(project)], check=True, capture_output=True)
    path = {
        "PYTHONPATH": ":".join(
            map(str, (site.path, *sorted(ROOT.glob("plugins/*/src")), ROOT / "core/src"))
        )
    }

    listed = site.run("-m", "torchtrt", "packs", "--json", **path)
    (site.path / "audio_ops.py").write_text(LIBRARY)
    question = "converters audio_ops::snake --import audio_ops"
    asked = site.run("-m", "torchtrt", *question.split(), "--json", **path)
    tested = site.run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", str(project / "tests"), **path
    )

    answer = json.loads(listed.stdout)
    (pack,) = [entry for entry in answer["packs"] if entry["name"] == "snake"]
    assert (pack["status"], pack["version"], pack["ops"]) == ("in use", "0.1.0", 1)
    assert "audio_ops.snake.default" in answer["missing_ops"]
    assert f"$ torchtrt {question}" in (ROOT / "docs/publish-a-pack.md").read_text(encoding="utf-8")
    (candidate,) = json.loads(asked.stdout)["audio_ops.snake.default"]
    assert candidate["pack"] == "snake"
    assert tested.returncode == 0, tested.stdout + tested.stderr
