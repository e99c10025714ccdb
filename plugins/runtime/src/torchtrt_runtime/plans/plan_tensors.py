"""The inputs and outputs of an engine, as TensorRT returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchtrt.conversion.inputs import InputProfile, Ranges, SizeRange
from torchtrt.errors import EngineError
from torchtrt.tensorrt import to_torch_dtype, trt
from torchtrt.tensorrt.logging import ErrorLog


@dataclass(frozen=True)
class PlanTensors:
    """The inputs and outputs of an engine.

    Attributes:
        inputs: The inputs, in the engine's order. Their dtypes are the engine's.
        outputs: The dtype of each output, by name.
        shapes: The shape of each output, by name; -1 for a dynamic size.
        requires_output_allocator: Whether an output's size depends on the data.
        num_layers: The number of its layers.
    """

    inputs: tuple[InputProfile, ...]
    outputs: Mapping[str, torch.dtype]
    shapes: Mapping[str, tuple[int, ...]]
    requires_output_allocator: bool
    num_layers: int


def read_tensors(engine: Any) -> PlanTensors:
    """Returns the inputs and outputs of a loaded engine.

    Raises:
        EngineError: It has no inputs, or has some that PyTorch's tensors cannot be.
    """
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
    outputs = [name for name in names if name not in inputs]
    if not inputs:
        raise EngineError("The engine has no inputs. Build it with at least one.")
    for name in names:
        _check_form(engine, name)
    described = tuple(_input(engine, name) for name in inputs)
    return PlanTensors(
        described,
        {name: _dtype(engine, name) for name in outputs},
        {name: tuple(map(int, engine.get_tensor_shape(name))) for name in outputs},
        _depends_on_data(engine, described, outputs),
        int(engine.num_layers),
    )


def _check_form(engine: Any, name: str) -> None:
    """Checks that a tensor of an engine is a row-major tensor on the device."""
    if engine.get_tensor_location(name) != trt.TensorLocation.DEVICE:
        raise EngineError(
            f"The engine reads {name!r} on the host, because the values decide shapes. Build it without shape tensors "
            "among its inputs and outputs."
        )
    if engine.get_tensor_format(name) != trt.TensorFormat.LINEAR:
        form = engine.get_tensor_format_desc(name)
        raise EngineError(
            f"{name!r} has the format {form!r}. Build it with row-major inputs and outputs (LINEAR)."
        )


def _dtype(engine: Any, name: str) -> torch.dtype:
    dtype = engine.get_tensor_dtype(name)
    try:
        return to_torch_dtype(dtype)
    except KeyError:
        raise EngineError(f"{name!r} has the dtype {dtype}, which PyTorch lacks.") from None


def _input(engine: Any, name: str) -> InputProfile:
    shape = tuple(map(int, engine.get_tensor_shape(name)))
    profiles = tuple(
        _ranges(engine.get_tensor_profile_shape(name, number) if -1 in shape else (), shape)
        for number in range(max(1, engine.num_optimization_profiles))
    )
    return InputProfile(name, _dtype(engine, name), shape, profiles)


def _ranges(bounds: Sequence[Any], shape: Sequence[int]) -> Ranges:
    """Returns the sizes of each dimension, from the minimum, optimum and maximum shape, or from a fixed one."""
    low, best, high = (tuple(map(int, sizes)) for sizes in (bounds or (shape,) * 3))
    return tuple(map(SizeRange, low, best, high))


def _depends_on_data(engine: Any, inputs: Sequence[InputProfile], outputs: Sequence[str]) -> bool:
    """Returns whether the shapes of outputs do not follow from those of inputs."""
    if not any(-1 in engine.get_tensor_shape(name) for name in outputs):
        return False
    with ErrorLog() as log:
        context = engine.create_execution_context()
    if context is None:
        raise EngineError(f"The engine makes no execution context: {log.text()}.")
    for input_ in inputs:
        context.set_input_shape(input_.name, tuple(size.opt for size in input_.profiles[0]))
    context.infer_shapes()
    return any(-1 in context.get_tensor_shape(name) for name in outputs)
