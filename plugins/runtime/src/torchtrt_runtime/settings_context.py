"""``torchtrt.runtime_settings``: other runtime settings for a part of a program."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchtrt.errors import SettingsError, did_you_mean
from torchtrt_runtime.modules.compiled import CompiledModule, check_compiled
from torchtrt_runtime.runtime_settings import RuntimeSettings


@contextmanager
def runtime_settings(compiled: CompiledModule, **changes: Any) -> Iterator[RuntimeSettings]:
    """Changes runtime settings of a compiled model for the block of ``with``, and restores them at its end.

    They are the model's, so calls in other threads see them too.

    Args:
        compiled: What ``torchtrt.compile``, ``torchtrt.load`` or ``torchtrt.engine_module`` returned.
        changes: Fields of ``RuntimeSettings``; the other fields stay.

    Yields:
        The settings in the block.

    Raises:
        InputError: ``compiled`` is something else.
        SettingsError: There is no such field, a value is unusable, or the engines cannot use it.
    """
    check_compiled(compiled, "runtime_settings")
    fields = [field.name for field in dataclasses.fields(RuntimeSettings)]
    for name in changes.keys() - {*fields}:
        advice = did_you_mean(name, fields, f"Its fields are {', '.join(fields)}.")
        raise SettingsError(f"RuntimeSettings has no field {name!r}. {advice}")
    before = compiled.runtime_settings
    compiled.runtime_settings = dataclasses.replace(before, **changes)
    try:
        yield compiled.runtime_settings
    finally:
        compiled.runtime_settings = before
