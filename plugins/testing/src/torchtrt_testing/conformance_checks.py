"""The checks of a pack that the conformance tests share."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

import pytest
import torch
from torch.fx import Node

from torchtrt.contract import (
    Converter,
    SchemaArguments,
    Validator,
    calling_convention,
    to_rejection,
)
from torchtrt.errors import TorchTRTError
from torchtrt.graphs.symbols import no_new_assumptions
from torchtrt.packs import PACKS, CallingConvention, LoadedPack
from torchtrt.packs.info import FIRST_PARTY_TIER
from torchtrt.packs.problem import describe
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.settings import CompilationSettings
from torchtrt.targets import Target, parse_target, qualified_name
from torchtrt.tensorrt import dtype_name
from torchtrt.torch_internals import OpOverload
from torchtrt_compiler.catalogue import FILE, Catalogue, CataloguedPack
from torchtrt_testing import nodes
from torchtrt_testing.cases import OpCase
from torchtrt_testing.joint_checks import AT_ONCE
from torchtrt_testing.pack_cases import first_party_cases
from torchtrt_testing.versions import tensorrts


def validators_of(pack: LoadedPack) -> dict[Any, list[Validator]]:
    """Returns the validators of a pack's converters by the op that they check."""
    validators: dict[Any, list[Validator]] = {}
    for converter in pack.pack.converters:
        if converter.validate is not None and not why_missing(converter.target):
            validators.setdefault(parse_target(converter.target), []).append(converter.validate)
    return validators


def faults_of_validators(
    validators: Mapping[Any, Sequence[Validator]], asked: Iterable[Node]
) -> list[str]:
    """Calls a pack's validators for nodes, and returns each error and each change of the graph once."""
    settings = CompilationSettings()
    wrong = []
    graph = before = None
    for node in asked:
        if node.op != "call_function" or node.target not in validators:
            continue
        name = f"{qualified_name(node.target)} {_outline(node)}"
        if node.graph is not graph:
            graph, before = node.graph, nodes.snapshot(node)
        for validate in validators[node.target]:
            try:
                with no_new_assumptions(node.graph):
                    to_rejection(validate(node, settings))
            except Exception as error:
                wrong.append(f"{name}: {describe(error)}")
        after = nodes.snapshot(node)
        if after != before:
            wrong.append(f"{name}: the validator changed the graph")
            before = after
    return list(dict.fromkeys(wrong))


@functools.cache
def cases_of_others(pack: str, targets: tuple[Any, ...]) -> tuple[OpCase, ...]:
    """Returns the first-party cases of the ops that another, first-party pack converts too."""
    overridden = [
        qualified_name(target)
        for target in targets
        if any(
            candidate.pack.name != pack and candidate.pack.tier <= FIRST_PARTY_TIER
            for candidate in DYNAMO_CONVERTERS.candidates(target)
        )
    ]
    return first_party_cases(*overridden) if overridden else ()


def cases_beside(item: Any, case: OpCase, sizes: str, tensorrt: str) -> tuple[OpCase, ...]:
    """Returns the cases of the program of a case: those that the run tests in the same way, in parts of a few.

    Args:
        item: The test of the case.
        case: The case.
        sizes: Whether its dimensions vary.
        tensorrt: The TensorRT that it is tested on.
    """
    run = _cases_of_run(item.session, item.cls, item.originalname)
    cases = run[sizes, tensorrt]
    start = cases.index(case) // AT_ONCE * AT_ONCE
    return tuple(cases[start : start + AT_ONCE])


@functools.cache
def _cases_of_run(session: Any, cls: type, name: str) -> dict[tuple[str, str], list[OpCase]]:
    """Returns the cases that a run gives a test, by sizes and TensorRT, in the order of the run."""
    cases: dict[tuple[str, str], list[OpCase]] = {}
    for item in session.items:
        if getattr(item, "cls", None) is cls and getattr(item, "originalname", "") == name:
            parameters = item.callspec.params
            cases.setdefault((parameters["sizes"], parameters["tensorrt"]), []).append(
                parameters["case"]
            )
    return cases


def parametrize(metafunc: Any, names: Sequence[str], rows: list[Any], nothing: str) -> None:
    """Makes a test of each row, on each TensorRT if it takes one; without rows one that is skipped with the reason."""
    on = tensorrts()
    if not rows:
        rows, on = [pytest.param(*[None] * len(names), marks=pytest.mark.skip(nothing))], [None]
    metafunc.parametrize(names, rows)
    if "tensorrt" in metafunc.fixturenames:
        metafunc.parametrize("tensorrt", on)


def why_missing(target: Any) -> str | None:
    """Returns why an op is not here, with help such as the closest name; ``None`` for one that is."""
    try:
        parse_target(target)
    except TorchTRTError as error:
        return str(error)
    return None


def catalogue_fault(loaded: LoadedPack) -> str:
    """Returns how the list of ops in a pack's package differs from the pack, or an empty string.

    Ops that this PyTorch lacks may be in the list.
    """
    path = resources.files(PACKS.package_name(loaded.info.name)) / FILE
    if not path.is_file():
        pytest.skip(f"the package has no {FILE}")
    (listed,) = Catalogue.from_json(path.read_text(encoding="utf-8")).packs
    entry = CataloguedPack.of(loaded)
    missing = sorted({*entry.ops} - {*listed.ops})
    former = sorted(op for op in {*listed.ops} - {*entry.ops} if not why_missing(op))
    if missing or former:
        return f"{FILE} lacks {missing} and has {former}, which the pack does not provide."
    is_same = (listed.distribution, listed.summary) == (entry.distribution, entry.summary)
    return "" if is_same else f"{FILE} has another name or summary than the pack."


def gives_something(target: Any) -> bool:
    """Returns whether an op has results."""
    return bool(getattr(getattr(target, "_schema", None), "returns", True))


def is_custom(function: Any) -> bool:
    """Returns whether a target is an op of a library other than PyTorch."""
    return isinstance(function, OpOverload) and function.namespace not in ("aten", "prims", "prim")


def is_listed(name: str, patterns: Iterable[str]) -> bool:
    """Returns whether one of the patterns matches an op's name, with or without its overload."""
    spellings = {name, name.removesuffix(".default"), ".".join(name.split(".")[:2])}
    return any(
        fnmatch.fnmatchcase(spelling, pattern.strip(".:"))
        for pattern in patterns
        for spelling in spellings
    )


def _outline(node: Node) -> str:
    """Returns what a node's tensors are, as a user reads it."""
    values = [source.meta.get("val") for source in node.all_input_nodes]
    return ", ".join(
        f"{dtype_name(value.dtype)}{list(value.shape)}"
        if isinstance(value, torch.Tensor)
        else str(value)
        for value in values
    )


def check_converter(function: Converter, target: Target) -> None:
    """Checks that a converter can be called with the arguments of its op.

    Raises:
        ConverterSignatureError: It cannot.
    """
    if calling_convention(function) is CallingConvention.SCHEMA:
        SchemaArguments(function, target)
