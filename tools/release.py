"""Builds what a release publishes: ``python -m tools.release VERSION --repository URL``.

All distributions have one version. Their ``pyproject.toml`` files contain no addresses, because a fork has others. This
program adds ``[project.urls]`` to a copy of the checkout. It then builds a wheel and a source distribution of each.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
URLS = """
[project.urls]
Repository = "{0}"
Documentation = "{0}/tree/v{1}/docs"
Changelog = "{0}/blob/v{1}/CHANGELOG.md"
Issues = "{0}/issues"
"""


def main(arguments: list[str] | None = None) -> int:
    """Builds the distributions, or prints what keeps the version from being released.

    Returns:
        The exit status: 1 if something keeps it from being released.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("version", help="the version, as 0.1.0")
    parser.add_argument("--repository", required=True, help="the address of the repository")
    parser.add_argument("--output", type=Path, default=ROOT / "build/release")
    options = parser.parse_args(arguments)
    if obstacles := obstacles_to(options.version):
        print(*obstacles, sep="\n")
        return 1
    build(options.version, options.repository, options.output)
    return 0


def obstacles_to(version: str) -> list[str]:
    """Returns what keeps a version from being released, a sentence each."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    obstacles = [
        f"{project.relative_to(ROOT)} has another version than {version}."
        for project in projects(ROOT)
        if f'\nversion = "{version}"\n' not in project.read_text(encoding="utf-8")
    ]
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE):
        obstacles.append(f'CHANGELOG.md has no section "## {version} (YEAR-MONTH-DAY)".')
    return obstacles


def projects(root: Path) -> list[Path]:
    """Returns the ``pyproject.toml`` of each distribution in a checkout."""
    folders = (".", "core", "plugins/*", "plugins/contrib/*")
    return [path for folder in folders for path in sorted(root.glob(f"{folder}/pyproject.toml"))]


def build(version: str, repository: str, output: Path, chosen: str = "*") -> None:
    """Builds a wheel and a source distribution of each distribution into a folder, which it empties first.

    Args:
        version: The version.
        repository: The address of the repository.
        output: The folder.
        chosen: A pattern for the names of the distributions' folders.

    Raises:
        subprocess.CalledProcessError: A build failed; its output is printed.
    """
    shutil.rmtree(output, ignore_errors=True)
    copy = output.parent / "release-tree"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=copy, check=True, input=archive.stdout)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output.resolve())]
    environment = {**os.environ, "TORCHTRT_RELEASE": "1"}
    for project in projects(copy):
        if not project.parent.match(chosen):
            continue
        with project.open("a", encoding="utf-8") as file:
            file.write(URLS.format(repository, version))
        subprocess.run([*command, str(project.parent)], check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main())
