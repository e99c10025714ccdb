"""Boundaries between distributions: which may import which, and what works with few of them installed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.environment import Environment
from tools.import_graph import ROOT, imported, packages

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
    BUILDING_BLOCKS: {CORE},
    "torchtrt_converters_aten_core": {CORE, BUILDING_BLOCKS},
    "torchtrt_converters_aten_experimental": {CORE, BUILDING_BLOCKS},
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
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            root = node.value.split(".")[0]
            if root in PACKAGES and re.fullmatch(r"\w+(\.\w+)+", node.value):
                yield node.value


def imported_at_once(path: Path) -> Iterator[str]:
    """Yields what importing a file imports: the statements outside of functions."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
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
        for node in ast.walk(ast.parse(path.read_text()))
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
        for node in ast.walk(ast.parse(path.read_text()))
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
    for node in ast.walk(ast.parse(path.read_text())):
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
            for node in ast.walk(ast.parse(path.read_text())):
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
    for node in ast.walk(ast.parse(path.read_text())):
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
    """A release of PyTorch may change them, and one module says what imported_name is for and where it ran."""
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


@pytest.fixture(scope="module")
def core_alone(tmp_path_factory):
    """The core, one pack and the reference."""
    distributions = [
        "torchtrt-core",
        "torchtrt-blocks",
        "torchtrt-converters-aten-core",
        "torchtrt-reference",
    ]
    return Environment(tmp_path_factory.mktemp("core"), distributions)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """What a server installs: the core and the runtime, and here the reference in the place of TensorRT."""
    distributions = ["torchtrt-core", "torchtrt-kernels", "torchtrt-runtime", "torchtrt-reference"]
    return Environment(tmp_path_factory.mktemp("server"), distributions)


BUILD_BY_HAND = """
import numpy as np, torch
from torch.fx import Graph, GraphModule
import torchtrt
from torchtrt import DYNAMO_CONVERTERS, CompilationSettings, trt
from torchtrt.conversion.interpreter import TRTInterpreter
from torchtrt.conversion.inputs import InputProfile, SizeRange
from torchtrt.graphs.nodes import remember_resolution
from torchtrt.tensorrt.logging import logger
from torchtrt.tensorrt.shims import create_network

assert len(DYNAMO_CONVERTERS.unique_targets()) > 300
graph = Graph()
x = graph.placeholder("x")
x.meta["val"] = torch.empty(2, 3, device="meta")
y = graph.call_function(torch.ops.aten.relu.default, (x,))
z = graph.call_function(torch.ops.aten.softmax.int, (y, -1))
graph.output((z,))
y.meta["val"] = z.meta["val"] = x.meta["val"]
settings = CompilationSettings()
for node in (y, z):
    resolution = DYNAMO_CONVERTERS.resolve(node, settings)
    assert resolution, str(resolution)
    remember_resolution(node, resolution)
builder = trt.Builder(logger())
inputs = [InputProfile("x", torch.float32, (2, 3), ((SizeRange(2, 2, 2), SizeRange(3, 3, 3)),))]
block = GraphModule(torch.nn.Module(), graph)
interpreted = TRTInterpreter(block, create_network(builder), inputs, settings).run()
plan = builder.build_serialized_network(interpreted.network.raw, builder.create_builder_config())
runtime = trt.Runtime(logger())
engine = runtime.deserialize_cuda_engine(plan)
context = engine.create_execution_context()
given = torch.rand(2, 3) - 0.5
result = torch.empty(2, 3)
context.set_tensor_address("x", given.data_ptr())
context.set_tensor_address("output_0", result.data_ptr())
assert context.execute_async_v3(0)
torch.testing.assert_close(result, given.relu().softmax(-1))
plan = torch.zeros(1, dtype=torch.uint8)
for missing in (
    lambda: torchtrt.compile,
    lambda: torchtrt.Input,
    lambda: torchtrt.load,
    lambda: torch.ops.torchtrt.execute_engine([given], plan, ""),
):
    try:
        missing()
    except torchtrt.errors.MissingDistributionError as error:
        print(error)
print(sorted(m for m in sys.modules if m.startswith(("torchtrt_runtime", "torchtrt_compiler"))))
"""


def test_the_core_builds_an_engine_from_a_graph_with_a_pack_and_a_tensorrt_alone(core_alone):
    """It lists converters, looks nodes up, interprets the graph, and names what to install for the rest."""
    *missing, imported_pieces = core_alone.run(BUILD_BY_HAND).splitlines()

    assert [
        "torchtrt.compile is in the distribution torchtrt-compiler, which is not installed. "
        "Run `pip install torchtrt-compiler`.",
        "torchtrt.Input is in the distribution torchtrt-compiler, which is not installed. "
        "Run `pip install torchtrt-compiler`.",
        "torchtrt.load is in the distribution torchtrt-runtime, which is not installed. "
        "Run `pip install torchtrt-runtime`.",
        "The operator torchtrt::execute_engine is in the distribution torchtrt-runtime, which is not installed. "
        "Run `pip install torchtrt-runtime`.",
    ] == missing
    assert "[]" == imported_pieces


SERVE = """
import torch, torchtrt
model = torchtrt.load(sys.argv[1])
x = torch.load(sys.argv[2])
with torch.no_grad():
    torch.testing.assert_close(model(x["input"]), x["output"])
    torch.testing.assert_close(torch.export.load(sys.argv[1]).module()(x["input"]), x["output"])
print([module for module in sys.modules if module.startswith(("torchtrt_compiler", "torchtrt_conv"))])
try:
    torchtrt.compile
except torchtrt.errors.MissingDistributionError as error:
    print(error)
"""


def test_a_server_loads_and_runs_a_saved_model_with_the_core_and_the_runtime(server, tmp_path):
    """It needs no pack and no compiler, and its error for compiling says so."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    x = torch.rand(3, 4)
    torchtrt.save(torchtrt.compile(model, [x], min_block_size=1), tmp_path / "model.pt2")
    torch.save({"input": x, "output": model(x).detach()}, tmp_path / "values.pt")

    modules, message = server.run(
        SERVE, tmp_path / "model.pt2", tmp_path / "values.pt"
    ).splitlines()

    assert "[]" == modules
    assert "pip install torchtrt-compiler" in message


class Spectrum(nn.Module):
    """A model from complex to complex numbers."""

    def forward(self, x):
        return torch.fft.fft(x) * 2j


def test_a_server_runs_a_model_of_complex_numbers(server, tmp_path):
    """The views of its inputs and outputs are PyTorch's own ops."""
    model, x = Spectrum().eval(), torch.randn(3, 8, dtype=torch.complex64)
    torchtrt.save(torchtrt.compile(model, [x], min_block_size=1), tmp_path / "model.pt2")
    torch.save({"input": x, "output": model(x)}, tmp_path / "values.pt")

    modules, _ = server.run(SERVE, tmp_path / "model.pt2", tmp_path / "values.pt").splitlines()

    assert "[]" == modules
