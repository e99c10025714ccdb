"""Torch-TensorRT's decorators: what they register goes into the pack that is being filled."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule

from torchtrt.contract import (
    CallingConvention,
    ConverterPriority,
    calling_convention,
    with_settings,
)
from torchtrt.conversion import is_network_tensor
from torchtrt.errors import ConverterSignatureError
from torchtrt.packs import ConverterPack, local_pack
from torchtrt.tensorrt.dtypes import engine_dtype
from torchtrt_converters_torch_tensorrt.border import arguments_for_theirs, result_of_theirs
from torchtrt_converters_torch_tensorrt.context import AdoptedContext, AdoptedSettings
from torchtrt_converters_torch_tensorrt.converter_utils import cast_trt_tensor

Fill = Callable[[ConverterPack], None]


@dataclass
class Collected:
    """The registrations of modules during their import. A pack receives them when all are there."""

    converters: list[Fill] = field(default_factory=list)
    decompositions: list[Fill] = field(default_factory=list)
    passes: list[Fill] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.converters) + len(self.decompositions) + len(self.passes)

    def fill(self, pack: ConverterPack) -> None:
        """Registers everything in a pack."""
        for register in (*self.converters, *self.decompositions, *self.passes):
            register(pack)


COLLECTED: ContextVar[Collected | None] = ContextVar("torch_tensorrt_collected", default=None)
"""The registrations of the modules in adoption. Outside of that, registrations are the program's own."""


def _register(kind: str, register: Fill, index: int | None = None) -> None:
    collected = COLLECTED.get()
    if collected is None:
        register(local_pack)
        return
    entries: list[Fill] = getattr(collected, kind)
    entries.insert(len(entries) if index is None else index, register)


def dynamo_tensorrt_converter(
    key: Any,
    *,
    enabled: bool = True,
    capability_validator: Callable[..., Any] | None = None,
    priority: Any = ConverterPriority.STANDARD,
    supports_dynamic_shapes: bool = False,
    requires_output_allocator: bool = False,
    requires_native_multidevice: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that registers a converter; one that needs several GPUs is not registered."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if enabled and not requires_native_multidevice:
            converter = adopted_converter(function)
            validator = adopted_validator(capability_validator)
            _register(
                "converters",
                lambda pack: pack.add(
                    key,
                    converter,
                    capability_validator=validator,
                    priority=ConverterPriority[priority.name],
                    supports_dynamic_shapes=supports_dynamic_shapes,
                    requires_output_allocator=requires_output_allocator,
                ),
            )
        return function

    return register


def adopted_converter(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a converter as torchtrt calls one, which sees a context with Torch-TensorRT's names.

    A result whose dtype has another width than PyTorch's is cast, as Torch-TensorRT casts results. Numbers have
    the shape ``(1,)`` for it, as has a result that is 0-d in PyTorch.
    """
    convention = _convention(function)
    if convention is CallingConvention.SCHEMA:
        return function

    def convert(
        ctx: Any, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
    ) -> Any:
        view = AdoptedContext.over(ctx)
        first = view.net if convention is CallingConvention.LEGACY else view
        args, kwargs = arguments_for_theirs(view, (args, kwargs))
        result = function(first, target, args, kwargs, name)
        return _as_pytorchs(view, result, None if ctx.node is None else ctx.node.meta.get("val"))

    return _named_as(function, convert)


def _convention(function: Callable[..., Any]) -> CallingConvention:
    """Returns how to call a converter; one without a declaration is called as Torch-TensorRT calls all."""
    try:
        return calling_convention(function)
    except ConverterSignatureError:
        try:
            inspect.signature(function).bind("ctx", "target", "args", "kwargs", "name")
        except TypeError:
            pass
        else:
            return CallingConvention.CTX
        raise


def _as_pytorchs(ctx: Any, result: Any, expected: Any) -> Any:
    """Returns what their converter made as PyTorch would return it, tensor by tensor.

    NumPy arrays become tensors. A network tensor gets the dtype that is expected, unless only one of both is a
    floating-point type, where the difference is left for the check of results to name.
    """
    if isinstance(result, (tuple, list)) and isinstance(expected, (tuple, list)):
        pairs = zip(result, expected, strict=False)
        several = [_as_pytorchs(ctx, *pair) for pair in pairs]
        return (*several, *result[len(several) :])
    if isinstance(result, np.ndarray) and isinstance(expected, torch.Tensor):
        return torch.from_numpy(result).to(expected.dtype)
    if not is_network_tensor(result):
        return result
    result = result_of_theirs(ctx, result, expected)
    if not isinstance(expected, torch.Tensor):
        return result
    actual, wanted = ctx.dtype_of(result), engine_dtype(expected.dtype)
    if actual is wanted or actual.is_floating_point != wanted.is_floating_point:
        return result
    return cast_trt_tensor(ctx, result, expected.dtype, "result")


def adopted_validator(validator: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Returns a validator that sees settings with Torch-TensorRT's names."""
    if validator is None:
        return None
    ask = with_settings(validator)

    def accepts(node: torch.fx.Node, settings: Any) -> Any:
        return ask(node, AdoptedSettings.over(settings))

    return _named_as(validator, accepts)


def _named_as(function: Any, wrapper: Any) -> Callable[..., Any]:
    """Returns a wrapper that is listed as the function inside it, and is called by its own parameters."""
    function = inspect.unwrap(function)
    function = function.func if isinstance(function, functools.partial) else function
    wrapper.__module__ = getattr(function, "__module__", __name__)
    wrapper.__name__ = getattr(function, "__name__", type(function).__name__)
    wrapper.__qualname__ = getattr(function, "__qualname__", wrapper.__name__)
    wrapper.__doc__ = function.__doc__
    named: Callable[..., Any] = wrapper
    return named


def register_torch_trt_decomposition(
    aten_op: Any, registry: Any = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that registers a decomposition: it comes before those of other packs and PyTorch's."""
    del registry

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _register("decompositions", functools.partial(_add_decomposition, aten_op, function))
        return function

    return register


def _add_decomposition(op: Any, function: Callable[..., Any], pack: ConverterPack) -> None:
    pack.decomposition(op, priority=ConverterPriority.HIGH)(function)


_CONFIG = "torchtrt_lowering_pass_config"


def aten_lowering_pass(*args: Any, index: int | None = None, **config: Any) -> Any:
    """Registers a pass over the graph, with or without parentheses.

    Args:
        *args: The pass, where the decorator has no parentheses.
        index: Its place among the passes that are adopted with it.
        **config: What the pass can read with ``get_lowering_pass_config``.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, _CONFIG, config)
        _register("passes", functools.partial(_add_pass, function), index)
        return function

    return register(args[0]) if args else register


def get_lowering_pass_config(lowering_pass: Callable[..., Any]) -> dict[str, Any]:
    """Returns the options that a pass was registered with."""
    return getattr(lowering_pass, _CONFIG, {})


def _add_pass(function: Callable[..., Any], pack: ConverterPack) -> None:
    """Registers one of their lowering passes, which takes a graph and either the settings or the example inputs."""
    second = list(inspect.signature(function).parameters)[1:2]

    def run(graph_module: GraphModule, settings: Any) -> Any:
        argument: Any = AdoptedSettings.over(settings)
        if second and "input" in second[0]:
            placeholders = graph_module.graph.find_nodes(op="placeholder")
            argument = [node.meta.get("val") for node in placeholders]
        return function(graph_module, argument)

    pack.lowering_pass(function.__name__)(_named_as(function, run))
