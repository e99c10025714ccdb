"""Models that are saved, how their results are compared, and the names in a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import torchtrt
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import logger


def function(call, **tensors):
    """Returns a module of a function whose first argument is the module, with buffers."""

    class Model(nn.Module):
        def forward(self, *args, **kwargs):
            return call(self, *args, **kwargs)

    class OneInput(nn.Module):
        def forward(self, x):
            return call(self, x)

    class TwoInputs(nn.Module):
        def forward(self, x, y):
            return call(self, x, y)

    count = call.__code__.co_argcount - 1
    model = {1: OneInput, 2: TwoInputs}.get(count, Model)()
    for name, tensor in tensors.items():
        model.register_buffer(name, tensor)
    return model.eval()


@dataclass
class Result:
    """A dataclass of two tensors."""

    total: torch.Tensor
    rest: list[torch.Tensor]


torch.export.register_dataclass(Result, serialized_type_name="test_saving.Result")

SVD = torch.linalg.svdvals  # PyTorch's, whichever pack is installed

VARYING = torchtrt.Input(min_shape=(1, 6), opt_shape=(4, 6), max_shape=(16, 6))


def same(expected: Any, actual: Any) -> None:
    """Compares nested results, their types included."""
    assert type(expected) is type(actual)
    if isinstance(expected, Result):
        expected, actual = vars(expected), vars(actual)
    if isinstance(expected, (list, tuple)):
        assert len(expected) == len(actual)
        for pair in zip(expected, actual, strict=True):
            same(*pair)
    elif isinstance(expected, dict):
        assert list(expected) == list(actual)
        for key in expected:
            same(expected[key], actual[key])
    elif isinstance(expected, torch.Tensor):
        assert expected.dtype is actual.dtype
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    else:
        assert expected == actual


def saved(model, inputs, tmp_path, **settings):
    """Returns the path of a compiled model."""
    compiled = torchtrt.compile(model, inputs, min_block_size=1, **settings)
    torchtrt.save(compiled, tmp_path / "model.pt2")
    return tmp_path / "model.pt2"


def names_in(plan, tensorrt):
    """Returns the names in a plan, as TensorRT itself returns them."""
    with torchtrt.use_tensorrt(tensorrt):
        engine = trt.Runtime(logger()).deserialize_cuda_engine(plan.read_bytes())
        return [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
