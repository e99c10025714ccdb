"""Fixtures for this pack's tests."""

import pytest

import torchtrt
from torchtrt.testing import tensorrts


@pytest.fixture(params=tensorrts())
def version(request):
    """Runs a test with the reference TensorRT of each version, or with the real one where it is in use."""
    with torchtrt.use_tensorrt(request.param):
        yield request.param
