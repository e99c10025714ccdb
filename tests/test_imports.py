"""Structure inside packages: no circles, layers, which modules name ops. Between them: test_boundaries."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.processes import TESTING, run_python
from tools.import_graph import ROOT, Package, circles, imported, nodes_of, packages

PACKAGES = packages()
CORE = Package("torchtrt", ROOT / "core/src/torchtrt")

OPS_OF_THE_COMPILER = {
    "trial_calls": "the numbers of tokens in an engine's inputs are rows of the table that an embedding reads",
    "exporting/parallel_models": "attention stays one op where a DTensor's ops are recorded after dispatch",
    "lowering/aliasing": "the copies that it adds",
    "lowering/cleanup": "no-ops of inference, and what torch.export leaves behind: assertions, aliases, casts",
    "lowering/functionalization": "normalizations that write, which their schemas do not declare",
    "memory_of_calls": "composites that may return their argument although their schema does not declare it",
    "sizes/calls": "the assertion of a condition on sizes, which torch.export adds",
    "sizes/numbers": "the size that a number becomes",
    "lowering/strides": "what reads memory by strides, and the copy that it gets",
    "lowering/program": "the copy back to what the model writes to",
    "partitioning/division": "what TensorRT 8.6 builds as one node: products without convolutions",
    "lowering/retracing": "composites that are views, which their schemas do not declare, and ``copy``",
    "measuring/tuning": "casts, which cost an engine nothing",
}
"""The modules of the compiler that name ops, and why no other can."""
COMPILER = Package("torchtrt_compiler", ROOT / "plugins/compiler/src/torchtrt_compiler")
RUNTIME = Package("torchtrt_runtime", ROOT / "plugins/runtime/src/torchtrt_runtime")
FOLLOW = Package("torchtrt_follow", ROOT / "plugins/follow/src/torchtrt_follow")
LAYERED = (CORE, RUNTIME, COMPILER, FOLLOW)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_module_imports_itself_through_others(package):
    """There is no circle of imports, those in functions and for types included."""
    assert [] == circles(package.dependencies())


@pytest.mark.parametrize("package", LAYERED, ids=lambda package: package.name)
def test_a_layer_imports_only_from_layers_below(package):
    """The layers are those that docs/design.md lists, from the ground up."""
    text = (ROOT / "docs/design.md").read_text()
    table = text.split(f"## The layers of `{package.name}`")[1].split("\n#")[0]
    layers = [
        re.findall(r"`(\w+)`", line.split("|")[1])
        for line in table.splitlines()
        if line.startswith("| `")
    ]
    height = {name: number for number, layer in enumerate(layers) for name in layer}
    direct = package.dependencies()
    upward = [
        f"{module} -> {name}"
        for module, names in direct.items()
        for name in names
        if package.top_level(module) != package.top_level(name)
        and height[package.top_level(name)] >= height[package.top_level(module)]
    ]

    assert set(height) == {package.top_level(module) for module in direct}
    assert [] == upward


def modules_that_name_ops(package) -> set[str]:
    """The modules of a package that name an ATen op, as paths."""
    return {
        str(path.relative_to(package.folder).with_suffix(""))
        for path in package.modules().values()
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node).startswith(("aten.", "torch.ops.aten."))
    }


def test_the_core_names_no_op():
    """An operator belongs in a pack."""
    assert set() == modules_that_name_ops(CORE)


def test_every_module_of_the_compiler_that_names_ops_has_a_reason():
    """Some ops are part of how PyTorch writes a program down."""
    assert set(OPS_OF_THE_COMPILER) == modules_that_name_ops(COMPILER)


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
        "plugins/contrib/linalg/tests/test_conformance.py",
        "plugins/contrib/special/tests/test_conformance.py",
        "tests/memory/test_memory_law.py",
    ]
    counts = set()
    for order in (files, files[::-1]):
        done = run_python(
            "-m", "pytest", "--collect-only", "-q", *order, cwd=ROOT, libraries=TESTING
        )
        assert 0 == done.returncode, done.stdout
        counts.add(done.stdout.splitlines()[-1].split(" tests")[0])

    assert 1 == len(counts)


LONG = 10
"""The most lines that a function without docstring may have."""
PROGRAMS = [
    path
    for folder in ("docs", "tools", "tests/support", "tests/benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def undocumented_functions(source: str) -> list[str]:
    """The functions of more than ``LONG`` lines without docstring.

    Special methods have their meaning from Python, setters that of their property, and functions in functions that of
    the outer one.
    """
    return [
        node.name
        for node in _outer_functions(ast.parse(source))
        if node.end_lineno - node.lineno >= LONG
        and ast.get_docstring(node) is None
        and not node.name.startswith("__")
        and not any(ast.unparse(decorator).endswith(".setter") for decorator in node.decorator_list)
    ]


def _outer_functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            yield from _outer_functions(node)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_every_long_function_of_a_package_has_a_docstring(package):
    """Private ones as well."""
    modules = package.modules().items()
    functions = {name: undocumented_functions(path.read_text()) for name, path in modules}

    assert [] == [
        f"{name}.{function}" for name, missing in functions.items() for function in missing
    ]


def test_every_long_function_of_a_program_has_a_docstring():
    """Those of the tools, the documentation, the benchmarks and what tests share."""
    functions = {path: undocumented_functions(path.read_text()) for path in PROGRAMS}

    assert [] == [
        f"{path}: {function}" for path, missing in functions.items() for function in missing
    ]


def test_a_function_of_ten_lines_needs_no_docstring():
    """The signature counts."""
    body = "    x += 1\n"

    assert [] == undocumented_functions("def short(x):\n" + body * 9)
    assert ["long"] == undocumented_functions("def long(x):\n" + body * 10)


USERS_OF_PYTORCH = [RUNTIME, COMPILER]
INTERNALS = "torch_internals"
"""The module of a distribution that names what PyTorch may change in any version."""
STABLE = ("torch._check", "torch._ops", "torch.ops.", "torch.utils._pytree")
"""Private by their names alone, or the only modules of what public functions take: ops, and trees of inputs."""


def private_names(source: str) -> set[str]:
    """The private modules of PyTorch, and private names in its modules, that a module imports or reads."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            names.add(ast.unparse(node))
    return {
        name
        for name in names
        if re.match(r"torch\.(\w+\.)*_[a-z]\w*", name, re.IGNORECASE)
        and not name.startswith(STABLE)
        and not re.search(r"\.__\w+__$", name)
    }


@pytest.mark.parametrize("package", USERS_OF_PYTORCH, ids=lambda package: package.name)
def test_one_module_imports_what_pytorch_may_change(package):
    """Support for another PyTorch begins there. The attributes of objects are not in it."""
    users = {
        package.top_level(module)
        for module, path in package.modules().items()
        if private_names(path.read_text())
    }

    assert {INTERNALS} == users
