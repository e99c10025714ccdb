"""Checks the prose of the project with textlint: ``python -m tools.prose [PATH ...]``.

textlint reads the Markdown pages as they are. For each Python module this program writes a Markdown file that holds
the docstrings on the lines that they have in the module, so that textlint's line numbers are right. The rules are in
``tools/prose``. textlint needs Node.js: without npm only messages, comments and names are checked. In continuous
integration, where the environment variable ``CI`` is set, that is a failure.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.changed_tests import changed_files

ROOT = Path(__file__).parents[1]
RULES = ROOT / "tools/prose"


def main(arguments: list[str] | None = None) -> int:
    """Prints what the rules find, as ``path:line: message``.

    Returns:
        The exit status: 0 if nothing was found.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.prose", description=__doc__)
    parser.add_argument("paths", nargs="*", help="files; by default all that git tracks")
    parser.add_argument("--changed", action="store_true", help="only those that differ from main")
    options = parser.parse_args(arguments)
    paths = options.paths or tracked_files()
    if options.changed:
        paths = sorted(set(paths) & set(changed_files()))
    prose = [path for path in paths if options.paths or not is_test(path)]
    complaints = of_textlint(prose)
    for path in paths:  # one after the other, so that each is parsed once
        complaints += [*(of_messages([path]) if path in prose else ()), *of_names([path])]
    if complaints:
        print(*complaints, sep="\n")
    return 1 if complaints else 0


def of_textlint(paths: list[str]) -> list[str]:
    """Returns what textlint finds in pages and docstrings; where it cannot be installed, that it is missing."""
    if shutil.which("npm") is None:
        return _unchecked("npm is not installed")
    try:
        textlint = installed_textlint()
    except subprocess.CalledProcessError as error:
        return _unchecked(f"npm could not install textlint ({error})")
    with tempfile.TemporaryDirectory() as folder:
        copies = copy_prose(paths, Path(folder))
        return findings(textlint, copies) if copies else []


def _unchecked(reason: str) -> list[str]:
    """Prints why pages are not checked or, in continuous integration, returns it as a finding."""
    message = f"Pages and docstrings are not checked: {reason}."
    if os.environ.get("CI"):
        return [message]
    print(message)
    return []


def of_messages(paths: list[str]) -> Iterator[str]:
    """Yields the expressions in messages and comments that have a better one, as ``path:line: message``."""
    for path in paths:
        if not path.endswith(".py"):
            continue
        source = (ROOT / path).read_text(encoding="utf-8")
        for line, text in sorted({*messages(source), *comments(source)}):
            for pattern, better in _patterns():
                if match := pattern.search(text):
                    yield f'{path}:{line}: "{match[0]}": {better}.'


def of_names(paths: list[str]) -> Iterator[str]:
    """Yields the names in modules that name nothing, as ``path:line: message``."""
    empty = set(house_style()["names"])
    for path in paths:
        if not path.endswith(".py"):
            continue
        for line, name in sorted({*names((ROOT / path).read_text(encoding="utf-8"))}):
            if name.strip("_") in empty:
                yield f"{path}:{line}: {name!r} names nothing: write what the value is."


@functools.lru_cache(maxsize=1)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def names(source: str) -> Iterator[tuple[int, str]]:
    """Yields the names that a module gives to values, parameters, attributes, functions and classes, with the lines."""
    for node in ast.walk(_parsed(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE), better)
        for phrase, better in house_style()["phrases"].items()
    ]


@functools.cache
def house_style() -> dict[str, Any]:
    """Returns the project's own words: phrases that have a better one, and names that name nothing."""
    style: dict[str, Any] = json.loads((RULES / "rules/house-style.json").read_text("utf-8"))
    return style


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Yields the texts of a module that are no docstrings, each with its line."""
    documentation = set()
    for node in ast.walk(_parsed(source)):  # an expression comes before its parts
        match node:
            case ast.Expr():
                documentation.add(node.value)
            case ast.Constant(value=str() as text) if " " in text and node not in documentation:
                yield node.lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yields the comments of a module, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def is_test(path: str) -> bool:
    """Returns whether only the names in a module are checked, and not its sentences."""
    return "tests" in Path(path).parts


def tracked_files() -> list[str]:
    """Returns the Markdown pages and Python modules that git tracks, notes excepted."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    # Notes are journals; git lists a deleted file until the commit.
    return [path for path in listed if not path.startswith("notes") and (ROOT / path).is_file()]


def installed_textlint() -> Path:
    """Returns textlint's program."""
    packages = installed_packages(RULES)
    # A rule finds the packages that it imports beside itself.
    shutil.copytree(RULES / "rules", packages.parent / "rules", dirs_exist_ok=True)
    return packages / ".bin/textlint"


def installed_packages(tool: Path) -> Path:
    """Returns the packages of a tool, which npm installs once into a folder that git ignores.

    Args:
        tool: The tool's folder, with a ``package.json``.
    """
    folder = ROOT / ".cache" / tool.name
    wanted = (tool / "package.json").read_bytes()
    installed = folder / "installed.json"
    if not installed.exists() or installed.read_bytes() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_bytes(wanted)
        subprocess.run(
            ["npm", "install", "--no-fund", "--no-audit", "--silent"], cwd=folder, check=True
        )
        installed.write_bytes(wanted)
    return folder / "node_modules"


def copy_prose(paths: list[str], folder: Path) -> dict[Path, str]:
    """Writes the prose of files into a folder, and returns the original of each copy."""
    copies = {}
    for path in paths:
        text = (ROOT / path).read_text(encoding="utf-8")
        copy = folder / f"{path}.md"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(docstrings(text) if path.endswith(".py") else text, encoding="utf-8")
        copies[copy] = path
    return copies


def docstrings(source: str) -> str:
    """Returns a module's docstrings as Markdown, each line on the line that it has in the module.

    The strings after the assignments of a module or class count, because they document names.
    """
    lines = [""] * (source.count("\n") + 2)
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                for number, line in enumerate(text.splitlines(), node.lineno - 1):
                    lines[number] = as_markdown(line)
    return "\n".join(lines)


def as_markdown(line: str) -> str:
    """Returns a line of a docstring without its indentation, and nothing for headings and examples."""
    words = line.strip()
    is_heading = words.endswith(":") and " " not in words
    return "" if is_heading or words.startswith((">>>", "...")) else words


def findings(textlint: Path, copies: dict[Path, str]) -> list[str]:
    """Returns what textlint finds, with the original paths."""
    command = [
        str(textlint), "--format", "json", "--config", str(RULES / "textlintrc.json"),
        "--rulesdir", str(textlint.parents[2] / "rules"), *map(str, copies),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=textlint.parents[2], capture_output=True, text=True)
    if not done.stdout.startswith("["):
        raise RuntimeError(f"textlint failed: {done.stderr or done.stdout}")
    return [
        f"{copies[Path(result['filePath'])]}:{message['line']}: {message['message']}"
        for result in json.loads(done.stdout)
        for message in result["messages"]
    ]


if __name__ == "__main__":
    sys.exit(main())
