"""What stays in PyTorch keeps the same law of memory as what is in engines; ``make test`` tries a third of it."""

import zlib
from pathlib import Path

import pytest

ONE_IN = 3
"""Of so many tests whose ops stay in PyTorch, all but one have the mark ``slow``: engines have all."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks them; the same ones in each run."""
    for item in items:
        is_in_pytorch = item.path.parent == Path(__file__).parent and "in PyTorch" in item.name
        if is_in_pytorch and zlib.crc32(item.name.encode()) % ONE_IN:
            item.add_marker("slow")
