"""The package's own order: which module imports which, and what importing it costs."""

from pathlib import Path

import torchtrt_torchscript
from tests.support.processes import ONLY_TORCH, run_python
from tools.import_graph import Package, circles, imported

PACKAGE = Package("torchtrt_torchscript", Path(torchtrt_torchscript.__file__).parent)


def test_no_module_imports_itself_through_others():
    """Imports inside functions and for type checkers count."""
    assert [] == circles(PACKAGE.dependencies())


def test_private_modules_are_imported_by_their_own_package_alone():
    """Those of torchtrt are not for this package."""
    private = [
        full
        for path in PACKAGE.modules().values()
        for full in imported(path)
        if full.startswith("torchtrt") and full.split(".")[0] != PACKAGE.name
        if any(part.startswith("_") for part in full.split("."))
    ]

    assert [] == private


def test_importing_the_package_is_light():
    """A pack that registers TorchScript converters imports it whenever torchtrt is imported."""
    program = (
        "import sys, torch; before = 'sympy' in sys.modules; "
        f"import {PACKAGE.name}, {PACKAGE.name}._frontend; {PACKAGE.name}.torchscript_converter; "
        "print('torchtrt_compiler.api' in sys.modules, 'sympy' in sys.modules and not before)"
    )

    done = run_python("-c", program, libraries=ONLY_TORCH, check=True)

    assert "False False\n" == done.stdout
