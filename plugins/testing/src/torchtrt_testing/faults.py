"""A TensorRT whose builds and calls a test watches, and which fails where the test wants it to.

No code of torchtrt is replaced: a compilation gets another TensorRT, as ``use_tensorrt`` gives it one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from torchtrt.tensorrt import Capability, supports, to_torch_dtype
from torchtrt.tensorrt.logging import logger
from torchtrt.tensorrt.selection import current, use_module


@dataclass(frozen=True)
class Execution:
    """One call of an engine.

    Attributes:
        layers: The names of the engine's layers.
        inputs: The engine's inputs by name, in its own memory.
        outputs: Its outputs by name, likewise, without those whose sizes depend on data.
    """

    layers: tuple[str, ...]
    inputs: Mapping[str, torch.Tensor]
    outputs: Mapping[str, torch.Tensor]


class Build(NamedTuple):
    """One network that TensorRT was to build.

    Attributes:
        layers: The names of the network's layers.
        network: The network, TensorRT's own.
        config: The configuration of the build, likewise.
    """

    layers: tuple[str, ...]
    network: Any
    config: Any


@dataclass(frozen=True)
class WatchedTensorRT:
    """The requests that a TensorRT got.

    Attributes:
        builds: The networks that it was to build.
        executions: For each call of an engine, the shapes of the inputs.
        module: The TensorRT. A test may give it other classes.
    """

    builds: list[Build] = field(default_factory=list)
    executions: list[tuple[tuple[int, ...], ...]] = field(default_factory=list)
    module: Any = None


@contextlib.contextmanager
def watched_tensorrt(
    refuses: Callable[[Build], str] | None = None,
    changes: Callable[[Execution], str | None] | None = None,
) -> Iterator[WatchedTensorRT]:
    """Watches the TensorRT in use inside a ``with`` block, in this thread (or task), and lets it fail.

    It watches the builds of any TensorRT, and the calls of the reference.

    Args:
        refuses: Returns why TensorRT does not build a network; ``""`` if it does.
        changes: Is called after each call of an engine that was loaded in the block, on the CPU. It may write to the
            outputs, and raise what a driver would. It returns a reason if TensorRT is to fail, and log it.

    Yields:
        The requests that it gets.
    """
    base = current()
    watched = WatchedTensorRT(module=_Watched(base))
    runs_here = supports(Capability.TORCH_DEVICES)  # the reference

    class Builder(base.Builder):  # type: ignore[misc, name-defined]
        def build_serialized_network(self, network: Any, *arguments: Any) -> Any:
            build = Build(tuple(layer.name for layer in network), network, arguments[0])
            watched.builds.append(build)
            if refuses is not None and (reason := refuses(build)):
                self.logger.log(base.Logger.ERROR, reason)
                return None
            return super().build_serialized_network(network, *arguments)

    class Runtime(base.Runtime):  # type: ignore[misc, name-defined]
        def deserialize_cuda_engine(self, serialized_engine: Any) -> Any:
            engine = super().deserialize_cuda_engine(serialized_engine)
            if runs_here and engine is not None:
                _watch(engine, watched, changes)
            return engine

    watched.module.Builder, watched.module.Runtime = Builder, Runtime
    with use_module(watched.module):
        yield watched


class _Watched:
    """Forwards what it does not have to the TensorRT that it wraps."""

    def __init__(self, base: Any) -> None:
        self.__wrapped__ = base

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


def _watch(
    engine: Any, watched: WatchedTensorRT, changes: Callable[[Execution], str | None] | None
) -> None:
    """Lets an engine make contexts that note their calls."""
    create = engine.create_execution_context

    def created(*arguments: Any, **options: Any) -> Any:
        context = create(*arguments, **options)
        if context is not None:
            run = context.execute_async_v3
            context.execute_async_v3 = lambda stream: called(context, run, stream)
        return context

    def called(context: Any, run: Callable[[int], bool], stream: int) -> bool:
        inputs, outputs = _tensors(engine, context)
        watched.executions.append(tuple(tuple(tensor.shape) for tensor in inputs.values()))
        is_done = run(stream)
        if changes is None:
            return is_done
        reason = changes(Execution(_layers(engine), inputs, outputs))
        if reason:
            logger().log(current().Logger.ERROR, reason)
        return is_done and not reason

    engine.create_execution_context = created


def _layers(engine: Any) -> tuple[str, ...]:
    inspector = engine.create_engine_inspector()
    text = inspector.get_engine_information(current().LayerInformationFormat.JSON)
    layers = json.loads(text)["Layers"]
    return tuple(layer if isinstance(layer, str) else layer["Name"] for layer in layers)


def _tensors(engine: Any, context: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Returns the inputs and the outputs of a context at their addresses."""
    inputs: dict[str, torch.Tensor] = {}
    outputs: dict[str, torch.Tensor] = {}
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        shape = tuple(context.get_tensor_shape(name))
        if -1 in shape:
            continue
        is_input = engine.get_tensor_mode(name).name == "INPUT"
        dtype = to_torch_dtype(engine.get_tensor_dtype(name))
        at = inputs if is_input else outputs
        at[name] = _tensor_at(context.get_tensor_address(name), shape, dtype)
    return inputs, outputs


def _tensor_at(address: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    like = torch.empty(shape, dtype=dtype, device="meta")
    if not address or not like.nbytes:
        return torch.empty(shape, dtype=dtype)
    memory = (ctypes.c_char * like.nbytes).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).reshape(shape)
