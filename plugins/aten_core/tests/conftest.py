"""Fixtures for this pack's tests."""

import pytest

import torchtrt

VERSIONS = ("8.6.0", "10.16.1", "11.4.0")


@pytest.fixture(params=VERSIONS)
def version(request):
    """Runs a test with the reference TensorRT of each version."""
    with torchtrt.use_tensorrt(f"reference@{request.param}"):
        yield request.param
