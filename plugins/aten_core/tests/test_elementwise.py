"""Arithmetic, comparison, logic and selection agree with PyTorch."""

import pytest
import torch

from .elementwise_cases import CASES
from .harness import check


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_engine_agrees_with_pytorch(case, version):
    """Every elementwise op gives PyTorch's values, dtypes and shapes at least, usual and greatest sizes."""
    check(case)
