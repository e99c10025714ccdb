"""The ``torchtrt`` command: shows packs and converters, and explains what becomes of an op or a model."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

from torchtrt import __version__
from torchtrt.errors import TorchTRTError
from torchtrt_cli.cache import add_cache_command
from torchtrt_cli.converters import add_converters_command
from torchtrt_cli.coverage import add_coverage_command
from torchtrt_cli.explain import add_explain_command
from torchtrt_cli.inspect import add_inspect_command
from torchtrt_cli.packs import add_doctor_command, add_packs_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    Args:
        arguments: The command line after the program's name; the process's own if omitted.

    Returns:
        0, or 1 when the answer is "there is none", or 2 when the question makes no sense.
    """
    parsed = _parser().parse_args(arguments)
    try:
        for library in parsed.imports:
            _import(library)
        status = int(parsed.run(parsed))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except TorchTRTError as error:
        print(f"torchtrt: {error}", file=sys.stderr)
        return 2


def _import(library: str) -> None:
    try:
        with redirect_stdout(sys.stderr):
            importlib.import_module(library)
    except Exception as error:
        raise TorchTRTError(f"--import {library}: {type(error).__name__}: {error}.") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchtrt", description="Shows which converter packs there are and what they convert."
    )
    parser.add_argument("--version", action="version", version=f"torchtrt {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_packs_command(commands)
    add_doctor_command(commands)
    add_converters_command(commands)
    add_coverage_command(commands)
    add_explain_command(commands)
    add_inspect_command(commands)
    add_cache_command(commands)
    return parser
