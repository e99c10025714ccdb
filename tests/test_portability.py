"""The packages are Python only, for Linux and Windows: nothing in them needs one of the two."""

import ast
import re

import pytest

from tools.import_graph import ROOT, imported, nodes_of, packages

UNIX = {"fcntl", "pwd", "grp", "resource", "termios", "pty", "posix"}
"""Modules that Windows lacks."""
UNIX_CALLS = ("os.fork", "os.kill", "os.killpg", "os.symlink", "os.mkfifo", "os.getuid", "signal.alarm",
              "signal.SIGKILL", "signal.SIGALRM", "os.rename")  # fmt: skip
"""Calls that Windows lacks, or that fail there where a file exists, as ``os.rename``."""
MODULES = [(name, path) for package in packages() for name, path in package.modules().items()]


@pytest.mark.parametrize("package", sorted({name.partition(".")[0] for name, _ in MODULES}))
def test_no_module_needs_unix(package):
    """Test helpers may: they are in no package."""
    imports = []
    for name, path in MODULES:
        if name.partition(".")[0] != package:
            continue
        imports += [
            f"{name}: {module}" for module in imported(path) if module.partition(".")[0] in UNIX
        ]
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in UNIX_CALLS:
                imports.append(f"{name}: {ast.unparse(node)}")

    assert [] == imports


def test_text_files_are_read_and_written_as_utf_8():
    """Windows has another default."""
    wrong = []
    for name, path in MODULES:
        for node in nodes_of(path):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in ("read_text", "write_text"):
                named = {keyword.arg for keyword in node.keywords}
                positional = len(node.args) > (node.func.attr == "write_text")
                if "encoding" not in named and not positional:
                    wrong.append(f"{name}:{node.lineno}")

    assert [] == wrong


def test_files_of_the_packages_have_names_that_windows_takes():
    """No reserved characters or names, and none that differ in case alone."""
    files = [
        path.relative_to(ROOT).as_posix()
        for folder in ("core", "plugins", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    reserved = re.compile(
        r'[<>:"|?*\\]|[. ]$|(^|/)(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE
    )

    assert [] == [file for file in files if reserved.search(file)]
    assert len(files) == len({file.lower() for file in files})
