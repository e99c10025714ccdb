"""``torchtrt compile MODEL.pt2``: a program becomes engines in a file, and is compared with eager PyTorch."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.export import ExportedProgram

import torchtrt
from torchtrt.errors import SettingsError, UnsupportedProgramError
from torchtrt.packs.problem import describe as describe_error
from torchtrt.tensorrt.selection import describe
from torchtrt_cli.explain import check_uncompiled, read_program
from torchtrt_cli.file_kinds import is_torchscript, other_kind
from torchtrt_cli.keep import keeping, tell_kept
from torchtrt_cli.output import console, print_json, table
from torchtrt_cli.settings import parse_settings
from torchtrt_compiler.comparison import Difference, compare_with_eager, running_objection
from torchtrt_compiler.inputs import CallInputs, Input
from torchtrt_runtime import CompiledModule
from torchtrt_runtime.plans.description import beside
from torchtrt_runtime.plans.exporting import check_exportable
from torchtrt_runtime.serialization.files import check_place


def run(arguments: argparse.Namespace) -> int:
    """Compiles a program, writes it, and prints the report and the comparison; returns 1 if an output differs."""
    path = Path(arguments.model)
    files = [file for file in (arguments.output, arguments.engine) if file is not None]
    if not files:
        raise SettingsError(
            "compile writes a file: give --output OUT.pt2 for torchtrt.load, or --engine OUT.plan for TensorRT."
        )
    settings = parse_settings(arguments.set)
    if settings.get("dryrun"):
        raise SettingsError("dryrun=True builds nothing: `torchtrt explain` shows what it finds.")
    check_uncompiled(path, "compile")
    _check_places(path, files)
    model, inputs = _model(path, arguments.input)
    if arguments.engine is not None:
        settings = {"require_full_compilation": True, **settings}
        check_exportable(torchtrt.compile(model, inputs, **{**settings, "dryrun": True}))
    print(f"Compiling {path} for {describe()}.", file=sys.stderr)
    with keeping(arguments.keep):
        compiled = torchtrt.compile(model, inputs, **settings)
    if arguments.output is not None:
        torchtrt.save(compiled, arguments.output)
        files = [file for file in files if file != arguments.output] + [arguments.output]
    if arguments.engine is not None:
        torchtrt.export_engine(compiled, arguments.engine)
        files.append(beside(arguments.engine))
    status = _show(compiled, model, files, arguments.json)
    tell_kept(arguments.keep, arguments.json)
    return status


def _model(
    path: Path, texts: Sequence[str]
) -> tuple[torch.nn.Module | ExportedProgram, Sequence[Input]]:
    """Returns the program in a file, or a TorchScript model and its inputs.

    Raises:
        UnsupportedProgramError: The file holds neither, or PyTorch cannot read it.
        SettingsError: A text describes no input, or the program has sizes of its own.
    """
    if not path.is_file() or not is_torchscript(path):
        if texts:
            raise SettingsError(
                "--input is for a TorchScript model. The sizes of an exported program vary as it was exported: "
                "torch.export.export(model, inputs, dynamic_shapes=...)."
            )
        return read_program(path), ()
    inputs = [_input(text) for text in texts]
    if not inputs:
        raise UnsupportedProgramError(f"{path} holds no exported program. {other_kind(path)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        try:
            model = torch.jit.load(path, map_location="cpu")
        except Exception as error:
            raise UnsupportedProgramError(
                f"{path} is a TorchScript model that torch.jit.load cannot read: {describe_error(error)}. Where it has "
                "ops or classes of a library, add --import and the module that has them."
            ) from error
    return model.eval(), inputs


def _input(text: str) -> Input:
    """Returns the input that a text such as ``1-8,3,224,224:float16`` describes. Of a range, the larger is the optimum.

    Raises:
        SettingsError: The text describes none.
    """
    sizes, _, name = text.partition(":")
    ranges = [part.strip().split("-") for part in sizes.split(",") if part.strip()]
    dtype = getattr(torch, name.strip().removeprefix("torch.") or "float32", None)
    if (
        not isinstance(dtype, torch.dtype)
        or not all(bound.isdecimal() for bounds in ranges for bound in bounds)
        or not all(len(bounds) < 4 for bounds in ranges)
    ):
        raise SettingsError(
            f"--input {text}: write the sizes and the dtype, as 1,3,224,224 or 1-8,3,224,224:float16. A dynamic "
            "size is MIN-MAX or MIN-OPT-MAX."
        )
    numbers = [[int(bound) for bound in bounds] for bounds in ranges]
    if all(len(bounds) == 1 for bounds in numbers):
        return Input(tuple(bounds[0] for bounds in numbers), dtype=dtype)
    return Input(
        min_shape=tuple(bounds[0] for bounds in numbers),
        opt_shape=tuple(bounds[1] if len(bounds) == 3 else bounds[-1] for bounds in numbers),
        max_shape=tuple(bounds[-1] for bounds in numbers),
        dtype=dtype,
    )


def _check_places(model: Path, files: Sequence[Path]) -> None:
    """Checks, before anything is built, that files can be written and are different ones."""
    resolved = [file.resolve() for file in (model, *files)]
    for index, file in enumerate(files, 1):
        if resolved[index] in resolved[:index]:
            raise UnsupportedProgramError(
                f"{file} would overwrite {'the model' if resolved[index] == resolved[0] else 'the other file'}."
            )
        check_place(file)


def _show(
    compiled: CompiledModule,
    model: torch.nn.Module | ExportedProgram,
    files: Sequence[Path],
    as_json: bool,
) -> int:
    """Prints what was compiled and written, and the largest difference of each output."""
    objection = running_objection(compiled)
    differences = [] if objection else compare_with_eager(compiled, model, _examples(model))
    if as_json:
        print_json(
            {
                "files": [str(file) for file in files],
                "report": compiled.report.to_json(),
                "not_compared": objection,
                "differences": [
                    {
                        **dataclasses.asdict(difference),
                        "largest": str(difference.largest)
                        if difference.largest == float("inf")
                        else difference.largest,
                    }
                    for difference in differences
                ],
            }
        )
        return 0 if all(difference.agrees for difference in differences) else 1
    out = console()
    out.print(compiled.report)
    for file in files:
        out.print(f"Wrote {file}: {file.stat().st_size:,} bytes.")
    if objection:
        out.print(
            f"Not compared with eager PyTorch: {objection}. --set verify=reference compares the networks on the "
            "reference TensorRT."
        )
    elif differences:
        headings = (
            "output",
            "input sizes",
            "largest difference",
            "tolerance",
            "at",
            "eager",
            "compiled",
        )
        out.print(
            table(
                "Compared with eager PyTorch",
                headings,
                [_row(difference) for difference in differences],
            )
        )
    else:
        out.print("Not compared with eager PyTorch: no output is a tensor.")
    wrong = [difference for difference in differences if not difference.agrees]
    for difference in wrong:
        out.print(f"{difference.output} differs by more than its tolerance.", style="yellow")
    return 1 if wrong else 0


def _row(difference: Difference) -> tuple[str, ...]:
    return (
        difference.output,
        ", ".join(str(list(shape)) for shape in difference.sizes),
        f"{difference.largest:.3g}",
        f"{difference.tolerance:.3g}",
        "" if difference.indices is None else str(list(difference.indices)),
        difference.expected,
        difference.actual,
    )


def _examples(model: torch.nn.Module | ExportedProgram) -> CallInputs:
    examples = model.example_inputs if isinstance(model, ExportedProgram) else None
    return CallInputs((), {}) if examples is None else CallInputs(*examples)
