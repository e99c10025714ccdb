"""Adopts the modules that installed distributions name in the group of entry points ``torchtrt.torch_tensorrt``."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from contextvars import Context
from importlib.metadata import EntryPoint

from torchtrt.errors import PackWarning
from torchtrt.packs import Problem
from torchtrt.packs.problem import describe
from torchtrt.packs.state import record
from torchtrt_converters_torch_tensorrt.adoption import adopt


def adopt_entry_points(found: Sequence[EntryPoint]) -> None:
    """Adopts each module as a pack of its own; one that cannot be adopted is a problem, and no more."""
    for entry in found:
        who = entry.dist.name if entry.dist is not None else entry.name
        try:
            Context().run(
                adopt, entry.module
            )  # whose turn it is is not ours: it is a pack of its own
        except KeyboardInterrupt:
            raise
        except (
            BaseException
        ) as error:  # As at loading: whatever a module raises stops only the module.
            problem = Problem(
                f"{entry.module} of {who} is not adopted: {describe(error)}",
                f"Repair or update {who}.",
                "import-failed",
                pack=entry.name,
                distribution=who,
                traceback=traceback.format_exc(),
            )
            try:
                record(problem)
            except PackWarning as warning:  # as at loading, where warnings are errors
                print(f"PackWarning: {warning}", file=sys.stderr)
