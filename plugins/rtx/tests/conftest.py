"""TensorRT for RTX, for the tests that build with it."""

import pytest

import torchtrt


@pytest.fixture
def rtx():
    """TensorRT for RTX in use."""
    with torchtrt.use_tensorrt("rtx") as module:
        yield module
