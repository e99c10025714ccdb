"""Compares a compiled model with eager PyTorch on the reference TensorRT, on a machine that cannot run its engines.

The reference builds and runs the networks that the TensorRT in use built: the same blocks, the same converters, and the
capabilities of the TensorRT in use. It checks lowering and conversion; it cannot check TensorRT's kernels.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from torchtrt.errors import TensorRTUnavailableError, VerificationError
from torchtrt.packs import TENSORRTS
from torchtrt.packs.extensions import installed, module_of
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import selection
from torchtrt.tensorrt.probes import answering_for
from torchtrt_compiler.building.engine import Services, build_engine
from torchtrt_compiler.comparison import differences, inputs_at_limits
from torchtrt_compiler.inputs import CallInputs
from torchtrt_compiler.lowering.watchers import ProgramWatcher
from torchtrt_compiler.progress import Stages
from torchtrt_runtime.executors.choice import executor_for
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.reports.report import VerifiedOutput


def verify(
    compiled: CompiledModule,
    model: torch.nn.Module | ExportedProgram,
    blocks: Mapping[str, GraphModule],
    inputs: CallInputs,
) -> list[VerifiedOutput]:
    """Returns the largest difference of each output from eager PyTorch, at the limits of each range of sizes.

    Tensors that the model writes to hold their old values afterwards.

    Args:
        compiled: The compiled model.
        model: The model in eager PyTorch.
        blocks: The graph of each engine, by its name.
        inputs: The inputs that the caller gave.

    Raises:
        VerificationError: A difference exceeds its tolerance.
        TensorRTUnavailableError: The reference TensorRT is not installed.
    """
    reference = f"reference@{closest_reference()}"
    on_reference = _on_reference(compiled, blocks, reference)
    rows = [
        difference.on(reference)
        for shapes, leaves in inputs_at_limits(compiled, inputs)
        for difference in differences(on_reference, model, leaves, shapes)
    ]
    if failed := [row for row in rows if not row.agrees]:
        raise VerificationError("\n".join(map(str, failed)), tuple(rows))
    return rows


def closest_reference() -> str:
    """Returns the version of the reference whose interface is the closest to that of the TensorRT in use.

    Raises:
        TensorRTUnavailableError: The reference is not installed.
    """
    extension = installed(TENSORRTS).get("reference")
    module = "it is not installed" if extension is None else module_of(extension)
    if isinstance(module, str):
        raise TensorRTUnavailableError(
            f"verify='reference' needs the reference TensorRT: {module}. `pip install torchtrt-reference` brings it."
        )
    wanted = _number(selection.version())
    versions: Sequence[str] = module.VERSIONS
    return min(versions, key=lambda version: abs(_number(version) - wanted))


def _number(version: str) -> int:
    """Returns the place of a version among others: major versions are further apart than minor ones."""
    major, minor = version.split(".")[:2]
    return int(major) * 1000 + int(minor)


def _on_reference(
    compiled: CompiledModule, blocks: Mapping[str, GraphModule], tensorrt: str
) -> CompiledModule:
    """Returns the compiled model with engines of the reference."""
    graph_module = copy.copy(compiled.graph_module)
    module = selection.load(tensorrt)
    services = Services(Stages({}, False), cache=None, timings=None, watcher=ProgramWatcher())
    settings, profiles = compiled.settings, compiled.checks.profiles
    plain = CompilationSettings(
        truncate_double=settings.truncate_double, autocast=settings.autocast
    )
    with answering_for(selection.current()), selection.use_module(module):
        for name, block in blocks.items():
            engine = build_engine(name, block, profiles, plain, services)
            setattr(graph_module, name, engine.module)
    return CompiledModule(graph_module, compiled.interface, compiled.report, plain, executor_for)
