"""The package's own order: who imports whom, and what importing it costs."""

import ast
import subprocess
import sys
from pathlib import Path

import torchtrt_torchscript

PACKAGE = "torchtrt_torchscript"
MODULES = {path.stem: path for path in Path(torchtrt_torchscript.__file__).parent.glob("*.py")}


def imports_of(path):
    """Yields what a module imports, inside functions and for type checkers too, by its full name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name} imports by a relative name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def neighbours(name):
    """Returns the modules of the package that one of them imports."""
    parts = (full.split(".") for full in imports_of(MODULES[name]))
    return {part[1] for part in parts if part[0] == PACKAGE and part[1] in MODULES}


def test_no_module_imports_itself_through_others():
    """Imports inside functions and for type checkers count."""
    for name in MODULES:
        reached, waiting = set(), neighbours(name)
        while waiting:
            module = waiting.pop()
            reached.add(module)
            waiting |= neighbours(module) - reached
        assert name not in reached


def test_private_modules_are_imported_by_their_own_package_alone():
    """Those of torchtrt are not for this package."""
    private = [
        full
        for path in MODULES.values()
        for full in imports_of(path)
        if full.startswith("torchtrt") and full.split(".")[0] != PACKAGE
        if any(part.startswith("_") for part in full.split("."))
    ]

    assert [] == private


def test_importing_the_package_is_light():
    """A pack that registers TorchScript converters imports it whenever torchtrt is imported."""
    program = (
        "import sys, torch; before = 'sympy' in sys.modules; "
        f"import {PACKAGE}, {PACKAGE}._frontend; {PACKAGE}.torchscript_converter; "
        "print('torchtrt.compiler' in sys.modules, 'sympy' in sys.modules and not before)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "False False\n" == done.stdout
