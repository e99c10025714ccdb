"""Options that make a run of the tests shorter: ``make check`` uses them."""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import logging
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import torchtrt
from tests.support.machines import Machine
from torchtrt.testing import tensorrts

ALLOCATIONS = 10_000
"""New objects after which Python looks for garbage among them: its own 700 take a tenth of the time of many tests."""

MOST_ROWS = 12
"""The summary of a run names so many folders, those with the longest tests."""

_PARENT = re.compile(r"(plugins/contrib/[^/]+|(plugins|tests)/[^/:]+|[^/:]*)")
"""The distribution of a test, or its folder or file in ``tests``."""

MOST_CASES = 200
"""Cases of changed converters that a run with ``--at-most`` has at the most."""

_GENERATION = "plugins/contrib/transformers/tests"
SHARING = {
    "models that generate": [
        f"{_GENERATION}/test_{name}.py"
        for name in ("generation", "generation_memory", "refused_calls")
    ],
}
"""Files of tests that share models, by the name of these."""

LAST = (
    *SHARING, "plugins/contrib/diffusers/", "plugins/contrib/quantization/", "plugins/contrib/transformers/",
    "tests/architectures/", "tests/models/",
)  # fmt: skip
"""The files that run last, by how their names begin: their libraries have a thousand subclasses of ``nn.Module``.

PyTorch replaces methods of ``nn.Module`` for each program that it traces, and Python then visits all subclasses.
"""

FAR = 4
"""A run with ``--changed-modules`` has one in so many tests of the files that import none of these modules."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--at-most`` and ``--changed-modules``."""
    group = parser.getgroup("torchtrt")
    group.addoption(
        "--at-most",
        type=int,
        metavar="NUMBER",
        help="run each parametrized test with so many of its parameters, the same ones each time; "
        "files that the command line names run whole",
    )
    group.addoption(
        "--changed-modules",
        default="",
        metavar="MODULE,...",
        help=f"with --at-most, run up to {MOST_CASES} cases of the ops that these modules convert or decompose, "
        f"and one in {FAR} tests of the files that import none of them",
    )


@pytest.fixture(params=tensorrts())
def version(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a test with the reference TensorRT of each version, or with the real one where it is in use."""
    with torchtrt.use_tensorrt(request.param):
        yield request.param


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Another machine, with a GPU or a ``tensorrt`` package that this one lacks."""
    return Machine(monkeypatch, tmp_path_factory.mktemp("packages"))


@pytest.hookimpl(trylast=True)  # after the versions of TensorRT are chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the parameters that ``--at-most`` leaves out."""
    most = config.getoption("--at-most")
    if most is None:
        return
    whole = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    modules = set(filter(None, config.getoption("--changed-modules").split(",")))
    is_changed, is_near = _test_of_changes(modules), _imports_of(modules)
    by_test: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_test[item.nodeid.partition("[")[0]].append(item)
    kept: set[pytest.Item] = set()
    for test, parameters in by_test.items():
        if parameters[0].path in whole:
            kept.update(parameters)
            continue
        kept.update(_some([item for item in parameters if is_changed(item)], MOST_CASES))
        if is_near(parameters[0].path) or zlib.crc32(test.encode()) % FAR == 0:
            kept.update(_some(parameters, most))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives files that share compiled models to one worker, which compiles them once, and large libraries last."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByModels(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((models for models, files in SHARING.items() if file in files), file)

        def _assign_work_unit(self, node: Any) -> None:
            waiting = list(
                self.workqueue
            )  # in the order of their number of tests, the largest first
            usual = (scope for scope in waiting if not scope.startswith(LAST))
            # Of the last ones, those with few tests have the longest: no worker should wait for one of them at the end.
            last = (*filter(SHARING.__contains__, waiting), *reversed(waiting))
            self.workqueue.move_to_end(next(usual, last[0]), last=False)
            super()._assign_work_unit(node)

    return ByModels(config, log)


def pytest_configure() -> None:
    """Keeps pytest from logging what PyTorch traces: it gives loggers a handler that do not pass messages on.

    PyTorch then describes each symbol and each tensor of an export, with a stack, which nothing reads.
    """
    logging.getLogger("torch.__trace").propagate = True


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Keeps Python from looking for garbage while tests are collected: a quarter of the time."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keeps Python from looking for garbage among the libraries and the tests, again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS)
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints where the time of a run went, by distribution and by folder of ``tests``."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[_PARENT.match(report.nodeid)[0]] += report.duration  # type: ignore[index]
    rows = sorted(seconds.items(), key=lambda row: -row[1])
    if len(rows) > 1:
        total = sum(seconds.values())
        parts = ", ".join(f"{name} {part:.0f}" for name, part in rows[:MOST_ROWS])
        terminalreporter.write_line(f"{total:.0f} seconds in tests: {parts}")


def _some(items: Sequence[pytest.Item], most: int) -> Sequence[pytest.Item]:
    """Returns as many of the items, and the same ones each time."""
    return sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode()))[:most]


def _imports_of(modules: set[str]) -> Callable[[Path], bool]:
    """Returns whether a file of tests imports one of the modules; every file does if there are no modules.

    A package's own module counts only if no other changed: nearly all tests import something of it.
    """
    inner = {name for name in modules if "." in name} or modules

    @functools.cache
    def is_near(path: Path) -> bool:
        return not inner or not inner.isdisjoint(_names_imported(path))

    return is_near


def _names_imported(path: Path) -> Iterator[str]:
    """Yields the modules that a file imports, and what it imports from them, which may be modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _test_of_changes(modules: set[str]) -> Callable[[pytest.Item], bool]:
    """Returns whether a test is of a case whose ops changed modules convert or decompose."""
    ops: set[str] = set()
    if any(name.startswith("torchtrt_converters_") for name in modules):
        ops = _ops_of(modules) | _ops_of_cases(modules)

    def is_changed(item: pytest.Item) -> bool:
        callspec = getattr(item, "callspec", None)
        case = callspec.params.get("case") if callspec and ops else None
        return hasattr(case, "ops") and bool(ops & set(_ops_in(case)))

    return is_changed


def _ops_of(modules: set[str]) -> set[str]:
    """Returns the names of the ops whose converter or decomposition is defined in modules."""
    from torchtrt.packs import loaded_packs

    ops = set()
    for loaded in loaded_packs():
        registered = [
            (entry.target, entry.support.converter_implementation)
            for entry in loaded.pack.converters
        ]
        registered += [(entry.target, entry.function) for entry in loaded.pack.decompositions]
        ops |= {_name(target) for target, function in registered if function.__module__ in modules}
    return ops


def _ops_of_cases(modules: set[str]) -> set[str]:
    """Returns the names of the ops that the cases of modules call."""
    families = [
        name for name in modules if name.split(".")[1:2] == ["cases"] and name.count(".") == 2
    ]
    cases = [case for name in families for case in importlib.import_module(name).CASES]
    return {op for case in cases for op in _ops_in(case)}


def _ops_in(case: Any) -> Iterator[str]:
    """Yields the names of the ops that a case is about."""
    yield from case.ops
    if hasattr(case.function, "_schema"):
        yield _name(case.function)


def _name(target: Any) -> str:
    """Returns the name of an op that a pack names, or gives itself."""
    from torchtrt.targets import qualified_name

    return target if isinstance(target, str) else qualified_name(target)
