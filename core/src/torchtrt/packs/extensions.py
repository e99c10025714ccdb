"""Imports the installed extensions other than packs on first use: implementations of TensorRT and front ends."""

from __future__ import annotations

import importlib
import threading
import traceback
from types import ModuleType

from torchtrt.packs.info import EntryPointGroup
from torchtrt.packs.problem import Problem, describe
from torchtrt.packs.scan import InstalledExtension
from torchtrt.packs.state import current_packs, record

_lock = threading.RLock()
_imported: dict[InstalledExtension, ModuleType | str] = {}
"""The module of each extension that was asked for, or why it cannot be imported."""


def installed(group: EntryPointGroup) -> dict[str, InstalledExtension]:
    """Returns the installed extensions of an entry-point group by name, disabled ones included."""
    return {
        extension.info.name: extension
        for extension in current_packs().others
        if extension.info.group is group
    }


def module_of(extension: InstalledExtension) -> ModuleType | str:
    """Returns the module that an extension's entry point names, or why it is not in use: it is disabled, or broken.

    It is imported once; a failure is recorded as a problem.
    """
    if reason := current_packs().disabled.get(extension.info.name):
        return reason
    with _lock:
        if extension not in _imported:
            try:
                _imported[extension] = importlib.import_module(extension.module)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit, and whatever else it may raise
                what, hint = describe(error), f"Repair or update {extension.info.distribution}."
                problem = Problem(what, hint, "import-failed", traceback=traceback.format_exc())
                _imported[extension] = what
                record(problem.about(extension.info))
        return _imported[extension]
