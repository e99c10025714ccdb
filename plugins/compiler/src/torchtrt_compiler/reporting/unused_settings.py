"""Finds the settings that change nothing in a compilation: by its ops and packs, the TensorRT and the machine."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from torchtrt.callers import warn_caller
from torchtrt.errors import SettingsWarning
from torchtrt.graphs.nodes import all_nodes, mutates, resolution_of
from torchtrt.packs import current_packs
from torchtrt.packs.preferences import preferred_by_environment
from torchtrt.registry.excluded_modules import module_names
from torchtrt.settings import CompilationSettings
from torchtrt.targets import op_of_function, qualified_name
from torchtrt.tensorrt import Capability, supports
from torchtrt.tensorrt.selection import default_compute_capabilities, describe, device_objection
from torchtrt.torch_internals import HigherOrderOperator, OpOverload
from torchtrt_compiler.lowering import Program
from torchtrt_compiler.offloading import has_weights_to_offload
from torchtrt_compiler.partitioning.blocks import Partition
from torchtrt_compiler.partitioning.division import weight_bytes
from torchtrt_runtime.processes.groups import collectives_in
from torchtrt_runtime.processes.shifts import IN_ENGINE

_OF_OPS = (
    "torch_executed_ops",
    "torch_enabled_decompositions",
    "torch_disabled_decompositions",
    "converter_preferences",
)
_OF_AUTOCAST = (
    "autocast_excluded_ops",
    "autocast_excluded_nodes",
    "autocast_calibration_dataloader",
    "autocast_max_output_threshold",
    "autocast_max_depth_of_reduction",
)
_OF_DLA = ("dla_sram_size", "dla_local_dram_size", "dla_global_dram_size")


def warn_of_unused_settings(settings: CompilationSettings, program: Program) -> None:
    """Warns, once, about settings that change nothing.

    Args:
        settings: The settings of the compilation.
        program: The lowered program, whose calls carry their resolutions.
    """
    exported, lowered = program.exported, program.graph_module
    problems = [
        *_unknown(settings, exported, program.asked),
        *_not_preferred(settings, lowered),
        *_of_modules(settings, exported),
        *_of_machine(settings),
        *_of_processes(settings, program),
    ]
    if settings.use_fp32_acc and not _has_float16(lowered):
        problems.append("use_fp32_acc=True, and nothing is computed in float16.")
    if settings.dla_core is None:
        names = ("allow_gpu_fallback", *_OF_DLA)
        unused = (name for name in names if getattr(settings, name))
        problems.extend(
            f"{name} is for the setting dla_core, which is not given." for name in unused
        )
    if settings.offload_module_to_cpu and not has_weights_to_offload(exported):
        problems.append("offload_module_to_cpu=True, and the model has no weights on a GPU.")
    if problems:
        lines = "\n  ".join(problems)
        warn_caller(f"Settings have no effect here:\n  {lines}", SettingsWarning)


def _has_float16(graph_module: GraphModule) -> bool:
    """Returns whether a call of a graph returns float16."""
    values = (node.meta.get("val") for node in graph_module.graph.nodes if node.op != "placeholder")
    return any(getattr(value, "dtype", None) is torch.float16 for value in values)


def warn_of_large_weights(partition: Partition, most: int | None) -> None:
    """Warns of ops that alone have more weights than ``max_engine_bytes``: their engines are larger."""
    if most is None:
        return
    large = {
        node: size
        for block in partition.blocks.values()
        for node in block
        if (size := weight_bytes([node])) > most
    }
    if large:
        largest = max(large, key=large.__getitem__)
        weights = " and ".join(
            str(source.target) for source in largest.all_input_nodes if source.op == "get_attr"
        )
        warn_caller(
            f"max_engine_bytes={most:,} is less than single ops need, and their engines are larger. There are "
            f"{len(large)} such ops; the largest has {large[largest]:,} bytes of weights: {weights}.",
            SettingsWarning,
        )


def _unknown(
    settings: CompilationSettings, exported: ExportedProgram, asked: Collection[Any]
) -> Iterator[str]:
    """Yields the settings with ops that the program does not call."""
    nodes = all_nodes(exported.graph_module)
    called = {node.target for node in nodes}
    ops_by_setting = {setting: getattr(settings, setting) for setting in _OF_OPS}
    ops_by_setting["converter_preferences"] = _preferences(settings)
    for setting, ops in ops_by_setting.items():
        for name, overloads in _by_packet(ops).items():
            if overloads.isdisjoint(asked):
                yield f"{setting} names {name}, {_why_unused(overloads, called)}."
    for setting in _OF_AUTOCAST:
        if settings.autocast is None and getattr(settings, setting) not in (None, frozenset()):
            yield f"{setting} is for the setting autocast, which is not given."
    is_measured = settings.autocast_calibration_dataloader is not None
    if settings.autocast and settings.autocast_max_output_threshold and not is_measured:
        yield "autocast_max_output_threshold is for autocast_calibration_dataloader, which is not given."
    if settings.autocast is not None:
        kept = {node.target for node in nodes if not mutates(node)} | set(asked)
        for name, overloads in _by_packet(settings.autocast_excluded_ops).items():
            if overloads.isdisjoint(kept):
                yield f"autocast_excluded_ops names {name}, {_why_unused(overloads, called)}."


def _of_modules(settings: CompilationSettings, exported: ExportedProgram) -> Iterator[str]:
    """Yields the patterns that match no module that the program calls."""
    if not settings.torch_executed_modules:
        return
    called = {name for node in all_nodes(exported.graph_module) for name in module_names(node)}
    for pattern in sorted(settings.torch_executed_modules):
        if not any(re.fullmatch(pattern, name) for name in called):
            yield (
                f"torch_executed_modules={pattern!r} matches the whole path of no module that the program calls, and "
                "the whole name of no class of one."
            )


def _of_processes(settings: CompilationSettings, program: Program) -> Iterator[str]:
    """Yields the settings for collectives that the program does not have, or that run elsewhere."""
    if settings.nccl_in_engines and not collectives_in(program.graph_module):
        yield "nccl_in_engines=True, and the program exchanges no tensors."
    if settings.async_tensor_parallel and not program.divided:
        yield "async_tensor_parallel=True, and the program has no all-reduce that the pack distributed divides."
    elif program.divided and all(line.endswith(IN_ENGINE) for line in program.divided):
        yield (
            "async_tensor_parallel=True divides what PyTorch reduces between engines, and engines exchange all tensors "
            "themselves. "
            'disabled_capabilities=["DISTRIBUTED_COLLECTIVES"] leaves that to PyTorch.'
        )


def _of_machine(settings: CompilationSettings) -> Iterator[str]:
    """Yields the settings that the TensorRT in use, or this machine, has no use for."""
    has_gpu = torch.cuda.is_available()
    # Where engines run on no CPU, they are for another machine.
    runs_here = has_gpu or not device_objection(torch.device("cpu"))
    if settings.cuda_graphs in (True, "overwrite") and runs_here and not has_gpu:
        yield (
            f"cuda_graphs={settings.cuda_graphs!r} replays calls on a GPU, and PyTorch finds none: calls on the CPU "
            "run as without it."
        )
    if settings.hardware_compatible and (targets := default_compute_capabilities()):
        yield (
            f"hardware_compatible=True: engines of {describe()} run on GPUs of compute capability "
            f"{', '.join(targets)} without it. target_compute_capabilities chooses among them."
        )
    if settings.nccl_in_engines and supports(Capability.PROCESS_GROUPS):
        yield f"nccl_in_engines=True: engines of {describe()} exchange tensors without it, and not over NCCL."


def _why_unused(overloads: set[Any], called: set[Any]) -> str:
    """Returns why a setting for ops changes nothing, as the end of a sentence that names them."""
    if not overloads.isdisjoint(called):
        return "which lowering replaces by others"
    packets = {getattr(op, "overloadpacket", op) for op in called}
    if any(getattr(op, "overloadpacket", op) in packets for op in overloads):
        names = ", ".join(sorted(map(qualified_name, overloads)))
        return f"and the program calls other overloads than {names}"
    functions = [op for op in overloads if not isinstance(op, (OpOverload, HigherOrderOperator))]
    for name in map(op_of_function, map(qualified_name, functions)):
        if name is not None:
            return f"a function and no op: write {name!r}, which it calls"
    return "which the program does not call"


def _preferences(settings: CompilationSettings) -> dict[Any, str]:
    """Returns the preferences of one compilation, without those of the environment, which are for all programs."""
    everywhere = preferred_by_environment(current_packs())
    preferences = settings.converter_preferences.items()
    return {op: pack for op, pack in preferences if everywhere.get(op) != pack}


def _by_packet(ops: Iterable[Any]) -> dict[str, set[Any]]:
    """Returns ops by the name that stands for all of their overloads: who names a packet means any of them."""
    by_packet: dict[str, set[Any]] = {}
    for op in sorted(ops, key=qualified_name):
        packet = getattr(op, "overloadpacket", None)
        name = str(packet) if packet is not None else qualified_name(op)
        by_packet.setdefault(name, set()).add(op)
    return by_packet


def _not_preferred(settings: CompilationSettings, lowered: GraphModule) -> Iterator[str]:
    """Yields the preferences for packs that convert none of the nodes that they are preferred for."""
    nodes = all_nodes(lowered)
    preferences = _preferences(settings)
    for name, overloads in _by_packet(preferences).items():
        pack = next(preferences[op] for op in overloads)
        outcomes = [resolution_of(node) for node in nodes if node.target in overloads]
        resolutions = [resolution for resolution in outcomes if resolution is not None]
        if not resolutions or any(
            resolution.chosen and resolution.chosen.pack.name == pack for resolution in resolutions
        ):
            continue
        reasons = (
            rejection.reason
            for resolution in resolutions
            for rejection in resolution.rejections
            if rejection.candidate is None or rejection.candidate.pack.name == pack
        )
        why = next(reasons, "it has no converter for these overloads")
        yield f"converter_preferences prefers {pack} for {name}, and it converts no such node: {why}."
