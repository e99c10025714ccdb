"""Only one module looks for names in TensorRT, and code checks capabilities by what it needs."""

import ast
import importlib
import re

import pytest

from docs.capability_tables import TITLES, tables
from tools.import_graph import ROOT, packages
from torchtrt.tensorrt import Capability

PROBES = "torchtrt.tensorrt.probes"
REFERENCE = "torchtrt_reference"
_TENSORRT = re.compile(
    r"(self\.)?_?(trt|tensorrt|network|net|ctx\.net(\.raw)?|builder|engine|runtime|context|bindings)(\.\w+)*$"
)
"""Expressions that are TensorRT's module, or an object of it."""
STRONG_TYPING = {
    "torchtrt_compiler.partitioning.division": "without strong types, TensorRT chooses the types between its nodes",
    "torchtrt.conversion.interpreter": "an output of a weakly typed network takes its dtype from the binding",
    "torchtrt.conversion.results": "a weakly typed network calls float16 Float",
    "torchtrt.tensorrt.shims": "creates networks",
    "torchtrt_compiler.building.precisions": "holds layers of weakly typed networks to their dtypes",
    "torchtrt_converters_aten_core.converters.control_flow": "float16 does not come around a weakly typed loop",
    "torchtrt_converters_aten_core.converters.recurrent": "float16 does not come around a weakly typed loop",
    "torchtrt_converters_aten_core.converters.symbolic": "a weakly typed network takes int8 as quantized values only",
    "torchtrt_blocks.creation": "a Fill layer of a strongly typed network takes its dtype",
    "torchtrt_blocks.types": "a weakly typed network calls float16 Float",
}
"""The modules that check how networks are typed, and why no other capability is meant."""


def modules(*words):
    """Yields the name and the syntax tree of each module that has a word and may not look for names in TensorRT."""
    for package in packages():
        for name, path in package.modules().items():
            source = path.read_text("utf-8")
            allowed = name == PROBES or package.name == REFERENCE
            if not allowed and any(word in source for word in words):
                yield name, ast.parse(source)


def probes_of(tree):
    """Returns the calls that check whether TensorRT's module, or one of its objects, has a name."""
    probes = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        asks = node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3)
        if asks and _TENSORRT.match(ast.unparse(node.args[0])):
            probes.append(ast.unparse(node))
    return probes


def test_no_other_module_looks_for_names_in_tensorrt():
    """A capability has a name, a first version and a message; ``hasattr`` has none of them."""
    calls = modules("hasattr", "getattr")

    assert [] == [f"{name}: {call}" for name, tree in calls for call in probes_of(tree)]


@pytest.mark.parametrize(
    "source",
    [
        "hasattr(trt.DataType, 'INT64')",
        "hasattr(network, 'add_moe')",
        "getattr(trt.PreviewFeature, 'A', None)",
        "hasattr(self._engine, 'x')",
    ],
)
def test_a_probe_is_recognized(source):
    """The test above finds what it is for."""
    assert [source] == probes_of(ast.parse(source))


def test_strong_typing_means_strong_typing():
    """Code that means "not TensorRT 8.6" checks the capability that 8.6 lacks."""
    asking = {
        name
        for name, tree in modules("STRONG_TYPING")
        if any(
            isinstance(node, ast.Attribute) and node.attr == "STRONG_TYPING"
            for node in ast.walk(tree)
        )
    }

    assert set(STRONG_TYPING) == asking - {"torchtrt.capability"}
    assert [] == [
        name
        for name, tree in modules("is_strongly_typed")
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.FunctionDef)
        and "is_strongly_typed" in (getattr(node, "id", ""), getattr(node, "name", ""))
    ]


def test_no_module_compares_versions_of_tensorrt():
    """``version()`` and ``__version__`` are for people, for ranges of packs and for saved files."""
    wrong = [
        f"{name}: {ast.unparse(node)}"
        for name, tree in modules("version")
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and re.search(
            r"\btrt\.__version__|tensorrt_version|selection\.version\(", ast.unparse(node)
        )
    ]

    assert [] == wrong


def test_the_page_lists_every_capability():
    """In one table for each group."""
    text = "\n".join(tables())

    assert {capability.name for capability in Capability} == set(
        re.findall(r"^\| `(\w+)`", text, re.M)
    )
    assert {capability.group for capability in Capability} == set(TITLES)


def test_the_rtx_and_the_reference_declare_capabilities_by_their_names():
    """A misspelt name would declare nothing."""
    named = set()
    for folder in ("rtx/src/torchtrt_rtx", "reference/src/torchtrt_reference"):
        tree = ast.parse((ROOT / "plugins" / folder / "__init__.py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and re.fullmatch(r"[A-Z_0-9]{5,}", str(node.value)):
                named.add(node.value)
        named -= set(importlib.import_module(folder.rpartition("/")[2]).__all__)

    assert named
    assert named <= set(Capability.__members__)
