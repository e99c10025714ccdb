"""``torchtrt compile MODEL.pt2``: a program becomes engines in a file, and is compared with eager PyTorch."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from torch.export import ExportedProgram

import torchtrt
from torchtrt.errors import SettingsError, UnsupportedProgramError
from torchtrt.tensorrt.selection import describe
from torchtrt_cli.explain import check_uncompiled, read_program
from torchtrt_cli.keep import keeping, tell_kept
from torchtrt_cli.output import console, print_json, table
from torchtrt_cli.settings import parse_settings
from torchtrt_compiler.checking.comparison import Difference, compare_with_eager, running_objection
from torchtrt_compiler.inputs import CallInputs
from torchtrt_runtime import CompiledModule
from torchtrt_runtime.plans.description import beside
from torchtrt_runtime.plans.exporting import check_exportable
from torchtrt_runtime.serialization.files import check_place


def run(arguments: argparse.Namespace) -> int:
    """Compiles a program, writes it, and prints the report and the comparison; returns 1 if an output differs."""
    path = Path(arguments.model)
    files = [each for each in (arguments.output, arguments.engine) if each is not None]
    if not files:
        raise SettingsError(
            "compile writes a file: give --output OUT.pt2 for torchtrt.load, or --engine OUT.plan for TensorRT."
        )
    settings = parse_settings(arguments.set)
    if settings.get("dryrun"):
        raise SettingsError("dryrun=True builds nothing: `torchtrt explain` shows what it finds.")
    check_uncompiled(path, "compile")
    _check_places(path, files)
    program = read_program(path)
    if arguments.engine is not None:
        settings = {"require_full_compilation": True, **settings}
        check_exportable(torchtrt.compile(program, **{**settings, "dryrun": True}))
    print(f"Compiling {path} for {describe()}.", file=sys.stderr)
    with keeping(arguments.keep):
        compiled = torchtrt.compile(program, **settings)
    if arguments.output is not None:
        torchtrt.save(compiled, arguments.output)
        files = [each for each in files if each != arguments.output] + [arguments.output]
    if arguments.engine is not None:
        torchtrt.export_engine(compiled, arguments.engine)
        files.append(beside(arguments.engine))
    status = _show(compiled, program, files, arguments.json)
    tell_kept(arguments.keep, arguments.json)
    return status


def _check_places(model: Path, files: Sequence[Path]) -> None:
    """Checks, before anything is built, that files can be written and are different ones."""
    resolved = [each.resolve() for each in (model, *files)]
    for place, file in enumerate(files, 1):
        if resolved[place] in resolved[:place]:
            raise UnsupportedProgramError(
                f"{file} would overwrite {'the model' if resolved[place] == resolved[0] else 'the other file'}."
            )
        check_place(file)


def _show(
    compiled: CompiledModule, program: ExportedProgram, files: Sequence[Path], as_json: bool
) -> int:
    """Prints what was compiled and written, and the largest difference of each output."""
    objection = running_objection(compiled)
    found = [] if objection else compare_with_eager(compiled, program, _examples(program))
    if as_json:
        print_json(
            {
                "files": [str(each) for each in files],
                "report": compiled.report.to_json(),
                "not_compared": objection,
                "differences": [
                    {
                        **dataclasses.asdict(each),
                        "largest": str(each.largest)
                        if each.largest == float("inf")
                        else each.largest,
                    }
                    for each in found
                ],
            }
        )
        return 0 if all(each.agrees for each in found) else 1
    out = console()
    out.print(compiled.report)
    for file in files:
        out.print(f"Wrote {file}: {file.stat().st_size:,} bytes.")
    if objection:
        out.print(
            f"Not compared with eager PyTorch: {objection}. --set verify=reference compares the networks on the "
            "reference TensorRT."
        )
    elif found:
        headings = (
            "output",
            "input sizes",
            "largest difference",
            "tolerance",
            "at",
            "eager",
            "compiled",
        )
        out.print(table("Compared with eager PyTorch", headings, [_row(each) for each in found]))
    else:
        out.print("Not compared with eager PyTorch: no output is a tensor.")
    wrong = [each for each in found if not each.agrees]
    for each in wrong:
        out.print(f"{each.output} differs by more than its tolerance.", style="yellow")
    return 1 if wrong else 0


def _row(each: Difference) -> tuple[str, ...]:
    return (
        each.output,
        ", ".join(str(list(shape)) for shape in each.sizes),
        f"{each.largest:.3g}",
        f"{each.tolerance:.3g}",
        "" if each.place is None else str(list(each.place)),
        each.expected,
        each.actual,
    )


def _examples(program: ExportedProgram) -> CallInputs:
    return (
        CallInputs((), {})
        if program.example_inputs is None
        else CallInputs(*program.example_inputs)
    )
