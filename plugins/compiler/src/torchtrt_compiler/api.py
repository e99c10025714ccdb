"""``torchtrt.compile``: from a model to a module that runs TensorRT engines and, for the rest, PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from torchtrt.packs.preferences import settings_from
from torchtrt.settings import check_setting_names
from torchtrt.tensorrt.probes import disabling
from torchtrt_compiler.exporting.export import export as export_program
from torchtrt_compiler.inputs import CallInputs
from torchtrt_compiler.measuring.tuning import tuned
from torchtrt_compiler.pipeline import Compilation
from torchtrt_compiler.record import recording
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.reports.report import CompilationReport


def compile(
    model: torch.nn.Module | ExportedProgram,
    inputs: Sequence[Any] = (),
    *,
    kwarg_inputs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    **settings: Any,
) -> CompiledModule:
    """Compiles a model: what the installed packs support runs in TensorRT engines, the rest in PyTorch.

    Args:
        model: A module in eval mode, or a program that you exported.
        inputs: The positional inputs: example tensors, ``torchtrt.Input`` where sizes vary, or ``torchtrt.Number`` for
            a number that varies. Empty for a model whose ``forward`` takes none; may be empty for an exported program.
        kwarg_inputs: The keyword inputs, likewise.
        dynamic_shapes: As ``torch.export.export`` takes it, for example tensors with dynamic sizes.
        **settings: Fields of ``torchtrt.CompilationSettings``.

    Returns:
        A module that is called like the original and carries a ``report``.

    Raises:
        SettingsError: A setting is unknown or unusable, or the TensorRT in use does not have it.
        PackError: No converter pack is in use, or a pack's lowering pass failed.
        InputError: The inputs do not fit the model, a dynamic size has no bound, or, with
            ``require_full_compilation``, the model's code cannot take all the sizes asked for.
        ExportError: The model cannot be exported.
        FullCompilationError: With ``require_full_compilation``, something would stay in PyTorch.
        ConversionError: A converter failed, and ``torch_executed_on_failure`` is off.
        VerificationError: With ``verify="reference"``, the network computes something else than the model.
        BuildError: TensorRT refused a network, and its parts down to a single op, which must not stay in PyTorch.
    """
    check_setting_names(settings, compile)
    compilation_settings = settings_from(settings)
    call = CallInputs(inputs, {} if kwarg_inputs is None else kwarg_inputs)
    with disabling(compilation_settings.disabled_capabilities):
        if compilation_settings.tune:
            compile_with = functools.partial(
                compile, model, inputs, kwarg_inputs=call.kwargs, dynamic_shapes=dynamic_shapes
            )
            export_again = functools.partial(export_program, model, *call, dynamic_shapes)
            return tuned(compile_with, export_again, call, settings)
        compilation = Compilation(model, call, compilation_settings)
        with compilation.stages, torch.no_grad(), recording():
            with compilation.stages.stage("exporting"):
                exported = export_program(model, *call, dynamic_shapes)
            return compilation.run(exported)


def export(
    model: torch.nn.Module,
    inputs: Sequence[Any] = (),
    *,
    kwarg_inputs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Returns the program that ``compile`` makes of a model before anything else.

    ``compile(program, inputs)`` takes it, any number of times, as ``torch.export.save`` does.

    Args:
        model: A module in eval mode.
        inputs: The positional inputs, as for ``compile``.
        kwarg_inputs: The keyword inputs, likewise.
        dynamic_shapes: As ``torch.export.export`` takes it, for example tensors with dynamic sizes.

    Raises:
        ExportError: The model cannot be exported.
        InputError: The model is no module, or the inputs do not fit it.
        UnsupportedProgramError: The model has a function transform that cannot be applied, such as ``torch.func.grad``.
    """
    keywords = {} if kwarg_inputs is None else kwarg_inputs
    return export_program(model, inputs, keywords, dynamic_shapes)


def explain(
    model: torch.nn.Module | ExportedProgram, inputs: Sequence[Any] = (), **settings: Any
) -> CompilationReport:
    """Returns what ``compile`` would do with a model, without building anything."""
    return compile(model, inputs, **{**settings, "dryrun": True}).report
