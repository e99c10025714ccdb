"""Runs one case on a TensorRT, NVIDIA's or the reference, through TensorRT's own interface only."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import torch

from tools.agreement.case import Case, Dynamic, Network, NotAdded, ShapeValues, outputs_of
from tools.agreement.outcome import Outcome, Output, output_of

_TORCH_TYPES = {
    "FLOAT": torch.float32,
    "HALF": torch.float16,
    "INT8": torch.int8,
    "INT32": torch.int32,
    "BOOL": torch.bool,
    "UINT8": torch.uint8,
}
# As in "Output tensor output0 of type Float produced from output of incompatible type Int32".
_UNDECLARED_OUTPUT = re.compile(
    r"tensor output(\d+) of type \w+ produced from output of incompatible type (\w+)"
)


class _RefusedError(Exception):
    """TensorRT answered no; the argument is the stage."""


class _Session:
    """The objects that all cases share: the logger, the builder, the runtime."""

    def __init__(self, trt: Any) -> None:
        self.errors: list[str] = []
        errors = self.errors

        class Logger(trt.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                if int(severity) <= int(trt.ILogger.Severity.ERROR):
                    errors.append(message)

        self.logger = Logger()
        self.builder = trt.Builder(self.logger)
        self.runtime = trt.Runtime(self.logger)
        # The reference executes on the CPU; NVIDIA's TensorRT has no such attribute.
        is_reference = hasattr(self.runtime, "torch_device")
        self.device = torch.device("cpu" if is_reference else "cuda")
        self.allocator_class = _allocator_class(trt, self.device)


def _allocator_class(trt: Any, device: torch.device) -> Any:
    """Returns a class of output allocators, derived from the interface of a TensorRT."""

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc]
        """Memory for one output whose shape is known only after it was computed."""

        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.memory = torch.empty(0, dtype=torch.uint8, device=device)
            self.shape: tuple[int, ...] = ()

        def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
            self.memory = torch.empty(max(size, 1), dtype=torch.uint8, device=device)
            return self.memory.data_ptr()

        def notify_shape(self, name: str, shape: Any) -> None:
            self.shape = tuple(shape)

        def tensor(self, dtype: torch.dtype) -> torch.Tensor:
            size = torch.Size(self.shape).numel() * dtype.itemsize
            return self.memory[:size].view(dtype).reshape(self.shape)

    return Allocator


@functools.lru_cache(maxsize=1)
def _session(trt: Any) -> _Session:
    return _Session(trt)


def run_case(trt: Any, case: Case) -> Outcome:
    """Returns what became of a case on ``trt``."""
    session = _session(trt)
    session.errors.clear()
    try:
        return Outcome(None, outputs=_run(trt, session, case))
    except (_RefusedError, NotAdded) as refusal:
        stage = "add" if isinstance(refusal, NotAdded) else str(refusal)
        reason = session.errors[0] if session.errors else "no reason was logged"
        return Outcome(stage, reason[:200])
    except Exception as error:  # whatever the binding raises is what a user would see
        return Outcome("error", f"{type(error).__name__}: {error}"[:200])


def _run(trt: Any, session: _Session, case: Case) -> tuple[Output, ...]:
    """Returns the outputs of a case on a TensorRT."""
    plan, names = _build(trt, session, case)
    engine = session.runtime.deserialize_cuda_engine(plan)
    context = engine.create_execution_context() if engine is not None else None
    if context is None:
        raise _RefusedError("context")
    held = _set_inputs(trt, session, case, engine, context)
    buffers: dict[str, Any] = {}
    for name in names:
        shape = tuple(context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            buffers[name] = session.allocator_class()
            context.set_output_allocator(name, buffers[name])
            continue
        on_host = engine.get_tensor_location(name) == trt.TensorLocation.HOST
        device = torch.device("cpu") if on_host else session.device
        dtype = _TORCH_TYPES[engine.get_tensor_dtype(name).name]
        buffers[name] = torch.empty(shape, dtype=dtype, device=device)
        context.set_tensor_address(name, buffers[name].data_ptr() or _somewhere(device))
    on_gpu = session.device.type == "cuda"
    stream = torch.cuda.current_stream().cuda_stream if on_gpu else 0
    if not context.execute_async_v3(stream):
        raise _RefusedError("run")
    if on_gpu:
        torch.cuda.synchronize()
    del held
    return tuple(_taken(engine, name, buffers[name], case) for name in names)


def _build(trt: Any, session: _Session, case: Case) -> tuple[Any, list[str]]:
    """Returns a plan and the names of its outputs.

    Raises:
        _RefusedError: TensorRT does not build the network.
    """
    types = dict(enumerate(case.types))
    plan, names = _build_with(trt, session, case, types)
    may_declare = not case.types and not case.undeclared
    # TensorRT 8 takes some layers' outputs for floats unless a type is set: set the type that it reports.
    while plan is None and may_declare:
        matches = map(_UNDECLARED_OUTPUT.search, session.errors)
        natural = {int(match[1]): match[2].upper() for match in matches if match is not None}
        if natural.keys() <= types.keys():
            break
        types.update(natural)
        session.errors.clear()
        plan, names = _build_with(trt, session, case, types)
    if plan is None:
        raise _RefusedError("build")
    return plan, names


def _build_with(
    trt: Any, session: _Session, case: Case, types: dict[int, str]
) -> tuple[Any, list[str]]:
    """Returns the plan of a case and the names of its outputs, some of them with a type of their own."""
    config = session.builder.create_builder_config()
    config.set_tactic_sources(0)
    config.clear_flag(trt.BuilderFlag.TF32)  # FP32 must mean FP32 to be compared
    for flag in case.flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    explicit_batch = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
    definition = session.builder.create_network(explicit_batch)
    network = Network(trt, definition, case.inputs)
    names = []
    for index, tensor in enumerate(outputs_of(case.build(network))):
        if not tensor.is_network_input:
            tensor.name = f"output{index}"
        definition.mark_output(tensor)
        if index in types:
            tensor.dtype = getattr(trt.DataType, types[index])
        names.append(tensor.name)
    profile = session.builder.create_optimization_profile()
    for name, input_ in case.inputs.items():
        if isinstance(input_, Dynamic):
            profile.set_shape(name, input_.low, input_.best or input_.value.shape, input_.high)
        elif isinstance(input_, ShapeValues):
            best = input_.best or tuple(int(value) for value in input_.value.reshape(-1))
            profile.set_shape_input(name, input_.low, best, input_.high)
    config.add_optimization_profile(profile)
    return session.builder.build_serialized_network(definition, config), names


def _set_inputs(trt: Any, session: _Session, case: Case, engine: Any, context: Any) -> list[Any]:
    """Sets a context's inputs, and returns the tensors that must live until it has run."""
    held = []
    for name, input_ in case.inputs.items():
        array = input_ if isinstance(input_, np.ndarray) else input_.value
        on_host = engine.get_tensor_location(name) == trt.TensorLocation.HOST
        device = torch.device("cpu") if on_host else session.device
        tensor = torch.from_numpy(np.array(array)).contiguous().to(device)
        held.append(tensor)
        if not context.set_input_shape(name, tuple(array.shape)):
            raise _RefusedError("shapes")
        context.set_tensor_address(name, tensor.data_ptr() or _somewhere(device))
    try:
        missing = context.infer_shapes()
    except RuntimeError as error:
        session.errors.append(str(error))
        raise _RefusedError("shapes") from error
    if missing:
        session.errors.append(f"the shapes of {missing} are missing")
        raise _RefusedError("shapes")
    return held


def _taken(engine: Any, name: str, buffer: Any, case: Case) -> Output:
    if not isinstance(buffer, torch.Tensor):
        buffer = buffer.tensor(_TORCH_TYPES[engine.get_tensor_dtype(name).name])
    return output_of(buffer.cpu().numpy(), case.within)


@functools.cache
def _held(device: torch.device) -> torch.Tensor:
    return torch.empty(256, dtype=torch.uint8, device=device)


def _somewhere(device: torch.device) -> int:
    # Empty tensors have no memory, but an address must not be null.
    return _held(device).data_ptr()
