"""Runs the quick tests of the distributions that have changed; ``make check`` calls it after ruff and mypy.

The changes are those since ``main``, or since the last commit where that is ``main`` itself. Each changed distribution
runs its own tests, on one version of TensorRT, with a few parameters for each test. A distribution without tests, as
the building blocks, is tested by those that import the changed module. Cases of ops run if a changed module takes part
in them. A changed test file runs whole.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.import_graph import importers, packages

ROOT = Path(__file__).parents[1]
ALWAYS = ("tests/test_imports.py", "tests/test_repository.py")
"""The rules that any change can break."""

OPTIONS = ("-m", "not slow", "--tensorrt=one", "--at-most=2", "-n", "auto", "--dist", "worksteal")


@dataclass(frozen=True)
class Selection:
    """The tests to run.

    Attributes:
        tests: Folders, and files that run whole, from the root of the repository.
        modules: The changed modules of packages, and all that import them.
    """

    tests: tuple[str, ...]
    modules: tuple[str, ...]


def main() -> int:
    """Runs pytest and returns its exit status; the program's own arguments go to pytest."""
    paths = changed_files()
    selection = select(paths)
    print(f"{len(paths)} changed files: {' '.join(selection.tests)}", flush=True)
    modules = f"--changed-modules={','.join(selection.modules)}"
    command = [sys.executable, "-m", "pytest", *OPTIONS, modules, *selection.tests, *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def changed_files(root: Path = ROOT) -> list[str]:
    """Returns the files that differ from ``main`` or, on it, from the commit before; new files are among them."""
    at = functools.partial(git, root=root)
    last, base = at("rev-parse", "HEAD"), at("merge-base", "HEAD", "main")
    if not base or last == base:
        base = ["HEAD"] if at("status", "--porcelain") else ["HEAD~1"]
    new = at("ls-files", "--others", "--exclude-standard")
    return sorted({*at("diff", "--name-only", base[0]), *new})


def git(*arguments: str, root: Path = ROOT) -> list[str]:
    """Returns the lines that a git command prints; none if it fails, as without a branch ``main``."""
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def select(paths: Iterable[str]) -> Selection:
    """Returns the tests to run for changed files, named from the root of the repository."""
    paths = list(paths)
    tests = {name for path in paths for name in tests_of(path)}
    return Selection(
        tuple(sorted(name for name in {*tests, *ALWAYS} if (ROOT / name).exists())),
        tuple(sorted({name for path in paths for name in modules_of(ROOT / path)})),
    )


def tests_of(path: str) -> Iterator[str]:
    """Yields the tests that a changed file asks for."""
    file = Path(path)
    if file.suffix == ".md":
        yield "tests/test_docs.py"
    if "src" in file.parts:
        yield from _of_source(file)
    elif "tests" in file.parts:
        yield from _of_test_file(file)


def _of_source(file: Path) -> Iterator[str]:
    """Yields the tests of a source file's distribution or, if it has none, of those that import the file."""
    own = _tests_beside(ROOT / file)
    if own.is_dir():
        yield str(own.relative_to(ROOT))
        return
    changed = modules_of(ROOT / file)
    for package in packages():
        if changed & package.modules().keys():
            yield str(_tests_beside(package.folder).relative_to(ROOT))


def _tests_beside(path: Path) -> Path:
    """Returns where the tests of the distribution are that a path under ``src`` is in."""
    source = next(parent for parent in path.parents if parent.name == "src")
    return source.parent / "tests"


def _of_test_file(file: Path) -> Iterator[str]:
    """Yields a changed test file, or the folder of tests that a changed helper is for."""
    if file.name.startswith("test_"):
        yield str(file)
    elif file.parts[:2] == ("tests", "support"):
        yield "tests/test_processes.py"
    elif file.parent != Path("tests") and file.suffix == ".py":
        yield str(file.parent)


def modules_of(path: Path) -> set[str]:
    """Returns the module of a changed file, and those that import it directly or through others."""
    for package in packages():
        for module, file in package.modules().items():
            if file == path:
                return importers(module)
    return set()


if __name__ == "__main__":
    sys.exit(main())
