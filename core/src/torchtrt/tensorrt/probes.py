"""The capabilities of the TensorRT in use: the only module that looks for names in TensorRT.

A probe finds a capability by the names of a TensorRT module. An implementation that comes through the entry-point group
``torchtrt.tensorrt`` declares what differs, with ``capability_objection(name)``; see
``torchtrt.tensorrt.selection``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from torchtrt.capability import Capability
from torchtrt.tensorrt.selection import current, describe, implementation

Probe = Callable[[Any], bool]


def _has(path: str) -> Probe:
    """Returns a probe for a name in TensorRT's module: ``"DataType.INT64"``."""
    owner, _, name = path.rpartition(".")
    return lambda module: hasattr(getattr(module, owner, None) if owner else module, name)


def _adds(layer: str) -> Probe:
    return _has(f"INetworkDefinition.add_{layer}")


_IS_10 = _has("DataType.INT64")
"""Later than 8.6: for behavior of layers, which has no name of its own."""

_PROBES: Mapping[Capability, Probe] = {
    Capability.STRONG_TYPING: _has("NetworkDefinitionCreationFlag.STRONGLY_TYPED"),
    Capability.DATA_DEPENDENT_SIZES: _adds("non_zero"),
    Capability.SIZES_FROM_DATA: _IS_10,
    Capability.BRANCHES_OF_OTHER_SIZES: _has("IRuntimeConfig"),  # which 10.11 brought as well
    Capability.PLUGINS_V3: _adds("plugin_v3"),
    Capability.QUICK_PLUGINS: _adds("plugin"),
    Capability.AOT_PLUGINS: _has("IPluginV3QuickAOTBuild"),
    Capability.INT64: _has("DataType.INT64"),
    Capability.BFLOAT16: _has("DataType.BF16"),
    Capability.FP8: _has("DataType.FP8"),
    Capability.INT4: _has("DataType.INT4"),
    Capability.FP4: _has("DataType.FP4"),
    Capability.E8M0: _has("DataType.E8M0"),
    Capability.ATTENTION: _adds("attention"),
    Capability.ATTENTION_V2: _adds("attention_v2"),
    Capability.KV_CACHE_UPDATE: _adds("kv_cache_update"),
    Capability.ROTARY_EMBEDDING: _adds("rotary_embedding"),
    Capability.MIXTURE_OF_EXPERTS: _adds("moe"),
    Capability.NORMALIZATION_V2: _adds("normalization_v2"),
    Capability.CUMULATIVE: _adds("cumulative"),
    Capability.GELU: _has("ActivationType.GELU_ERF"),
    Capability.NON_MAXIMUM_SUPPRESSION: _adds("nms"),
    Capability.BFLOAT16_DECONVOLUTION: _has("DataType.BF16"),
    Capability.TYPED_QUANTIZATION: _has("IQuantizeLayer.to_type"),
    Capability.BLOCK_QUANTIZATION: _has("IQuantizeLayer.block_shape"),
    Capability.DYNAMIC_QUANTIZATION: _adds("dynamic_quantize"),
    Capability.DYNAMIC_QUANTIZATION_V2: _adds("dynamic_quantize_v2"),
    Capability.DISTRIBUTED_COLLECTIVES: _adds("dist_collective"),
    Capability.ALL_TO_ALL: _has("CollectiveOperation.ALL_TO_ALL"),
    Capability.SETTLED_COLLECTIVES: _has("CollectiveOperation.ALL_TO_ALL"),
    Capability.SINGLE_ROW_LOOPS: _has("ILoop"),
    Capability.SPARSE_WEIGHTS: _has("BuilderFlag.SPARSE_WEIGHTS"),
    Capability.REFIT: _has("BuilderFlag.REFIT"),
    Capability.STRIPPED_PLANS: _has("BuilderFlag.REFIT_IDENTICAL"),
    Capability.WEIGHT_STREAMING: _has("BuilderFlag.WEIGHT_STREAMING"),
    Capability.VERSION_COMPATIBILITY: _has("BuilderFlag.VERSION_COMPATIBLE"),
    Capability.TARGET_COMPUTE_CAPABILITIES: _has("IBuilderConfig.set_compute_capability"),
    Capability.TIMING_CACHE: _has("IBuilderConfig.create_timing_cache"),
    Capability.QUANTIZED_CONSTANTS: _IS_10,
    Capability.SHARED_PROFILES: _IS_10,
    Capability.TILING: _has("IBuilderConfig.tiling_optimization_level"),
    Capability.CROSS_COMPILATION: _has("IBuilderConfig.runtime_platform"),
    Capability.ALLOCATION_STRATEGIES: _has("ExecutionContextAllocationStrategy.USER_MANAGED"),
    Capability.RUNTIME_CACHE: _has("IRuntimeConfig.create_runtime_cache"),
    Capability.KERNEL_SPECIALIZATION: _has(
        "IRuntimeConfig.dynamic_shapes_kernel_specialization_strategy"
    ),
    Capability.CUDA_GRAPH_STRATEGY: _has("IRuntimeConfig.cuda_graph_strategy"),
    Capability.USER_ALLOCATION: _has("BuilderFlag.REQUIRE_USER_ALLOCATION"),
    Capability.INTEGER_REDUCTION: _IS_10,
    Capability.INTEGER_RANKING: _IS_10,
    Capability.INFINITE_CONSTANTS: _IS_10,
    Capability.SINGLE_ROW_PRODUCTS: _IS_10,
    Capability.SEVERAL_VARYING_SIZES: _IS_10,
    Capability.FREE_FORM_ATTENTION: _IS_10,
}
"""A capability without a probe is one that only an implementation declares."""


@functools.lru_cache(maxsize=64)
def _probed(module: Any) -> frozenset[Capability]:
    return frozenset(capability for capability, probe in _PROBES.items() if probe(module))


def _declared(capability: Capability) -> str | None:
    """Returns what the implementation in use declares: a reason, ``""`` for a capability it has, or ``None``."""
    declare = getattr(implementation(_asked()), "capability_objection", None)
    return None if declare is None else declare(capability.name)


_disabled: ContextVar[frozenset[Capability]] = ContextVar("torchtrt_disabled", default=frozenset())
DISABLED = "the setting disabled_capabilities turns it off"
"""Why a compilation lacks a capability that TensorRT has."""


@contextlib.contextmanager
def disabling(capabilities: frozenset[Capability]) -> Iterator[None]:
    """Answers inside a ``with`` block, in this thread or task, as if the TensorRT in use lacked some capabilities."""
    token = _disabled.set(_disabled.get() | capabilities)
    try:
        yield
    finally:
        _disabled.reset(token)


def disabled() -> frozenset[Capability]:
    """Returns the capabilities that ``disabling`` takes away here."""
    return _disabled.get()


_judged: ContextVar[Any] = ContextVar("torchtrt_judged", default=None)


@contextlib.contextmanager
def answering_for(module: Any) -> Iterator[None]:
    """Answers for another TensorRT than the one in use inside a ``with`` block.

    So another TensorRT builds the networks that converters build for this one.

    Args:
        module: What ``torchtrt.tensorrt.selection.current`` returned.
    """
    token = _judged.set(module)
    try:
        yield
    finally:
        _judged.reset(token)


def _asked() -> Any:
    return _judged.get() or current()


def supports(capability: Capability) -> bool:
    """Returns whether the TensorRT in use has a capability here, and no setting of the compilation turns it off."""
    if capability in _disabled.get():
        return False
    declared = _declared(capability)
    return capability in _probed(_asked()) if declared is None else not declared


def lacking(what: str, *capabilities: Capability) -> str:
    """Returns an error message about the first capability that the TensorRT in use lacks; ``""`` if it has all.

    The message has the setting that turns the capability off, the reason that the implementation declares, or the first
    version with the capability and the TensorRT in use.

    Args:
        what: The setting or op that needs the capabilities.
        *capabilities: The capabilities.
    """
    for capability in capabilities:
        if not supports(capability):
            return f"{what} needs {capability.title}, {_why_lacking(capability)}"
    return ""


def _why_lacking(capability: Capability) -> str:
    if capability in _disabled.get():
        return f"and {DISABLED}"
    if declared := _declared(capability):
        return f"which {describe()} does not have here: {declared}"
    product, _, version = capability.since.rpartition(" ")
    if not product:
        return f"which only the {version} TensorRT has; the one in use is {describe()}"
    return f"which {product} has from version {version} on; the one in use is {describe()}"


@dataclass(frozen=True)
class CapabilityRow:
    """A row of the table of capabilities.

    Attributes:
        capability: The capability.
        available: Whether the TensorRT in use has it here.
        reason: Why not, if the implementation in use declares a reason.
    """

    capability: Capability
    available: bool
    reason: str = ""


def capability_table() -> tuple[CapabilityRow, ...]:
    """Returns for each capability whether the TensorRT in use has it, in the order of ``Capability``."""
    return tuple(
        CapabilityRow(capability, supports(capability), _declared(capability) or "")
        for capability in Capability
    )
