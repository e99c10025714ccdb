"""A bench that builds a small network, runs it through the runtime, and returns what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchtrt_reference as reference

TORCH_OF = {
    "FLOAT": torch.float32,
    "HALF": torch.float16,
    "BF16": torch.bfloat16,
    "INT8": torch.int8,
    "UINT8": torch.uint8,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "BOOL": torch.bool,
}


class Bench:
    """One network of one version, its errors, and a way to run it."""

    def __init__(
        self, version: str, flags: tuple[str, ...] = ("EXPLICIT_BATCH", "STRONGLY_TYPED")
    ) -> None:
        self.trt = trt = reference.load(version)
        self.errors: list[str] = []

        class Collecting(trt.ILogger):
            def log(inner, severity: Any, msg: str) -> None:
                self.errors.append(msg)

        self.logger = Collecting()
        self.builder = trt.Builder(self.logger)
        members = trt.NetworkDefinitionCreationFlag.__members__
        self.net = self.builder.create_network(
            sum(1 << int(members[name]) for name in flags if name in members)
        )
        self.config = self.builder.create_builder_config()
        self.profile = self.builder.create_optimization_profile()
        self.values: dict[str, torch.Tensor] = {}

    def input(self, value: Any, shape: tuple[int, ...] | None = None) -> Any:
        """An input with a value; -1 in ``shape`` makes a dimension dynamic."""
        tensor = torch.as_tensor(value)
        name = f"i{len(self.values)}"
        dtype = next(key for key, dtype_ in TORCH_OF.items() if dtype_ is tensor.dtype)
        wanted = tuple(tensor.shape) if shape is None else shape
        made = self.net.add_input(name, getattr(self.trt.DataType, dtype), wanted)
        self.values[name] = tensor.contiguous()
        if -1 in wanted:
            self.profile.set_shape(name, *[tuple(tensor.shape)] * 3)
        return made

    def const(self, value: Any, dtype: Any = np.float32) -> Any:
        """A constant."""
        array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        of_nothing = self.trt.Weights(getattr(self.trt, array.dtype.name, self.trt.float32))
        weights = self.trt.Weights(array) if array.size else of_nothing
        return self.net.add_constant(array.shape, weights).get_output(0)

    def plan(self, *outputs: Any) -> bytes | None:
        """The plan with these outputs; None if the build fails."""
        for index, tensor in enumerate(outputs):
            tensor.name = f"o{index}"
            self.net.mark_output(tensor)
        self.config.add_optimization_profile(self.profile)
        built = self.builder.build_serialized_network(self.net, self.config)
        return None if built is None else bytes(built)

    def context(self, *outputs: Any) -> Any:
        """A context with every input shape and address set."""
        plan = self.plan(*outputs)
        assert plan is not None, self.errors
        engine = self.trt.Runtime(self.logger).deserialize_cuda_engine(plan)
        context = engine.create_execution_context()
        for name, tensor in self.values.items():
            if engine.get_tensor_mode(name) == self.trt.TensorIOMode.INPUT:
                assert context.set_input_shape(name, tuple(tensor.shape)), self.errors
                assert context.set_tensor_address(name, tensor.data_ptr() or 1)
        return context

    def run(self, *outputs: Any) -> list[torch.Tensor]:
        """The outputs' values."""
        context = self.context(*outputs)
        engine, trt = context.engine, self.trt
        assert context.infer_shapes() == []
        buffers: dict[str, torch.Tensor] = {}

        class Allocator(trt.IOutputAllocator):
            def __init__(self) -> None:
                trt.IOutputAllocator.__init__(self)
                self.memory = torch.empty(0)

            def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
                self.memory = torch.empty(size, dtype=torch.uint8)
                return self.memory.data_ptr()

            def notify_shape(self, name: str, shape: Any) -> None:
                dtype = TORCH_OF[engine.get_tensor_dtype(name).name]
                count = trt.volume(shape) * dtype.itemsize
                buffers[name] = self.memory[:count].view(dtype).view(tuple(shape))

        keep = []
        for index in range(len(outputs)):
            name = f"o{index}"
            shape = tuple(context.get_tensor_shape(name))
            cache = (
                engine.get_aliased_input_tensor(name)
                if hasattr(engine, "get_aliased_input_tensor")
                else None
            )
            if cache is not None:
                buffers[name] = self.values[cache]
                context.set_tensor_address(name, buffers[name].data_ptr())
            elif -1 in shape:
                keep.append(Allocator())
                context.set_output_allocator(name, keep[-1])
            else:
                buffers[name] = torch.empty(
                    shape, dtype=TORCH_OF[engine.get_tensor_dtype(name).name]
                )
                context.set_tensor_address(name, buffers[name].data_ptr() or 1)
        assert context.execute_async_v3(0), self.errors
        return [buffers[f"o{index}"] for index in range(len(outputs))]


@pytest.fixture
def bench() -> Any:
    """A function that makes a bench for a version."""
    return Bench


@pytest.fixture(params=reference.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Every version in turn."""
    return str(request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of versions: they are about the differences, and ``--tensorrt`` leaves them all."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("each_tensorrt")
