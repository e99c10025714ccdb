"""Runs a command: the function that the parser names, with the packs that it needs."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Sequence

from torchtrt.errors import PackWarning, TorchTRTError
from torchtrt.lazy import missing_distribution
from torchtrt.packs.problem import describe
from torchtrt_cli.output import standard_output, told_alone
from torchtrt_cli.parser import make_parser

_UNLOADED = ("no_load", "available", "search")
"""The flags of ``torchtrt packs`` with which it imports no pack."""


_PATIENCE = 5.0
"""How many seconds threads of packs have to end after the command."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command of a command line, or of the process's own, and returns its exit status."""
    if arguments is not None:
        return _run(arguments)
    status = 1
    try:
        status = _run(sys.argv[1:], is_last=True)
    finally:
        threading.Thread(target=_end, args=(status,), daemon=True).start()
    return status


def _end(status: int) -> None:
    """Ends the process if a thread keeps it from ending, with a line that names the thread."""
    main, own = threading.main_thread(), threading.current_thread()
    main.join()
    time.sleep(_PATIENCE)
    others = [thread for thread in threading.enumerate() if thread not in (main, own)]
    names = ", ".join(thread.name for thread in others if not thread.daemon)
    if names:
        with contextlib.suppress(OSError):  # standard error may be closed
            line = f"torchtrt: The command ends, although these threads still run: {names}.\n"
            os.write(2, line.encode())
        os._exit(status)


def _run(arguments: Sequence[str], is_last: bool = False) -> int:
    """Runs the command of a command line; ``is_last`` says that the process ends afterwards."""
    parsed = make_parser().parse_args(arguments)
    try:
        # Standard output is the answer's alone, whatever packs and libraries print.
        with (
            standard_output(is_last),
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
