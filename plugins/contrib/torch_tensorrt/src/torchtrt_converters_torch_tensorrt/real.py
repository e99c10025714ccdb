"""The installed Torch-TensorRT: what is in its registry, and torchtrt's converters offered to it."""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from typing import Any

from torch.fx import Node

from torchtrt.contract import CallingConvention, qualified_function
from torchtrt.conversion import ConversionContext
from torchtrt.errors import PackError
from torchtrt.graphs.symbols import no_new_assumptions
from torchtrt.packs import ConverterPriority
from torchtrt.registry import DYNAMO_CONVERTERS, Candidate
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt.selection import describe, trt
from torchtrt_converters_torch_tensorrt.border import arguments_for_ours, result_of_ours
from torchtrt_converters_torch_tensorrt.registration import (
    COLLECTED,
    Collected,
    aten_lowering_pass,
    dynamo_tensorrt_converter,
    register_torch_trt_decomposition,
)
from torchtrt_converters_torch_tensorrt.torch_internals import HigherOrderOperator

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


# Offering


def offer(
    packs: Iterable[str] | None = None,
    *,
    priority: ConverterPriority = ConverterPriority.STANDARD,
    only_missing: bool = True,
) -> int:
    """Registers torchtrt's converters with the installed Torch-TensorRT, but those for branches and loops.

    Args:
        packs: The names of the packs whose converters are offered; all if omitted.
        priority: ``STANDARD`` puts them behind Torch-TensorRT's own, ``HIGH`` before.
        only_missing: Whether only those are offered whose ops Torch-TensorRT has no converter for.

    Returns:
        How many converters were registered.

    Raises:
        PackError: Torch-TensorRT is not installed or cannot be imported, or a pack is not in use.
    """
    theirs = _import(_REGISTRY)
    registries = DYNAMO_CONVERTERS.registries
    chosen = list(registries) if packs is None else list(packs)
    unknown = [name for name in chosen if name not in registries]
    if unknown:
        raise PackError(f"No pack {unknown[0]!r} is in use. In use: {', '.join(registries)}.")
    count = 0
    for target in sorted(DYNAMO_CONVERTERS.unique_targets(), key=str):
        table = theirs.DYNAMO_ATEN_CONVERTERS.get(target, ())
        if only_missing and table:
            continue
        if isinstance(target, HigherOrderOperator):
            continue  # its converter needs torchtrt's interpreter for the graphs inside
        there = {qualified_function(entry.converter_implementation) for entry in table}
        candidates = [
            candidate
            for candidate in DYNAMO_CONVERTERS.candidates(target)
            if candidate.pack.name in chosen and candidate.qualified_function not in there
        ]
        # The last to be registered with HIGH is the first to be tried there.
        is_high = priority is ConverterPriority.HIGH
        for candidate in reversed(candidates) if is_high else candidates:
            theirs.dynamo_tensorrt_converter(
                target,
                capability_validator=_offered_validator(candidate),
                priority=theirs.ConverterPriority[priority.name],
                supports_dynamic_shapes=candidate.support.supports_dynamic_shapes,
                requires_output_allocator=candidate.support.requires_output_allocator,
            )(_offered_converter(candidate))
            count += 1
    return count


def _offered_validator(candidate: Candidate) -> Callable[..., Any]:
    def accepts(node: Node, settings: Any = None) -> bool:
        del settings
        answer = True
        if candidate.validate is not None:
            answer = candidate.validate(node, CompilationSettings())
        return answer is None or answer is True

    return accepts


_contexts: weakref.WeakKeyDictionary[Any, ConversionContext] = weakref.WeakKeyDictionary()


def _offered_converter(candidate: Candidate) -> Callable[..., Any]:
    """Returns a converter as Torch-TensorRT calls one, over a context of ours for its network."""

    def convert(
        ctx: Any, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
    ) -> Any:
        ours = _context_over(ctx)
        node = ours.node = getattr(ctx, "current_node", None)
        sizes = nullcontext() if node is None else no_new_assumptions(node.graph)
        with sizes, ours.net.node(name, ""):
            args, kwargs = arguments_for_ours(ours, node, args, kwargs)
            return result_of_ours(ours, node, _call(candidate, ours, target, args, kwargs, name))

    convert.__module__, _, convert.__qualname__ = candidate.qualified_function.partition(":")
    convert.__name__ = convert.__qualname__.rpartition(".")[2]
    return convert


def _call(
    candidate: Candidate,
    ctx: ConversionContext,
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str,
) -> Any:
    """Calls a converter of their registry: as the older ones are called, or with the arguments of the op by name."""
    if candidate.arguments is None:
        is_legacy = candidate.calling_convention is CallingConvention.LEGACY
        return candidate.converter(ctx.net if is_legacy else ctx, target, args, kwargs, name)
    args, kwargs = candidate.arguments.bind(args, kwargs, ctx.tensor)
    return candidate.converter(ctx, *args, **kwargs)


def _context_over(theirs: Any) -> ConversionContext:
    """Returns the context of ours that shares the network and the weights of one of Torch-TensorRT's."""
    if theirs.net not in _contexts:
        _contexts[theirs.net] = ConversionContext(
            theirs.net,
            requires_output_allocator=theirs.requires_output_allocator,
            cpu_weights_reference_holder=theirs.cpu_weights_reference_holder,
        )
    return _contexts[theirs.net]
