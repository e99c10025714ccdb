"""A GPU that has no room, or that is gone: the error says so and what to do."""

from __future__ import annotations

import pytest
import torch

import torchtrt
from torchtrt.errors import EngineError
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import ErrorLog, logger
from torchtrt_testing.faults import watched_tensorrt

X = torch.rand(2, 3)
NO_ROOM = "Requested amount of GPU memory (1024 bytes) could not be allocated."
"""What TensorRT 8.6 logs."""


def compiled():
    """Returns a model that has not run yet."""
    return torchtrt.compile(torch.nn.Linear(3, 3).eval(), (X,), min_block_size=1)


def test_no_room_for_an_engine():
    """TensorRT makes no context and logs why."""

    class Engine:
        streamable_weights_size = 0

        def create_execution_context(self):
            logger().log(trt.ILogger.ERROR, NO_ROOM)

    with watched_tensorrt() as tensorrt:

        class Runtime(tensorrt.module.Runtime):
            def deserialize_cuda_engine(self, plan):
                return Engine()

        tensorrt.module.Runtime = Runtime
        model = compiled()

    with pytest.raises(
        EngineError, match=r"could not load .*1024 bytes.* no memory left .*nvidia-smi"
    ):
        model(X)


@pytest.mark.parametrize(
    ("log", "remedy"),
    [
        ("Cask (Cuda Runtime (an illegal memory access was encountered))", "start another process"),
        ("Cuda Runtime (uncorrectable ECC error encountered)", "start another process"),
        ("Cuda Runtime (out of memory)", "no memory left"),
    ],
)
def test_an_engine_that_fails_while_it_runs(log, remedy):
    """The error has the log of the failed call, and what to do; afterwards nothing is left of it."""

    def fails_second(execution):
        return log if len(tensorrt.executions) == 2 else None

    with watched_tensorrt(changes=fails_second) as tensorrt:
        model = compiled()
    expected = model(X)

    with pytest.raises(EngineError, match=remedy):
        model(X)
    torch.testing.assert_close(model(X), expected)


@pytest.mark.parametrize("library", ["lean", "dispatch", "builder_resource"])
def test_a_library_that_is_missing_is_told_with_its_package(library):
    """TensorRT's wheel brings no lean runtime, which engines for later versions hold."""
    message = (
        f"Error Code 6: Internal Error (Unable to load library: libnvinfer_{library}.so.8.6.0)"
    )
    with ErrorLog() as log:
        logger().log(trt.ILogger.ERROR, message)

    assert log.text().startswith(f"{message} Install that library")
    assert "pip install tensorrt_lean==<version>" in log.text()


def test_other_reasons_get_no_advice():
    """Only TensorRT's log."""
    with ErrorLog() as log:
        logger().log(trt.ILogger.ERROR, "the kernel is too large")

    assert "the kernel is too large" == log.text()
