"""The forms in which someone passes weights."""

from __future__ import annotations

import math

import pytest
import torch

from torchtrt_runtime.weights.forms import is_same


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.int64, torch.complex64, torch.bfloat16, torch.float8_e4m3fn],
    ids=str,
)
def test_tensors_of_each_dtype_are_compared(dtype: torch.dtype) -> None:
    """PyTorch itself compares no float8."""
    ones, other = torch.ones(3).to(dtype), torch.tensor([1.0, 0, 1]).to(dtype)

    assert is_same(ones, ones.clone())
    assert not is_same(ones, other)


def test_nan_is_the_same_as_nan() -> None:
    """And infinity is another value than the largest number."""
    values = torch.tensor([math.nan, math.inf, 1])

    assert is_same(values, values.clone())
    assert not is_same(values, torch.tensor([math.nan, torch.finfo(torch.float32).max, 1]))
