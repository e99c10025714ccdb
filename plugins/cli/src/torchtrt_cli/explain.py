"""``torchtrt explain MODEL.pt2|OP``: what becomes of a model's nodes, or what is known about an op, and why."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from torchtrt.contract import qualified_function
from torchtrt.errors import (
    MissingDistributionError,
    UnknownTargetError,
    UnreadableFileError,
    UnsupportedProgramError,
)
from torchtrt.packs import loaded_packs, problems
from torchtrt.packs.problem import Problem, describe
from torchtrt.registry import decompositions
from torchtrt.targets import (
    Target,
    canonical_spelling,
    op_of_function,
    parse_targets,
    qualified_name,
)
from torchtrt.torch_internals import OpOverload
from torchtrt_cli.converters import candidate_table, candidates_as_json, candidates_for
from torchtrt_cli.coverage import coverages_of
from torchtrt_cli.file_kinds import other_kind
from torchtrt_cli.keep import keep_profile, keeping, tell_kept
from torchtrt_cli.output import console, print_json
from torchtrt_cli.packs import problem_as_json
from torchtrt_cli.settings import parse_settings
from torchtrt_compiler.catalogue import available_packs
from torchtrt_compiler.coverage import share
from torchtrt_compiler.lowering.decomposition import decomposition_for
from torchtrt_runtime.serialization.inspection import inspect_file


def run(arguments: argparse.Namespace) -> int:
    """Prints the explanation of a model or of an op."""
    subject: str = arguments.subject
    if subject.endswith(".pt2"):
        return explain_model(Path(subject), arguments)
    if Path(subject).exists():
        raise UnsupportedProgramError(
            f"{subject} is no op, and no program: those are files of torch.export.save whose names end in .pt2. "
            f"{other_kind(Path(subject)) or ''}".rstrip()
        )
    if is_like_a_file(subject):
        raise UnsupportedProgramError(
            f"There is no file {subject}. explain takes a program of torch.export.save in a file whose name ends in "
            ".pt2, or an op, such as aten.gelu."
        )
    flags = {"--html": arguments.html, "--set": arguments.set, "--keep": arguments.keep}
    for flag, value in flags.items():
        if value:
            raise UnsupportedProgramError(
                f"{flag} is for a model, a file that ends in .pt2, and {subject} is not."
            )
    return explain_op(subject, arguments.json)


def is_like_a_file(subject: str) -> bool:
    """Returns whether an argument names a file: it has a folder, or the suffix of a model."""
    return "/" in subject or "\\" in subject or Path(subject).suffix in _SUFFIXES


_SUFFIXES = {
    ".pt",
    ".pth",
    ".ts",
    ".onnx",
    ".plan",
    ".engine",
    ".trt",
    ".ep",
    ".zip",
    ".safetensors",
    ".bin",
}


def explain_model(path: Path, arguments: argparse.Namespace) -> int:
    """Prints, or writes as a page, which converters a saved program's nodes get, and what stays in PyTorch and why."""
    from torchtrt_compiler.api import compile
    from torchtrt_compiler.record import check_empty

    as_json: bool = arguments.json
    page: Path | None = arguments.html
    if page is not None and page.resolve() == path.resolve():
        raise UnsupportedProgramError(f"--html {page} would overwrite the model.")
    if arguments.keep is not None:
        check_empty(arguments.keep)
    settings = parse_settings(arguments.set)
    check_uncompiled(path, "explain")
    program = read_program(path)
    compiled = compile(program, **{**settings, "dryrun": True})
    report = compiled.report
    if page is not None:
        from torchtrt_cli.page import write_page

        write_page(compiled, path.name, page)
    if as_json:
        print_json(report.to_json())
    elif page is not None:
        converted = sum(block.nodes for block in report.blocks)
        console().print(
            f"Wrote {page}: {converted} nodes in engines, {len(report.in_torch)} in PyTorch."
        )
    else:
        console().print(report)
    if arguments.keep is not None:
        keep(program, settings, arguments.keep)
        tell_kept(arguments.keep, as_json)
    return 0


def keep(program: ExportedProgram, settings: Mapping[str, Any], folder: Path) -> None:
    """Records the compilation of a program in a folder, and the profile of its calls where its engines run here."""
    from torchtrt_compiler.api import compile
    from torchtrt_compiler.comparison import running_objection
    from torchtrt_compiler.measuring.profiling import profile

    with keeping(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the dry run has warned already
        compiled = compile(program, **settings)
    if compiled.settings.dryrun:
        return
    if objection := running_objection(compiled):
        print(f"torchtrt: There is no profile: {objection}.", file=sys.stderr)
        return
    args, kwargs = program.example_inputs or ((), {})
    keep_profile(folder, profile(compiled, *args, **kwargs))


def check_uncompiled(path: Path, command: str) -> None:
    """Checks that a file is no compiled model.

    Args:
        path: The file.
        command: The command that takes programs.

    Raises:
        UnsupportedProgramError: It is one.
    """
    if is_saved_model(path):
        raise UnsupportedProgramError(
            f"{path} is compiled already: `torchtrt inspect {path}` shows what it holds, and {command} takes a "
            "program of torch.export.save."
        )


def read_program(path: Path) -> ExportedProgram:
    """Returns the program that a file of ``torch.export.save`` holds.

    Raises:
        UnsupportedProgramError: There is no such file, or it holds none.
    """
    if not path.exists():
        raise UnsupportedProgramError(f"There is no file {path}.")
    if (kind := other_kind(path)) is not None:
        raise UnsupportedProgramError(f"{path} holds no exported program. {kind}")
    with _logged_errors() as logged:
        try:
            return torch.export.load(path)
        except Exception as error:
            said = describe(next(iter(logged), error)).rstrip(".")
            raise UnsupportedProgramError(
                f"{path} cannot be opened as an exported program: {said}. Make it with "
                "torch.export.save(torch.export.export(model, inputs), path); where it has ops or classes of a "
                "library, add --import and the module that has them."
            ) from error


@contextlib.contextmanager
def _logged_errors() -> Iterator[list[BaseException]]:
    """Keeps the errors that PyTorch logs while it reads a file: what it raises then does not contain the cause."""
    errors: list[BaseException] = []

    def keep(record: logging.LogRecord) -> bool:
        errors.extend(error for error in (record.exc_info or ())[1:2] if error is not None)
        return False

    loggers = [logging.getLogger(name) for name in _READERS]
    for logger in loggers:
        logger.addFilter(keep)
    try:
        yield errors
    finally:
        for logger in loggers:
            logger.removeFilter(keep)


_READERS = ("torch.export", "torch.export.pt2_archive._package")


def is_saved_model(path: Path) -> bool:
    """Returns whether a file is of ``torchtrt.save``, as far as can be seen here."""
    try:
        inspect_file(path)
    except (UnreadableFileError, MissingDistributionError):
        return False
    return True


def explain_op(op: str, as_json: bool) -> int:
    """Prints an op's candidates and decompositions and, if it has no converter, the packs that are not in use."""
    try:
        candidates = candidates_for(op)
    except UnknownTargetError as error:
        lines = _installations(_available([canonical_spelling(op)]))
        raise UnknownTargetError("\n".join((str(error), *lines))) from error
    by_name = {qualified_name(target): _decomposition(target) for target in parse_targets(op)}
    available = _available(by_name)
    decomposed = {name: by_name[name] for name in sorted(by_name) if by_name[name]}
    covered = {
        pack: {name: share(of_op.letters()) for name, of_op in coverage.ops.items()}
        for pack, coverage in coverages_of(by_name).items()
    }
    in_use = {loaded.info.name for loaded in loaded_packs()}
    unused = [problem for problem in problems() if problem.pack not in in_use]
    status = 0 if candidates else 1
    if as_json:
        print_json(
            {
                "op": op,
                "converters": {name: candidates_as_json(candidates[name]) for name in candidates},
                "decompositions": decomposed,
                "coverage": covered,
                "available": available,
                "problems": [problem_as_json(problem) for problem in unused],
            }
        )
        return status
    out = console()
    if candidates:
        out.print(candidate_table(candidates))
    else:
        for line in _without_converter(op, unused):
            out.print(line)
    for name, whose in decomposed.items():
        out.print(f"{name} is decomposed {whose}")
    for line in _installations(available):
        out.print(line)
    for line in _coverage_lines(covered):
        out.print(line)
    return status


def _without_converter(op: str, unused: Iterable[Problem]) -> Iterator[str]:
    """Yields what to look at for an op without a converter: its schema, the op that it calls, and unused packs."""
    yield f"No pack has a converter for {op}."
    for target in parse_targets(op):
        if isinstance(target, OpOverload) and not target._schema.is_mutable:
            yield f"A converter or decomposition of it has the parameters of {target._schema}"
    if called := op_of_function(op):
        yield f"{op} calls {called}, which graphs have in its place: see torchtrt explain {called}"
    for problem in unused:
        yield f"not loaded: {problem}"


def _available(names: Iterable[str]) -> dict[str, list[str]]:
    """Returns for each of the ops that packs provide which are not installed the distributions of these packs."""
    catalogue = available_packs()
    distributions = {
        name: [provider.distribution for provider in catalogue.providers(name)] for name in names
    }
    return {name: distributions[name] for name in sorted(distributions) if distributions[name]}


def _installations(available: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns a line for each op of ``_available``."""
    return [f"{op}: install {' or '.join(names)}" for op, names in available.items()]


def _coverage_lines(covered: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yields a sentence for each pack and op: the share of PyTorch's samples that the pack converts."""
    for pack, shares in covered.items():
        for name, converted in shares.items():
            samples = (
                f"converts {converted}" if converted != "-" else "has nothing to convert in any"
            )
            yield f"{pack} {samples} of PyTorch's samples of {name}: see torchtrt coverage {name}"


def _decomposition(target: Target) -> str | None:
    """Returns whose decomposition of an op would be used when no converter accepts it."""
    if isinstance(target, OpOverload) and target._schema.is_mutable:
        return None  # Graphs are functional before anything is decomposed.
    ours = decompositions().get(target)
    if ours is not None:
        function, pack = ours
        return f"by {qualified_function(function)} of {pack.name} ({pack.origin})"
    return "by PyTorch's own decomposition" if decomposition_for(target) is not None else None
