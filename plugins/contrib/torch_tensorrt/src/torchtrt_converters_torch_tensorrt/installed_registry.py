"""The registry of the installed Torch-TensorRT."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any

from torch.fx import Node

from torchtrt.contract import qualified_function
from torchtrt.errors import PackError
from torchtrt.packs import ConverterPriority
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.tensorrt.selection import describe, trt
from torchtrt_converters_torch_tensorrt.registration import (
    COLLECTED,
    Collected,
    aten_lowering_pass,
    dynamo_tensorrt_converter,
    register_torch_trt_decomposition,
)

_REGISTRY = "torch_tensorrt.dynamo.conversion._ConverterRegistry"
_DECOMPOSITIONS = "torch_tensorrt.dynamo.lowering._decomposition_groups"
_PASSES = "torch_tensorrt.dynamo.lowering.passes._aten_lowering_pass"


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise PackError(f"Torch-TensorRT cannot be imported here: {what}") from error


class _Snapshot:
    """The contents of Torch-TensorRT's tables at one moment."""

    def __init__(self) -> None:
        table = _import(_REGISTRY).DYNAMO_ATEN_CONVERTERS
        self.converters = [(op, entry) for op, entries in table.items() for entry in entries]
        self.decompositions = dict(_import(_DECOMPOSITIONS).TORCH_TRT_DECOMPOSITIONS)
        manager = getattr(_import(_PASSES), "ATEN_POST_LOWERING_PASSES", None)
        self.passes = list(getattr(manager, "passes", ()))


def registered_by(module: str) -> Collected:
    """Returns what a module registered with the installed Torch-TensorRT; it is imported if it has not been.

    Raises:
        PackError: It cannot be imported, or registered nothing.
    """
    _import(_REGISTRY)
    if module in sys.modules:
        now = _Snapshot()
        mine = [
            converter
            for converter in now.converters
            if _is_of(module, converter[1].converter_implementation)
        ]
        decompositions = {
            op: function for op, function in now.decompositions.items() if _is_of(module, function)
        }
        passes = [pass_ for pass_ in now.passes if _is_of(module, pass_)]
    else:
        before = _Snapshot()
        try:
            importlib.import_module(module)
        except Exception as error:
            message = f"{module} cannot be adopted: {type(error).__name__}: {error}"
            raise PackError(message) from error
        now = _Snapshot()
        registered_before = {id(support) for _, support in before.converters}
        mine = [
            converter for converter in now.converters if id(converter[1]) not in registered_before
        ]
        decompositions = {
            op: function
            for op, function in now.decompositions.items()
            if before.decompositions.get(op) is not function
        }
        passes = [pass_ for pass_ in now.passes if pass_ not in before.passes]
    collected = _collect(mine)
    token = COLLECTED.set(collected)
    try:
        for op, function in decompositions.items():
            register_torch_trt_decomposition(op)(function)
        for pass_ in passes:
            aten_lowering_pass(pass_)
    finally:
        COLLECTED.reset(token)
    if not collected:
        raise PackError(f"{module} registered nothing with Torch-TensorRT.")
    return collected


def _is_of(module: str, function: Any) -> bool:
    name = getattr(function, "__module__", "") or ""
    return bool(name == module or name.startswith(f"{module}."))


def everything() -> Collected:
    """Returns all converters of the installed Torch-TensorRT's registry but those that are registered here too."""
    return _collect(
        (op, support)
        for op, support in _Snapshot().converters
        if qualified_function(support.converter_implementation) not in _registered_here(op)
    )


def _registered_here(op: Any) -> set[str]:
    return {candidate.qualified_function for candidate in DYNAMO_CONVERTERS.candidates(op)}


def _collect(entries: Iterable[tuple[Any, Any]]) -> Collected:
    """Returns Torch-TensorRT's registrations, in the order in which it tries them."""
    entries = list(entries)
    own_ids = {id(support) for _, support in entries}
    high = [entry for entry in entries if _is_high(*entry, own_ids)]
    standard = [entry for entry in entries if entry not in high]
    collected = Collected()
    token = COLLECTED.set(collected)
    try:
        # The last to be registered with HIGH is the first to be tried.
        for op, support in (*standard, *reversed(high)):
            is_high = (op, support) in high
            dynamo_tensorrt_converter(
                op,
                capability_validator=_on_its_tensorrt(support.capability_validator),
                priority=ConverterPriority.HIGH if is_high else ConverterPriority.STANDARD,
                supports_dynamic_shapes=support.supports_dynamic_shapes,
                requires_output_allocator=support.requires_output_allocator,
                requires_native_multidevice=getattr(support, "requires_native_multidevice", False),
            )(support.converter_implementation)
    finally:
        COLLECTED.reset(token)
    return collected


def _is_high(op: Any, support: Any, own_ids: Collection[int]) -> bool:
    """Returns whether a converter comes before one that others registered: its priority is not kept otherwise."""
    entries = _import(_REGISTRY).DYNAMO_ATEN_CONVERTERS[op]
    position = next(index for index, entry in enumerate(entries) if entry is support)
    return any(id(entry) not in own_ids for entry in entries[position + 1 :])


def _on_its_tensorrt(validator: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a validator that rejects what Torch-TensorRT's own helpers cannot build: another TensorRT's network."""

    def accepts(node: Node, settings: Any) -> Any:
        its = sys.modules.get("tensorrt")
        if getattr(its, "ITensor", None) is not trt.ITensor:
            return f"it is Torch-TensorRT's, which builds for the module tensorrt only, not for {describe()}"
        return validator(node, settings)

    return accepts
