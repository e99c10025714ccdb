"""Runs a command: the function that the parser names, with the packs that it needs."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence

from torchtrt.errors import PackWarning, TorchTRTError
from torchtrt.lazy import missing_distribution
from torchtrt.packs.problem import describe
from torchtrt_cli.output import standard_output, told_alone
from torchtrt_cli.parser import make_parser

_UNLOADED = ("no_load", "available", "search")
"""The flags of ``torchtrt packs`` with which it imports no pack."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command of a command line, or of the process's own, and returns its exit status."""
    parsed = make_parser().parse_args(arguments)
    try:
        # Standard output is the answer's alone, whatever packs and libraries print.
        with (
            standard_output(),
            told_alone(),
            warnings.catch_warnings(),
        ):
            if parsed.lists_problems:
                warnings.simplefilter("ignore", PackWarning)
            if not (parsed.recovers or any(getattr(parsed, flag, False) for flag in _UNLOADED)):
                _load_packs()
            for library in parsed.imports:
                _import(library)
            module, _, function = parsed.run.partition(":")
            return int(getattr(importlib.import_module(module), function)(parsed))
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except TorchTRTError as error:
        print(f"torchtrt: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        missing = missing_distribution(error, "This command")
        if missing is None:
            raise
        print(f"torchtrt: {missing}", file=sys.stderr)
        return 2


def _load_packs() -> None:
    """Loads packs, and names each that is slow."""
    try:
        import torch  # noqa: F401
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever stops it
        message = (
            f"PyTorch cannot be imported: {describe(error)}. `torchtrt doctor` says what to do."
        )
        raise TorchTRTError(message) from error
    from torchtrt.packs import load_packs
    from torchtrt_cli.loading_effects import named_if_slow

    load_packs(named_if_slow)


def _import(library: str) -> None:
    try:
        importlib.import_module(library)
    except Exception as error:
        raise TorchTRTError(f"--import {library}: {type(error).__name__}: {error}.") from error
