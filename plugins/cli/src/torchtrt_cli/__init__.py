"""The ``torchtrt`` command: what is installed, what becomes of an op or a model, and what is broken.

Nothing is imported before it is needed: the commands that help when a pack, PyTorch, or torchtrt itself is
broken must start without them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from torchtrt_cli import core_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    Args:
        arguments: The command line after the program's name; the process's own if omitted. The process is to end
            then: standard output leads to standard error, and threads that still run have five seconds.

    Returns:
        0, or 1 when the answer is "there is none", or 2 when the question makes no sense or nothing can answer it.
    """
    fault = core_file.fault()
    if fault is not None:
        return _tell(fault, sys.argv[1:] if arguments is None else arguments)
    from torchtrt_cli.command import run  # which imports torchtrt

    return run(arguments)


def _tell(fault: core_file.Fault, arguments: Sequence[str]) -> int:
    """Prints the one thing that every command can say, for the doctor as its answer; returns the exit status."""
    is_doctor = "doctor" in arguments
    if is_doctor and "--json" in arguments:
        nobody = dict.fromkeys(("pack", "distribution", "version", "location"), "")
        problem = {"code": core_file.CODE, **nobody, "what": fault.what, "hint": fault.hint}
        print(json.dumps({"problems": [problem]}, indent=2, ensure_ascii=False))
    else:
        sentence = f"torchtrt: {fault.what[0].upper()}{fault.what[1:]}. Run:"
        stream = sys.stdout if is_doctor else sys.stderr
        print(sentence, *(f"    {command}" for command in fault.commands), sep="\n", file=stream)
    return 1 if is_doctor else 2
