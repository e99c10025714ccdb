"""Boundaries between distributions: which may import which."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tools.import_graph import ROOT, imported, nodes_of, packages

PACKAGES = {package.name: package for package in packages()}
CORE, RUNTIME, COMPILER = "torchtrt", "torchtrt_runtime", "torchtrt_compiler"
KERNELS = "torchtrt_kernels"
BUILDING_BLOCKS = "torchtrt_blocks"
TEST_KIT = "torchtrt_testing"
MAY_IMPORT = {
    CORE: set(),
    "torchtrt_reference": set(),
    KERNELS: {CORE},
    RUNTIME: {CORE, KERNELS},
    COMPILER: {CORE, KERNELS, RUNTIME},
    "torchtrt_triton": {CORE, RUNTIME},
    "torchtrt_cpp": {CORE},
    BUILDING_BLOCKS: {CORE},
    "torchtrt_converters_aten_core": {CORE, BUILDING_BLOCKS},
    "torchtrt_converters_aten_experimental": {CORE, BUILDING_BLOCKS},
    "torchtrt_converters_fbgemm": {CORE, BUILDING_BLOCKS},
    "torchtrt_converters_linalg": {CORE, BUILDING_BLOCKS},
    "torchtrt_converters_special": {CORE, BUILDING_BLOCKS},
    "torchtrt_converters_complex": {CORE, BUILDING_BLOCKS, COMPILER},
    "torchtrt_converters_distributed": {CORE, RUNTIME, BUILDING_BLOCKS},
    TEST_KIT: {CORE, RUNTIME, COMPILER, "torchtrt_reference"},
}
"""The other packages of the project that a package may import. Packages that are not here may import all."""
FORWARDING = {"torchtrt", "torchtrt.operators", "torchtrt.testing"}
"""Modules of the core that forward to other distributions, so that users import one package."""
IN_A_COMPILATION = "torchtrt_converters_aten_core.passes."
"""Modules whose functions only a compilation calls. They may import the compiler inside of these functions."""
CASES = re.compile(r"torchtrt_converters_\w+\.cases(\..*)?")
"""The packages in which packs keep the cases of their ops. They need the test kit, and only tests import them."""


def foreign(name: str, package: str) -> set[str]:
    """Returns the project's package that a dotted name is in, if ``package`` may not import it."""
    root = name.split(".")[0]
    is_allowed = root == package or root not in PACKAGES or root in MAY_IMPORT[package]
    return set() if is_allowed else {root}


def named_modules(path: Path) -> Iterator[str]:
    """Yields the strings in a file that read as a module of the project, docstrings aside."""
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            root = node.value.split(".")[0]
            if root in PACKAGES and re.fullmatch(r"\w+(\.\w+)+", node.value):
                yield node.value


def imported_at_once(path: Path) -> Iterator[str]:
    """Yields what importing a file imports: the statements outside of functions."""
    inside = {
        id(node)
        for function in nodes_of(path)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and id(node) not in inside:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_imports_run_from_the_core_up(name):
    """Core, runtime, compiler, everything else: none imports upwards, neither by a statement nor by a string."""
    wrong = []
    for module, path in PACKAGES[name].modules().items():
        if module in FORWARDING:
            continue
        reads = imported_at_once if module.startswith(IN_A_COMPILATION) else imported
        names = {*reads(path), *named_modules(path)}
        if CASES.fullmatch(module):
            names = {name for name in names if name.split(".")[0] != TEST_KIT}
        wrong += [
            f"{module}: {imported_name}"
            for imported_name in sorted(names)
            if foreign(imported_name, name)
        ]

    assert [] == wrong


def test_only_tests_import_cases_and_the_test_kit():
    """A pack works where the test kit is not installed, and the kit imports no pack."""
    wrong = [
        f"{module}: {name}"
        for package in PACKAGES.values()
        for module, path in package.modules().items()
        for name in (*imported(path), *named_modules(path))
        if not CASES.fullmatch(module)
        and package.name != TEST_KIT
        and module not in FORWARDING
        and (CASES.fullmatch(name) or name.split(".")[0] == TEST_KIT)
    ]

    assert [] == wrong


def test_the_test_kit_has_no_cases_of_its_own():
    """The cases of an op are in the distribution that converts it."""
    kit = PACKAGES[TEST_KIT].modules().values()
    tables = [
        f"{path.name}:{node.lineno}"
        for path in kit
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("op_case", "TensorSpec"))
    ]

    assert set() == {table.partition(":")[0] for table in tables} - {"cases.py", "op_info.py"}


def test_warnings_name_the_line_of_the_program_that_called():
    """``warn_caller`` finds the line. A ``stacklevel`` is wrong after the next extracted function."""
    wrong = [
        f"{path.name}:{node.lineno}"
        for package in PACKAGES.values()
        if package.name != "torchtrt_reference"  # imports nothing of torchtrt
        for path in package.modules().values()
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
    ]

    assert [] == wrong


def public_packages():
    """Returns the packages of the core that the page on stability lists."""
    page = (ROOT / "docs/stability.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(torchtrt\.\w+)` \|", page, re.MULTILINE))


def test_packs_import_public_packages_of_the_core_only():
    """A pack of somebody else cannot know more than the page on stability lists."""
    public = public_packages() | {CORE}
    wrong = [
        f"{module}: {name}"
        for package in PACKAGES.values()
        if package.name == BUILDING_BLOCKS or package.name.startswith("torchtrt_converters_")
        if package.name
        != "torchtrt_converters_torch_tensorrt"  # imitates another project's registry
        for module, path in package.modules().items()
        for name in imported(path)
        if name.split(".")[0] == CORE
        and name != CORE
        and name.rpartition(".")[0] not in public
        and not CASES.fullmatch(module)
    ]

    assert 8 < len(public)
    assert [] == wrong


def test_the_public_packages_of_the_core_exist():
    """A page that names what is gone misleads pack authors."""
    assert public_packages() <= PACKAGES[CORE].modules().keys()


PRIVATE_IS_THEIRS = {"self", "cls", "aten", "torch", "torch.ops.aten", "torch._C"}
"""Objects whose private attributes are their own, or PyTorch's."""
OF_OTHERS = {*dir(nn.Module()), *dir(torch.Tensor), "_type", "_replace"}
"""Attributes of PyTorch's own objects, of TorchScript's (``_type``) and of named tuples."""


def private_names(path: Path) -> set[str]:
    """The private methods and attributes that the classes in a file define."""
    names = set()
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_no_package_reads_a_private_attribute_of_another():
    """A name with an underscore in front is for its own package."""
    defined = {
        name: set().union(*map(private_names, package.modules().values()))
        for name, package in PACKAGES.items()
    }
    wrong = []
    for name, package in PACKAGES.items():
        others = set().union(*(names for other, names in defined.items() if other != name))
        others -= defined[name] | OF_OTHERS
        for module, path in package.modules().items():
            for node in nodes_of(path):
                is_read = isinstance(node, ast.Attribute) and node.attr in others
                if is_read and ast.unparse(node.value) not in PRIVATE_IS_THEIRS:
                    wrong.append(f"{module}: {ast.unparse(node)}")

    assert [] == wrong


INTERNALS = "torch_internals"
"""The module, or the package, of a distribution with the parts of PyTorch that have no public name."""
DOCUMENTED = {"torch._check"}
"""Names of PyTorch's documentation that look private."""


def private_parts_of_pytorch(path: Path) -> Iterator[str]:
    """Yields the names with an underscore in front that a file imports or reads from PyTorch's modules.

    Names of ops, such as ``torch.ops.aten._to_copy``, are in models and no part of PyTorch's code.
    """
    for node in nodes_of(path):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        for name in names:
            is_private = re.fullmatch(r"torch(\.\w+)*?\._[a-zA-Z]\w*(\.\w+)*", name)
            if is_private and not name.startswith("torch.ops.") and name not in DOCUMENTED:
                yield name


def test_private_names_of_pytorch_are_in_one_module_of_a_distribution():
    """A release of PyTorch may change them, and one module says what each is for and where it ran."""
    private = {
        module: sorted(set(private_parts_of_pytorch(path)))
        for package in PACKAGES.values()
        for module, path in package.modules().items()
        if INTERNALS not in module.split(".")
    }
    assert {} == {module: names for module, names in private.items() if names}


@pytest.mark.parametrize("package", PACKAGES.values(), ids=lambda package: package.name)
def test_private_modules_are_imported_by_their_own_package_only(package):
    """A module with an underscore in front is for its own package."""
    private = [
        f"{module}: {name}"
        for module, path in package.modules().items()
        for name in imported(path)
        if name.split(".")[0] in PACKAGES.keys() - {package.name}
        and any(part.startswith("_") and part != "__version__" for part in name.split("."))
    ]

    assert [] == private


def test_the_core_never_imports_torch_export():
    """Converters, lookups and networks need no exporter."""
    assert [] == [
        module
        for module, path in PACKAGES[CORE].modules().items()
        for name in imported(path)
        if name.startswith("torch.export")
    ]
