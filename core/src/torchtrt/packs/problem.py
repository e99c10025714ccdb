"""A recorded failure: what is wrong with a pack, whose it is, and what to do."""

from __future__ import annotations

import dataclasses
import re
import traceback
from dataclasses import dataclass, field

from torchtrt.packs.info import PackInfo


def describe(error: BaseException, module: str = "") -> str:
    """Returns an exception as one line, whatever its own ``__str__`` does, with the line in a module's package."""
    try:
        text = str(error)
    except BaseException:
        text = "its message cannot be shown"
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    line = module and raised_at(error, module)
    return f"{said} ({line})" if line else said


def raised_at(error: BaseException, module: str) -> str:
    """Returns the last ``file:line`` of a module's top-level package that an exception came through, or ``""``."""
    package, line = re.split("[.:]", module)[0], ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            line = f"{frame.f_code.co_filename}:{number}"
    return line


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a pack, or a part of it, is not used as a user would expect.

    Attributes:
        what: What happened, as a clause: ``"ImportError: libfoo.so.2"``.
        hint: What to do about it, as a sentence.
        code: The kind of problem; ``docs/packs.md`` explains each.
        pack: The name of the pack, or ``""`` when the problem is of no pack in particular.
        distribution: The distribution that brought the pack.
        version: The distribution's version.
        location: The folder it is installed in.
        traceback: Where it happened, for problems that are exceptions.
    """

    what: str
    hint: str = ""
    code: str = "check-failed"
    pack: str = ""
    distribution: str = ""
    version: str = ""
    location: str = ""
    traceback: str | None = field(default=None, repr=False)

    def about(self, info: PackInfo) -> Problem:
        """Returns this problem with the pack's provenance filled in."""
        return dataclasses.replace(
            self,
            pack=info.name,
            distribution=info.distribution,
            version=info.version,
            location=info.location,
        )

    def __str__(self) -> str:
        whose = " ".join(part for part in (self.distribution, self.version) if part)
        origin = ", ".join(part for part in (whose, self.location) if part)
        subject = f"Pack {self.pack!r}" if self.pack else "Converter packs"
        if origin:
            subject += f" ({origin})"
        text = f"{subject}: {self.what}"
        if not text.endswith((".", "!", "?")):
            text += "."
        return f"{text} {self.hint}".rstrip()
