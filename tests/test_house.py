"""The rules of the house: what may import what, and what the core knows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tests.house import ROOT, Package, circles, imported, packages

PACKAGES = packages()
CORE = Package("torchtrt", ROOT / "core/src/torchtrt")

OPS_OF_THE_CORE = {
    "lowering/aliasing": "composites that may return their argument although their schema does not say so",
    "lowering/cleanup": "no-ops of inference, and what torch.export leaves behind: assertions, aliases, casts",
    "lowering/functionalization": "normalizations that write to their statistics, which their schema does not tell",
    "lowering/program": "the copy back to what the model writes to",
}
"""The modules of the core that name ops, and why nobody else can."""


def imports_of_project(module_path) -> set[str]:
    """The packages of this project that a file imports."""
    names = {name.split(".")[0] for name in imported(module_path)}
    return names & {package.name for package in PACKAGES}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_module_imports_itself_through_others(package):
    """There is no circle of imports, those in functions and for types included."""
    assert [] == circles(package.dependencies())


def test_a_room_of_the_core_imports_only_from_rooms_below():
    """The layers are those that docs/design.md lists, from the ground up."""
    text = (
        (ROOT / "docs/design.md")
        .read_text()
        .split("## The layers of the core")[1]
        .split("\n## ")[0]
    )
    layers = [
        re.findall(r"`(\w+)`", line.split("|")[1])
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    height = {name: number for number, layer in enumerate(layers) for name in layer}
    direct = CORE.dependencies()
    upward = [
        f"{module} -> {name}"
        for module, names in direct.items()
        for name in names
        if CORE.room(module) != CORE.room(name)
        and height[CORE.room(name)] >= height[CORE.room(module)]
    ]

    assert set(height) == {CORE.room(module) for module in direct}
    assert [] == upward


def test_the_core_imports_no_other_piece_of_the_project():
    """Packs, front ends and TensorRTs are found, never imported by name; one module is a name for another piece."""
    known = {name: imports_of_project(path) - {"torchtrt"} for name, path in CORE.modules().items()}

    assert known.pop("torchtrt.testing") == {"torchtrt_testing"}
    assert {} == {name: names for name, names in known.items() if names}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_private_modules_are_imported_by_their_own_package_only(package):
    """A module or name with an underscore in front is nobody else's business."""
    private = [
        f"{module}: {name}"
        for module, path in package.modules().items()
        for name in imported(path)
        if name.split(".")[0] in {each.name for each in PACKAGES} - {package.name}
        and any(part.startswith("_") and part != "__version__" for part in name.split("."))
    ]

    assert [] == private


def test_every_module_of_the_core_that_names_ops_has_a_reason():
    """An operator belongs in a pack."""
    naming = {
        str(path.relative_to(CORE.folder).with_suffix(""))
        for path in CORE.modules().values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node).startswith(("aten.", "torch.ops.aten."))
    }

    assert set(OPS_OF_THE_CORE) == naming


def test_a_pack_imports_no_other_packs_converters():
    """What packs share is building blocks, and what the core offers."""
    wrong = [
        f"{module}: {name}"
        for package in PACKAGES
        for module, path in package.modules().items()
        for name in imported(path)
        if name.startswith("torchtrt_converters_")
        and not name.startswith(package.name)
        and name.split(".")[1:2] != ["impl"]
    ]

    assert [] == wrong


def test_tests_are_collected_in_any_order():
    """No two packages of tests share a name, whichever comes first."""
    files = [
        "plugins/aten_core/tests/test_recurrent.py",
        "tests/architectures/test_architectures.py",
    ]
    counts = set()
    for order in (files, files[::-1]):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", *order],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert 0 == done.returncode, done.stdout
        counts.add(done.stdout.splitlines()[-1].split(" tests")[0])

    assert 1 == len(counts)
