"""Adopts the modules that installed distributions name in the group of entry points ``torchtrt.torch_tensorrt``."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from contextvars import Context
from importlib.metadata import Distribution, EntryPoint

from torchtrt.errors import PackWarning
from torchtrt.packs import PackInfo, Problem
from torchtrt.packs.problem import describe
from torchtrt.packs.state import record
from torchtrt_converters_torch_tensorrt.adoption import adopt_as


def adopt_entry_points(entry_points: Sequence[tuple[EntryPoint, Distribution]]) -> None:
    """Adopts each module as a pack of its own; one that cannot be adopted is a problem, and no more."""
    for entry, distribution in sorted(entry_points, key=lambda pair: pair[0].name):
        info = PackInfo(entry.name, distribution.name, distribution.version)
        try:
            # The pack that is being loaded does not matter: this is a pack of its own.
            Context().run(adopt_as, entry.module, info)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a module raises stops only the module
            what = f"{entry.module} is not adopted: {describe(error)}"
            text, hint = traceback.format_exc(), f"Repair or update {info.distribution}."
            try:
                record(Problem(what, hint, "import-failed", traceback=text).about(info))
            except PackWarning as warning:  # where warnings are errors
                print(f"PackWarning: {warning}", file=sys.stderr)
