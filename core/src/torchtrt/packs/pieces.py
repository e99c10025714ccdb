"""Imports what is installed behind the other doors, when it is first needed: TensorRTs and front ends."""

from __future__ import annotations

import importlib
import sys
import threading
import traceback
from contextlib import redirect_stdout
from types import ModuleType

from torchtrt.packs.info import Door
from torchtrt.packs.problem import Problem, describe
from torchtrt.packs.scan import FoundPack
from torchtrt.packs.state import current_packs, record

_lock = threading.RLock()
_imported: dict[FoundPack, ModuleType | Problem] = {}


def installed(door: Door) -> dict[str, FoundPack]:
    """Returns what is installed behind a door, by name, disabled or not."""
    return {found.info.name: found for found in current_packs().others if found.info.door is door}


def module_of(found: FoundPack) -> ModuleType | str:
    """Returns the module that a piece's entry point names, or why it is not in use: it is disabled, or broken.

    It is imported once; a failure is recorded as a problem.
    """
    if reason := current_packs().disabled.get(found.info.name):
        return reason
    outcome = _import(found)
    return outcome.what if isinstance(outcome, Problem) else outcome


def _import(found: FoundPack) -> ModuleType | Problem:
    """Returns the module of an installed plugin, or why it cannot be imported. It is tried once."""
    with _lock:
        if found not in _imported:
            try:
                with redirect_stdout(sys.stderr):
                    _imported[found] = importlib.import_module(found.module)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit, and whatever else it may raise
                hint = f"Repair or update {found.info.distribution}."
                problem = Problem(
                    describe(error), hint, "import-failed", traceback=traceback.format_exc()
                ).about(found.info)
                _imported[found] = problem
                record(problem)
        return _imported[found]
