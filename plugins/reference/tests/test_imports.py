"""The package is built in layers, and what it lists is what is there."""

from __future__ import annotations

import importlib
import json
import pickle
import re
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import torchtrt_reference as reference
from tests.support.processes import COMPILING, run_python
from tools.import_graph import Package, circles, imported
from torchtrt_reference import operations
from torchtrt_reference.interface.assembly import implementations
from torchtrt_reference.rules import RULES

ROOT = Path(str(reference.__file__)).parent
PACKAGE = Package(reference.__name__, ROOT)
DESCRIPTIONS = resources.files(reference).joinpath("interface", "api")


def documented_layers() -> list[set[str]]:
    """The rooms as the package's docstring lists them, from the ground up."""
    items = re.findall(r"^\d\. (.*?):", str(reference.__doc__), re.M)
    return [set(re.findall(r"``(\w+)``", item)) for item in items]


def run(code: str, libraries: Sequence[str] = COMPILING) -> str:
    """What a process of its own prints."""
    done = run_python("-c", code, libraries=libraries, check=True)
    return done.stdout.strip()


def test_no_module_imports_itself_through_others() -> None:
    """There is no circle of imports, those in functions and for types included."""
    assert [] == circles(PACKAGE.dependencies())


def test_the_documented_layers_are_the_rooms() -> None:
    """The package's docstring names every folder and file under the root once."""
    documented = [name for layer in documented_layers() for name in layer]

    assert sorted(
        {PACKAGE.top_level(module) for module in PACKAGE.modules()} - {PACKAGE.name}
    ) == sorted(documented)


def test_a_module_imports_from_its_own_room_and_those_below() -> None:
    """Nothing is imported from a higher layer, nor from another room of the same one."""
    layers = documented_layers()
    height = {name: number for number, layer in enumerate(layers) for name in layer}
    height[PACKAGE.name] = len(layers)
    upward = [
        f"{module} -> {name}"
        for module, names in PACKAGE.dependencies().items()
        for name in names
        if PACKAGE.top_level(module) != PACKAGE.top_level(name)
        and height[PACKAGE.top_level(name)] >= height[PACKAGE.top_level(module)]
    ]

    assert [] == upward


def test_nothing_but_numpy_and_pytorch_is_needed() -> None:
    """The package imports the standard library, NumPy, PyTorch and itself, so nothing of torchtrt."""
    names = {name.split(".")[0] for path in PACKAGE.modules().values() for name in imported(path)}

    assert {"numpy", "torch", PACKAGE.name} == names - sys.stdlib_module_names


def test_importing_the_package_imports_nothing_slow() -> None:
    """PyTorch, NumPy and the layers are imported when a version is loaded."""
    printed = run(
        "import sys, torchtrt_reference as reference; "
        "print(sorted({'numpy', 'torch', 'torchtrt_reference.operations'} & set(sys.modules)))",
        libraries=(),
    )

    assert "[]" == printed


def test_every_file_under_operations_is_a_family() -> None:
    """The table of operations has what every file in the folders of families lists."""
    files = {
        module
        for module, path in PACKAGE.modules().items()
        if path.is_relative_to(ROOT / "operations")
    }
    families = {
        module for module in files if not PACKAGE.modules()[module].name.startswith("__init__")
    }
    listed = {family.__name__: family.OPERATIONS for family in operations.families()}

    assert families == listed.keys()
    assert [] == [name for name, operations_of_it in listed.items() if not operations_of_it]
    assert {operation.name for family in listed.values() for operation in family} == set(
        operations.OPERATIONS
    )


def test_a_new_file_is_a_new_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family is found because its file is there, without being named anywhere."""
    (tmp_path / "a_new_family.py").write_text("OPERATIONS = ()\n")
    monkeypatch.setattr(operations, "__path__", [*operations.__path__, str(tmp_path)])
    name = f"{operations.__name__}.a_new_family"
    monkeypatch.delitem(sys.modules, name, raising=False)

    families = operations.families()
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(operations, "a_new_family")

    assert name in {family.__name__ for family in families}


def test_every_version_has_rules_and_a_description() -> None:
    """The versions are the keys of the rules, each with a description, and no description is left over."""
    described = {path.name.removesuffix(".json") for path in DESCRIPTIONS.iterdir()}

    assert set(reference.VERSIONS) == described
    assert list(RULES) == list(reference.VERSIONS)
    assert reference.VERSIONS[-1] == reference.DEFAULT_VERSION


def test_every_class_stands_behind_one_that_a_version_has() -> None:
    """What the classes declare to implement is described for a version, and no two classes declare the same."""
    described: set[str] = set()
    for version in reference.VERSIONS:
        text = DESCRIPTIONS.joinpath(f"{version}.json").read_text("utf-8")
        described |= json.loads(text)["classes"].keys()
    said: list[str] = []
    for module in PACKAGE.modules():
        for value in vars(importlib.import_module(module)).values():
            if isinstance(value, type) and value.__module__ == module:
                said += vars(value).get("_implements", ())

    assert set() == set(said) - described
    assert sorted(said) == sorted(implementations())


def test_threads_that_load_a_version_first_get_one_object() -> None:
    """Eight threads that load the same version at the same moment, in a fresh process, share what is assembled."""
    printed = run(
        """
import sys, threading
import torchtrt_reference as reference

sys.setswitchinterval(1e-5)
ready, loaded = threading.Barrier(8), []

def load():
    ready.wait()
    loaded.extend(reference.load(version) for version in reference.VERSIONS)

threads = [threading.Thread(target=load) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(loaded), len(set(map(id, loaded))))
"""
    )

    assert f"{8 * len(reference.VERSIONS)} {len(reference.VERSIONS)}" == printed


def test_a_pickled_member_loads_its_version(version: str) -> None:
    """A member of an enumeration is restored in a process that has not loaded the version yet."""
    member: Any = reference.load(version).DataType.HALF
    printed = run(f"import pickle; print(repr(pickle.loads({pickle.dumps(member)!r})))")

    assert repr(member) == printed
