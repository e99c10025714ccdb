"""Parts of a large test, most of them for ``make test-all``."""

from __future__ import annotations

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
