"""What the tests of the TorchScript front end share."""

import pytest

import torchtrt


@pytest.fixture(params=("8.6.0", "11.4.0"))
def version(request):
    """Runs a test with the reference TensorRT of the oldest and the newest version."""
    with torchtrt.use_tensorrt(f"reference@{request.param}"):
        yield request.param
