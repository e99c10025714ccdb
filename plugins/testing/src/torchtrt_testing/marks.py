"""The pytest plugin: the marks of tests on TensorRT, and the option ``--tensorrt`` that chooses versions.

pytest imports this module in every environment that has it, so it imports no PyTorch.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Sequence

import pytest

MARK = "tensorrt"
EACH = "each_tensorrt"
ALL, SOME, ONE = "all", "some", "one"

_VERSION = re.compile(r"(?:reference@)?(\d+\.\d+\.\d+)")
_WEAKLY_TYPED = "8."


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option ``--tensorrt``."""
    parser.getgroup("torchtrt").addoption(
        "--tensorrt",
        default=ALL,
        metavar="all|some|one|VERSION,...",
        help="the versions of the reference TensorRT for tests that run on several: all of them, which is the default; "
        "some, TensorRT 8 and one later version, another one for each test; one, another one for each test; or those "
        f"listed. Tests with the mark {EACH} run on all.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marks, so that ``pytest -m tensorrt`` chooses the tests on the real TensorRT."""
    config.addinivalue_line("markers", f"{MARK}: needs the real TensorRT and an NVIDIA GPU")
    config.addinivalue_line(
        "markers", f"{EACH}: has another outcome on each version, so that --tensorrt leaves it"
    )
    wanted = config.getoption("--tensorrt")
    wrong = [part for part in wanted.split(",") if not _VERSION.fullmatch(part)]
    if wrong and wanted not in (ALL, SOME, ONE):
        raise pytest.UsageError(
            f"--tensorrt={wanted}: write {ALL}, {SOME}, {ONE}, or versions such as 11.4.0, separated by commas."
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests on versions that ``--tensorrt`` leaves out."""
    wanted = config.getoption("--tensorrt")
    tests: dict[str, dict[str, list[pytest.Item]]] = defaultdict(dict)
    for item in items:
        test_and_version = _test_and_version(item)
        if test_and_version is not None and not item.get_closest_marker(EACH):
            test, version = test_and_version
            tests[test].setdefault(version, []).append(item)
    left_out = [
        item
        for test, by_version in tests.items()
        for version in set(by_version) - set(chosen(wanted, test, list(by_version)))
        for item in by_version[version]
    ]
    if left_out:
        without = set(left_out)
        items[:] = [item for item in items if item not in without]
        config.hook.pytest_deselected(items=left_out)


def chosen(wanted: str, test: str, versions: Sequence[str]) -> Sequence[str]:
    """Returns the versions that a test runs on.

    Args:
        wanted: The value of ``--tensorrt``.
        test: The test without its version. The same test always has the same versions.
        versions: The versions that it has parameters for.
    """
    if wanted == ALL:
        return versions
    if wanted not in (SOME, ONE):
        return wanted.split(",")
    number = zlib.crc32(test.encode())
    weakly_typed = [version for version in versions if version.startswith(_WEAKLY_TYPED)]
    others = [version for version in versions if version not in weakly_typed]
    if wanted == ONE or not others:
        return [versions[number % len(versions)]]
    return [*weakly_typed, others[number % len(others)]]


def _test_and_version(item: pytest.Item) -> tuple[str, str] | None:
    """Returns a test's name without its version, and the version; ``None`` if no parameter names one."""
    callspec = getattr(item, "callspec", None)
    for value in callspec.params.values() if callspec else ():
        match = _VERSION.fullmatch(value) if isinstance(value, str) else None
        if match:
            name, _, parameters = item.nodeid.partition("[")
            return f"{name}[{parameters.replace(value, '', 1)}", match[1]
    return None
