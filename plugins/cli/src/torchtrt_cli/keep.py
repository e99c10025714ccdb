"""``--keep FOLDER``: a record of a compilation, and the profile of its calls."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from torchtrt.errors import UnwritableFileError
from torchtrt_cli.output import console
from torchtrt_compiler.measuring.profiling import CallProfile
from torchtrt_compiler.record import record_compilation

TRACE = "profile.trace.json"
"""The profile in the format of Chrome's traces, which ``chrome://tracing`` and Perfetto open."""


def keeping(folder: Path | None) -> contextlib.AbstractContextManager[object]:
    """Records the compilations inside a ``with`` block into a folder; records nothing without one."""
    return contextlib.nullcontext() if folder is None else record_compilation(folder)


def keep_profile(folder: Path, profile: CallProfile) -> None:
    """Writes a profile into a folder.

    Raises:
        UnwritableFileError: The file cannot be written.
    """
    file = folder / TRACE
    text = json.dumps(profile.to_chrome_trace(), indent=1) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnwritableFileError(
            f"{file} cannot be written: {error.strerror or error}."
        ) from error


def tell_kept(folder: Path | None, as_json: bool) -> None:
    """Prints the files in a folder, unless JSON alone is printed."""
    if folder is not None and not as_json:
        files = sorted(
            path.relative_to(folder).as_posix() for path in folder.rglob("*.*") if path.is_file()
        )
        console().print(f"Kept in {folder}: {', '.join(files)}.")
