"""The settings of one compilation.

Settings travel as an argument from ``torchtrt.compile`` down to every validator and converter.
Nothing stores them globally, so two threads can compile with different settings at the same time.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchtrt import peer_settings
from torchtrt.capability import Capability
from torchtrt.errors import SettingsError, did_you_mean
from torchtrt.setting_kinds import (
    BATCHES,
    BYTES,
    BYTES_OR_NONE,
    CACHE,
    COUNT,
    COUNT_OR_NONE,
    CUDA_GRAPHS,
    DTYPE,
    ENGINE_CAPABILITY,
    FOLDER_OR_STORE,
    GPUS,
    INDUCTOR,
    INTEGER_OR_NONE,
    LAYERS,
    LEVEL,
    NAMES,
    OPS,
    PACK_BY_OP,
    PASSES,
    PATTERNS,
    SPECIALIZATION,
    SWITCH,
    SWITCH_OR_NONE,
    THRESHOLD,
    TILING,
    VERIFY,
    Declaration,
    setting,
)
from torchtrt.stores import ByteStore, is_store
from torchtrt.targets import Target, qualified_name
from torchtrt.torch_internals import OperatorBase

partitioning = functools.partial(setting, "Partitioning")
precision = functools.partial(setting, "Precision")
building = functools.partial(setting, "Building")
engines = functools.partial(setting, "Engines")
calls = functools.partial(setting, "Calls")


@dataclass(frozen=True)
class CompilationSettings:
    """The settings of one compilation, checked when they are made.

    Each is declared once, with its part of the documentation, its default, its usable values and the page about it. The
    declaration also says whether an engine of a given graph follows from it. docs/settings.md has these declarations.

    Attributes:
        torch_executed_ops: Ops that stay in PyTorch, in any spelling: an overload, a packet, ``"aten.add"``,
            ``"aten::add.Tensor"`` or ``"torch.ops.aten.add.Tensor"``.
        torch_executed_modules: Modules of the model whose ops stay in PyTorch: regular expressions. Each matches a
            whole path, as ``"encoder.layer.0"``, or the whole name of a class.
        torch_executed_on_failure: Ops whose converter raises, or whose layers TensorRT refuses, stay in PyTorch, with
            a warning and the reason in the report. Without it they end the compilation.
        fallback_data_dependent_ops: Ops whose results have a size that depends on data stay in PyTorch.
        min_block_size: A block of fewer converted ops than this stays in PyTorch: entering an engine has a cost that
            few ops do not earn back. A block that is the whole model becomes an engine.
        require_full_compilation: Raise ``FullCompilationError`` when anything would stay in PyTorch, whatever the
            block size. Copying results into the buffers and inputs that the model writes to is always PyTorch's.
        dryrun: Lower and partition only. The result runs in PyTorch and carries the report.
        assume_dynamic_shape_support: Use converters for nodes with symbolic dimensions even where the converter does
            not declare that it supports them.
        converter_preferences: For an op, the pack whose converters are tried first, whatever the order law is:
            ``{"aten.gelu.default": "mypack"}``.
        torch_enabled_decompositions: Ops to decompose even where a converter accepts them.
        torch_disabled_decompositions: Ops never to decompose. Disjoint from the enabled ones.
        disabled_passes: Lowering passes of packs that do not run, as ``"aten_core.partial_writes"``.
        disabled_capabilities: Layers that no engine uses although TensorRT has them: capabilities of the group
            ``"layers"``, such as ``Capability.ATTENTION``, or their names.
        nccl_in_engines: Engines of NVIDIA's TensorRT exchange tensors between processes themselves, over NCCL.
            Without it PyTorch does so between engines.
        async_tensor_parallel: Divide the rows around an all-reduce among the processes, which exchange some while
            they compute others.
        tune: Measure which ops PyTorch should run although TensorRT could, and build as is fastest.
        autocast: Compute in ``torch.float16`` or ``torch.bfloat16`` what a float32 model need not compute in float32;
            see ``torchtrt.packs.AutocastRule``. Inputs and outputs keep their dtypes.
        autocast_excluded_ops: Ops that compute in float32 despite ``autocast``.
        autocast_excluded_nodes: The same for nodes: regular expressions that match a node's whole name, or the path
            of a module of the model that it comes from, as ``"encoder.layer.0"``.
        autocast_calibration_dataloader: Batches of inputs. The model runs them in float32, and what reads or returns
            larger numbers than ``autocast_max_output_threshold`` computes in float32.
        autocast_max_output_threshold: The largest magnitude of what computes in the dtype of ``autocast``. ``None``
            for the largest number that this dtype holds.
        autocast_max_depth_of_reduction: Products, convolutions and averages that sum over more elements than this
            compute in float32. ``None`` sets no limit.
        truncate_double: Compute float64 in float32. Without it float64 ops stay in PyTorch.
        allow_dequantized_weights: Compile quantized weights in floating point where the TensorRT in use lacks their
            format. Without it PyTorch dequantizes them, and the report names the format. Packed weights in a format
            that no pack supports are compiled without a warning.
        disable_tf32: Keep float32 matrix arithmetic at full precision.
        use_fp32_acc: Sum the terms of float16 matrix products in float32, as PyTorch does. Without it TensorRT may
            sum them in float16.
        max_engine_bytes: The maximum number of bytes of weights of one engine: larger blocks become several engines,
            which TensorRT builds one after the other in less memory. ``None`` sets no limit.
        offload_module_to_cpu: The model's weights are in the memory of the CPU while TensorRT builds, and come back
            afterwards, so that TensorRT has the GPU's memory for itself.
        workspace_size: Bytes of scratch memory a layer may use; 0 leaves TensorRT's default.
        optimization_level: TensorRT's builder optimization level, 0 to 5; ``None`` leaves its default.
        tiling_optimization_level: How long TensorRT 10.8 and later search for kernels that compute in tiles:
            ``"none"``, ``"fast"``, ``"moderate"`` or ``"full"``. ``None`` leaves their default.
        l2_limit_for_tiling: Bytes of the L2 cache that tiles may use, in TensorRT 10.8 and later; ``None`` leaves
            TensorRT's choice.
        num_avg_timing_iters: How often TensorRT times each kernel that it may choose. Increase it if the GPU runs
            other work.
        sparse_weights: TensorRT may use kernels for weights with two zeros in each four elements.
        max_aux_streams: How many streams beside the caller's an engine may use; ``None`` leaves TensorRT's default.
        tactic_sources: Bit mask of TensorRT's tactic sources; ``None`` leaves its default.
        engine_cache: Keep engines, and take those that were kept: ``True`` in the default folder, a folder, or a
            ``torchtrt.ByteStore``. ``None`` does what ``TORCHTRT_CACHE`` specifies.
        timing_cache: Keep the timings from which TensorRT chooses kernels, without the engines: a folder, or a
            ``torchtrt.ByteStore``. ``None`` keeps them where ``engine_cache`` keeps the engines.
        progress: Show progress bars, if ``torchtrt-cli`` is installed; ``None`` shows them when standard error is a
            terminal.
        version_compatible: Engines run in later versions of TensorRT too.
        hardware_compatible: Engines run on every GPU from Ampere on.
        enable_weight_streaming: Engines of TensorRT 10 and later may keep weights in the memory of the CPU until they
            are needed; see ``torchtrt.weight_streaming``.
        engine_capability: ``"standard"``, or the runtime that engines are for in place of TensorRT's: ``"safety"`` or
            ``"dla_standalone"``. ``None`` leaves the default.
        enable_cross_compile_for_windows: Engines of TensorRT 10.2 and later run on Windows, and not on the Linux that
            builds them.
        dla_core: The core of a deep-learning accelerator (DLA) that runs the engines. ``None`` builds for the GPU.
        allow_gpu_fallback: The GPU runs the layers that the DLA cannot run. Without it TensorRT refuses them.
        dla_sram_size: Bytes of the DLA's own memory that it may use for a layer; ``None`` leaves TensorRT's default.
        dla_local_dram_size: Bytes of memory for values between the DLA's layers, likewise.
        dla_global_dram_size: Bytes of memory for the DLA's weights, likewise.
        target_compute_capabilities: The GPUs that engines of TensorRT for RTX run on: ``"8.6"``, several, ``"all"``
            supported ones, or ``"current"`` for the GPU of this machine. ``None`` leaves its default.
        user_allocation: Engines of TensorRT for RTX allocate no memory while they run, so that your own CUDA graphs
            can capture them. ``cuda_graphs=True`` implies it.
        input_names: The names of the engine's inputs, in the order of the model's: for a model that becomes one
            engine. Empty for the names of the model's own inputs.
        output_names: The names of the engine's outputs, in the order of the model's outputs, likewise.
        verify: ``"engines"`` compares each engine with PyTorch, and divides a block whose engine is wrong. ``None``
            does so for networks that the TensorRT in use is known to compute wrongly, and ``False`` never.
            ``"reference"`` also builds and runs the network on the reference TensorRT, and compares it with eager
            PyTorch.
        immutable_weights: Engines keep the weights that they are built with. Without it
            ``torchtrt.refit_module_weights`` can give them others.
        strip_engine_weights: Plans of TensorRT 10 and later have no weights. Engines get those of the model, and
            those of a saved model get the ``weights`` of ``torchtrt.load``.
        cuda_graphs: Replay calls on a GPU as CUDA graphs; with ``"overwrite"`` each over the last one's results. With
            ``"runtime"`` the runtime of TensorRT for RTX captures each engine itself.
        share_execution_memory: Engines compute in memory that PyTorch's allocator lends them for one call at a time,
            so that those which do not run at the same time share it.
        runtime_cache: The folder, or the ``torchtrt.ByteStore``, in which TensorRT for RTX keeps the kernels that it
            compiles while engines run.
        kernel_specialization: When TensorRT for RTX compiles kernels for the sizes of a call: ``"lazy"``, ``"eager"``
            or ``"none"``. ``None`` leaves its default.
        inductor: Compile what stays in PyTorch as ``torch.compile`` does, ``"max-autotune"`` with that mode.
    """

    torch_executed_ops: frozenset[Target] = partitioning(
        frozenset(), OPS, page="keep-ops-in-pytorch.md"
    )
    torch_executed_modules: frozenset[str] = partitioning(
        frozenset(), PATTERNS, page="keep-ops-in-pytorch.md#exclude-modules"
    )
    torch_executed_on_failure: bool = partitioning(
        False, SWITCH, page="keep-ops-in-pytorch.md#converters-that-fail"
    )
    fallback_data_dependent_ops: bool = partitioning(
        False,
        SWITCH,
        page="keep-ops-in-pytorch.md#exclude-ops-whose-results-have-a-size-that-depends-on-data",
    )
    min_block_size: int = partitioning(5, COUNT)
    require_full_compilation: bool = partitioning(False, SWITCH)
    dryrun: bool = partitioning(False, SWITCH)
    assume_dynamic_shape_support: bool = partitioning(False, SWITCH)
    converter_preferences: Mapping[Target, str] = partitioning({}, PACK_BY_OP)
    torch_enabled_decompositions: frozenset[Target] = partitioning(frozenset(), OPS)
    torch_disabled_decompositions: frozenset[Target] = partitioning(frozenset(), OPS)
    disabled_passes: frozenset[str] = partitioning(frozenset(), PASSES, page="registry.md#passes")
    disabled_capabilities: frozenset[Capability] = partitioning(
        frozenset(), LAYERS, in_engine=True, page="current-layers.md#turn-a-layer-off"
    )
    nccl_in_engines: bool = partitioning(False, SWITCH, page="several-gpus.md#collectives")
    async_tensor_parallel: bool = partitioning(
        False, SWITCH, page="several-gpus.md#exchange-rows-while-computing-others"
    )
    tune: bool = partitioning(False, SWITCH, page="tuning.md")
    autocast: torch.dtype | None = precision(None, DTYPE, in_engine=True, page="mixed-precision.md")
    autocast_excluded_ops: frozenset[Target] = precision(frozenset(), OPS)
    autocast_excluded_nodes: frozenset[str] = precision(frozenset(), PATTERNS)
    autocast_calibration_dataloader: Iterable[Any] | None = precision(
        None, BATCHES, page="mixed-precision.md#exclude-what-large-numbers-need"
    )
    autocast_max_output_threshold: float | None = precision(
        None, THRESHOLD, page="mixed-precision.md#exclude-what-large-numbers-need"
    )
    autocast_max_depth_of_reduction: int | None = precision(
        None, COUNT_OR_NONE, page="mixed-precision.md#exclude-long-sums"
    )
    truncate_double: bool = precision(False, SWITCH)
    allow_dequantized_weights: bool = precision(False, SWITCH, page="quantized-models.md")
    disable_tf32: bool = precision(False, SWITCH, in_engine=True)
    use_fp32_acc: bool = precision(
        False, SWITCH, in_engine=True, page="mixed-precision.md#sums-in-float32"
    )
    max_engine_bytes: int | None = building(
        None, BYTES_OR_NONE, page="large-models.md#limit-the-size-of-engines"
    )
    offload_module_to_cpu: bool = building(
        False, SWITCH, page="large-models.md#move-weights-to-the-cpu-while-building"
    )
    workspace_size: int = building(0, BYTES, in_engine=True)
    optimization_level: int | None = building(None, LEVEL, in_engine=True)
    tiling_optimization_level: str | None = building(None, TILING, in_engine=True)
    l2_limit_for_tiling: int | None = building(None, BYTES_OR_NONE, in_engine=True)
    num_avg_timing_iters: int = building(1, COUNT, in_engine=True)
    sparse_weights: bool = building(False, SWITCH, in_engine=True)
    max_aux_streams: int | None = building(None, INTEGER_OR_NONE, in_engine=True)
    tactic_sources: int | None = building(None, INTEGER_OR_NONE, in_engine=True)
    engine_cache: bool | str | os.PathLike[str] | ByteStore | None = building(
        None, CACHE, page="cache.md"
    )
    timing_cache: str | os.PathLike[str] | ByteStore | None = building(
        None, FOLDER_OR_STORE, page="cache.md#timings-without-engines"
    )
    progress: bool | None = building(None, SWITCH_OR_NONE)
    version_compatible: bool = engines(False, SWITCH, in_engine=True, page="portable-engines.md")
    hardware_compatible: bool = engines(False, SWITCH, in_engine=True, page="portable-engines.md")
    enable_weight_streaming: bool = engines(
        False, SWITCH, in_engine=True, page="weight-streaming.md"
    )
    engine_capability: str | None = engines(
        None, ENGINE_CAPABILITY, in_engine=True, page="other-machines.md#dla"
    )
    enable_cross_compile_for_windows: bool = engines(
        False, SWITCH, in_engine=True, page="other-machines.md#windows"
    )
    dla_core: int | None = engines(
        None, INTEGER_OR_NONE, in_engine=True, page="other-machines.md#dla"
    )
    allow_gpu_fallback: bool = engines(False, SWITCH, in_engine=True, page="other-machines.md#dla")
    dla_sram_size: int | None = engines(None, BYTES_OR_NONE, in_engine=True)
    dla_local_dram_size: int | None = engines(None, BYTES_OR_NONE, in_engine=True)
    dla_global_dram_size: int | None = engines(None, BYTES_OR_NONE, in_engine=True)
    target_compute_capabilities: str | Sequence[str] | None = engines(
        None, GPUS, page="rtx.md#choose-the-gpus"
    )
    user_allocation: bool = engines(False, SWITCH)
    input_names: Sequence[str] = engines((), NAMES, in_engine=True, page="plans.md#names")
    output_names: Sequence[str] = engines((), NAMES, in_engine=True, page="plans.md#names")
    verify: str | bool | None = engines(
        None,
        VERIFY,
        page="dynamic-shapes.md#compare-engines-with-pytorch",
    )
    immutable_weights: bool = engines(
        True, SWITCH, in_engine=True, page="save-and-load.md#other-weights"
    )
    strip_engine_weights: bool = engines(
        False, SWITCH, in_engine=True, page="large-models.md#write-plans-without-weights"
    )
    cuda_graphs: bool | str = calls(False, CUDA_GRAPHS, page="on-a-gpu.md#cuda-graphs")
    share_execution_memory: bool = calls(
        False, SWITCH, page="large-models.md#share-execution-memory"
    )
    runtime_cache: str | os.PathLike[str] | ByteStore | None = calls(
        None, FOLDER_OR_STORE, page="rtx.md#runtime-settings"
    )
    kernel_specialization: str | None = calls(None, SPECIALIZATION, page="rtx.md#runtime-settings")
    inductor: bool | str = calls(False, INDUCTOR, page="inductor.md")

    def __post_init__(self) -> None:
        """Checks each setting, and keeps it in one form: sets, tuples and ops instead of their spellings."""
        for name, declaration in declarations().items():
            value = getattr(self, name)
            declaration.kind.check(name, value)
            # As the __init__ of a frozen dataclass does.
            object.__setattr__(self, name, declaration.kind.normal(value))
        self._check_together()

    def _check_together(self) -> None:
        """Checks the settings that exclude each other.

        Raises:
            SettingsError: Some do.
        """
        if operator.getitem in self.torch_executed_ops:
            raise SettingsError(
                "torch_executed_ops names getitem, which takes one of an op's results and runs where the op runs. "
                "Name the op that has the results."
            )
        if shared := set(self.input_names) & set(self.output_names):
            raise SettingsError(
                f"input_names and output_names both have {', '.join(sorted(shared))}. Names are of one tensor each."
            )
        if self.torch_executed_on_failure and self.require_full_compilation:
            raise SettingsError(
                "torch_executed_on_failure leaves ops in PyTorch, which require_full_compilation forbids. Drop one."
            )
        runs_engines = self.tune or self.verify == "engines" or not self.immutable_weights
        if self.enable_cross_compile_for_windows and runs_engines:
            raise SettingsError(
                "enable_cross_compile_for_windows builds engines that do not run here. Drop tune=True, "
                "verify='engines' and immutable_weights=False, for which they would have to."
            )
        if both := self.torch_enabled_decompositions & self.torch_disabled_decompositions:
            names = ", ".join(sorted(map(str, both)))
            raise SettingsError(
                f"torch_enabled_decompositions and torch_disabled_decompositions both name {names}. "
                "Keep each op in one of them."
            )

    def _values(self) -> dict[str, Any]:
        return {setting.name: getattr(self, setting.name) for setting in dataclasses.fields(self)}

    def __hash__(self) -> int:
        values = self._values()
        preferences = frozenset(values.pop("converter_preferences").items())
        return hash(
            (preferences, *(value for value in values.values() if isinstance(value, Hashable)))
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> CompilationSettings:
        return self  # which does not change, and may hold a store or batches, which are no part of a copied model

    def __copy__(self) -> CompilationSettings:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled by the names of ops, whose objects PyTorch cannot pickle, and without stores: these are the program's.
        values = (None if is_store(value) else value for value in self._values().values())
        return type(self), tuple(map(_by_name, values))

    @classmethod
    def from_keywords(cls, **keywords: Any) -> CompilationSettings:
        """Returns settings from ``compile``'s keyword arguments.

        ``enabled_precisions``, as Torch-TensorRT has it, is taken for ``autocast`` to the lower one of them.

        Raises:
            SettingsError: A name is unknown (the closest known one is named) or a value is unusable.
        """
        if "enabled_precisions" in keywords:
            lowest = _lowest(keywords.pop("enabled_precisions"))
            if keywords.setdefault("autocast", lowest) is not lowest:
                message = f"autocast={keywords['autocast']} and enabled_precisions ask for different dtypes: give one."
                raise SettingsError(message)
        check_setting_names(keywords)
        return cls(**keywords)


OF_CALLS = frozenset({"optimization_profile", "overwrite_results"})
"""Fields of ``torchtrt.RuntimeSettings`` that no compilation has."""


def check_setting_names(keywords: Iterable[str], *functions: Callable[..., Any]) -> None:
    """Checks the names of keyword arguments that functions pass on as settings.

    Args:
        keywords: The names.
        functions: The functions: the name may be meant for one of their own arguments.

    Raises:
        SettingsError: A name is neither a setting nor an argument of these functions.
    """
    valid_names = {setting.name for setting in dataclasses.fields(CompilationSettings)}
    valid_names |= {
        parameter.name
        for function in functions
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    listing = "help(torchtrt.CompilationSettings) lists all settings."
    for name in keywords:
        if name not in valid_names and name != "enabled_precisions":
            if name in peer_settings.ADVICE:
                advice = f"It is a setting of Torch-TensorRT. {peer_settings.ADVICE[name]}"
            elif name in OF_CALLS:
                advice = f"Calls have it: `with torchtrt.runtime_settings(compiled, {name}=...):`."
            else:
                advice = did_you_mean(name, valid_names, listing)
            raise SettingsError(f"torchtrt has no setting named {name!r}. {advice}")


def _lowest(precisions: Any) -> torch.dtype | None:
    """Returns the dtype to lower a model to where these may be computed with."""
    halves = (torch.float16, torch.bfloat16)
    is_one = isinstance(precisions, torch.dtype) or not isinstance(precisions, Collection)
    requested = [precisions] if is_one else list(precisions)
    lower = [dtype for dtype in halves if dtype in requested]
    if not all(dtype in (torch.float32, *halves) for dtype in requested) or len(lower) > 1:
        raise SettingsError(
            f"enabled_precisions={precisions!r} is not usable: it must be torch.float32, and torch.float16 or "
            "torch.bfloat16 beside it. Quantized models are compiled as they are."
        )
    return lower.pop() if lower else None


def _by_name(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_by_name(target): pack for target, pack in value.items()}
    if isinstance(value, frozenset):
        return frozenset(map(_by_name, value))
    return qualified_name(value) if isinstance(value, OperatorBase) else value


@functools.cache
def declarations() -> Mapping[str, Declaration]:
    """Returns the declaration of each setting, by its name."""
    return {spec.name: spec.metadata["setting"] for spec in dataclasses.fields(CompilationSettings)}
