"""Imports the installed extensions other than packs on first use: implementations of TensorRT and front ends."""

from __future__ import annotations

import importlib
import threading
import traceback
from types import ModuleType

from torchtrt.packs.info import EntryPointGroup
from torchtrt.packs.problem import Problem, describe
from torchtrt.packs.scan import InstalledExtension
from torchtrt.packs.standard_streams import output_as_errors
from torchtrt.packs.state import current_packs, record

_lock = threading.RLock()
_imported: dict[InstalledExtension, ModuleType | Problem] = {}


def installed(group: EntryPointGroup) -> dict[str, InstalledExtension]:
    """Returns the installed extensions of an entry-point group by name, disabled ones included."""
    return {found.info.name: found for found in current_packs().others if found.info.group is group}


def module_of(found: InstalledExtension) -> ModuleType | str:
    """Returns the module that an extension's entry point names, or why it is not in use: it is disabled, or broken.

    It is imported once; a failure is recorded as a problem.
    """
    if reason := current_packs().disabled.get(found.info.name):
        return reason
    outcome = _import(found)
    return outcome.what if isinstance(outcome, Problem) else outcome


def _import(found: InstalledExtension) -> ModuleType | Problem:
    """Returns the module of an installed extension, or why it cannot be imported. It is tried once."""
    with _lock:
        if found not in _imported:
            try:
                with output_as_errors():
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
