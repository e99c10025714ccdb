"""Parts of a large test, most of them for ``make test-all``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def shards(count: int, quick: int) -> list[Any]:
    """Returns the numbers of a test's shards as parameters; those after the first few have the mark ``slow``.

    Args:
        count: The number of shards.
        quick: The number of those that ``make test`` runs.
    """
    slow = (pytest.param(number, marks=pytest.mark.slow) for number in range(quick, count))
    return [*range(quick), *slow]


def leave_cases(items: Iterable[pytest.Item], repeated: Mapping[str, int]) -> None:
    """Marks cases of an op that differ in a mode or a flag: of so many all but the first are ``slow``.

    Args:
        items: The tests of a run.
        repeated: How many cases share one that ``make test`` runs, by how the labels of the cases begin.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for item in items:
        callspec = getattr(item, "callspec", None)
        label = str(callspec.params.get("case", "")) if callspec else ""
        for start, one_in in repeated.items():
            if label.startswith(start):
                version = str(callspec.params.get("tensorrt"))
                position = seen[start, version]
                seen[start, version] += 1
                if position % one_in:
                    item.add_marker("slow")


def some(rows: Iterable[Any], one_in: int) -> list[Any]:
    """Returns the values of a test's parameters; of so many rows all but the first have the mark ``slow``.

    Args:
        rows: A value, or a tuple of them, for each test.
        one_in: How many rows share one that ``make test`` runs.
    """
    return [
        pytest.param(
            *(row if isinstance(row, tuple) else (row,)),
            marks=pytest.mark.slow if index % one_in else (),
        )
        for index, row in enumerate(rows)
    ]
