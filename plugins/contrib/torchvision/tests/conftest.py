"""Fixtures for this pack's tests."""

import pytest

import torchtrt
from torchtrt.tensorrt import is_real

VERSIONS = ("reference@8.6.0", "reference@10.16.1", "reference@11.4.0")


@pytest.fixture(params=["real"] if is_real() else VERSIONS)
def version(request):
    """Runs a test with the reference TensorRT of each version, or with the real one where it is in use."""
    with torchtrt.use_tensorrt(request.param):
        yield request.param
