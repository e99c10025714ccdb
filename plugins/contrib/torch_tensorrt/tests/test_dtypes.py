"""A dtype of one library is that of another."""

import numpy as np
import pytest
import torch

import torchtrt
from torchtrt.tensorrt import trt
from torchtrt_converters_torch_tensorrt.converter_utils import to_numpy, to_torch
from torchtrt_converters_torch_tensorrt.dtypes import (
    Frameworks,
    dtype,
    torch_dtype,
    unified_dtype_converter,
)
from torchtrt_reference import VERSIONS

PAIRS = [
    (torch.float32, np.float32, "FLOAT"),
    (torch.float16, np.float16, "HALF"),
    (torch.int32, np.int32, "INT32"),
    (torch.int8, np.int8, "INT8"),
    (torch.bool, np.bool_, "BOOL"),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[2])
def test_every_spelling_is_the_same_dtype(pair, version):
    """PyTorch's, NumPy's, TensorRT's and Torch-TensorRT's, in all directions."""
    ours, numpy, name = pair
    with torchtrt.use_tensorrt(f"reference@{version}"):
        theirs = getattr(trt.DataType, name)
        for dtype_ in (ours, numpy, np.dtype(numpy), theirs, dtype._from(ours)):
            assert ours is torch_dtype(dtype_)
            assert dtype._from(dtype_) is dtype.try_from(dtype_)
            assert np.dtype(numpy) == unified_dtype_converter(dtype_, Frameworks.NUMPY)
            assert theirs == unified_dtype_converter(dtype_, Frameworks.TRT)
            assert ours is unified_dtype_converter(dtype_, Frameworks.TORCH)
        assert np.dtype(numpy) == dtype._from(theirs).to(np.dtype)
        assert theirs == dtype._from(ours).to(trt.DataType)


def test_a_dtype_of_another_tensorrt_is_understood():
    """As a module keeps it from its import."""
    with torchtrt.use_tensorrt("reference@8.6.0"):
        kept = trt.DataType.HALF
    with torchtrt.use_tensorrt("reference@11.4.0"):
        assert torch.float16 is torch_dtype(kept)


@pytest.mark.parametrize("value", ["no such", 3, object()])
def test_what_is_no_dtype_is_refused(value):
    """With the value in the message."""
    with pytest.raises(TypeError, match="is no dtype"):
        torch_dtype(value)
    assert dtype.try_from(value) is None


def test_numbers_are_narrowed_where_they_fit():
    """A float is float32 and an int is int32, unless it is too large for that."""
    assert torch.int32 is to_torch(5).dtype
    assert torch.int64 is to_torch(2**40).dtype
    assert torch.float32 is to_torch([1.0, 2.0]).dtype
    assert torch.bool is to_torch(True).dtype
    assert np.float16 == to_numpy(torch.ones(2), np.float16).dtype
    assert to_torch(None) is to_numpy(None) is None
