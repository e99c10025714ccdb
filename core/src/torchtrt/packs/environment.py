"""The environment variables: which packs to load, to skip and to try first, how strict to be; and unknown variables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torchtrt.errors import did_you_mean
from torchtrt.packs.info import LOCAL, normalize
from torchtrt.packs.problem import Problem

ONLY = "TORCHTRT_PACKS"
DISABLE = "TORCHTRT_PACKS_DISABLE"
PREFER = "TORCHTRT_PACKS_PREFER"
STRICT = "TORCHTRT_PACKS_STRICT"
_PREFIX = "TORCHTRT_"
_KNOWN = frozenset({
    ONLY, DISABLE, PREFER, STRICT,
    "TORCHTRT_TENSORRT", "TORCHTRT_CACHE", "TORCHTRT_CACHE_SIZE", "TORCHTRT_CATALOGUE",
    "TORCHTRT_RELEASE",
})  # fmt: skip
"""The variables of all distributions: one that no module reads would be without effect, and without a word."""

_SWITCH = {"1": True, "true": True, "0": False, "false": False, "": False}


@dataclass(frozen=True, slots=True)
class Selection:
    """The environment's wishes, as pack names.

    Attributes:
        only: The packs to load, or ``None`` for all.
        disabled: Packs that are never imported.
        preferred: Packs whose converters are tried first, in this order.
        preferred_for: Ops, as they were written, and for each the pack whose converters are tried first.
        strict: Whether a problem is an error.
        problems: Values that make no sense, and variables that do not exist.
    """

    only: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()
    preferred: tuple[str, ...] = ()
    preferred_for: tuple[tuple[str, str], ...] = ()
    strict: bool = False
    problems: tuple[Problem, ...] = ()

    def why_not(self, pack: str) -> str | None:
        """Returns why ``pack`` is not to be imported, or ``None`` if it is."""
        if pack in self.disabled:
            return f"disabled by {DISABLE}"
        if self.only is not None and pack not in self.only:
            return f"not listed in {ONLY}"
        return None

    def unknown_names(self, pack_names: Iterable[str]) -> Iterator[Problem]:
        """Yields a problem for every name that is no pack's, with the closest name that is."""
        candidates = sorted({*pack_names, LOCAL})
        for variable, names in (
            (ONLY, sorted(self.only or ())),
            (DISABLE, sorted(self.disabled)),
            (PREFER, dict.fromkeys((*self.preferred, *(pack for _, pack in self.preferred_for)))),
        ):
            for name in names:
                if name not in candidates:
                    installed = f"Installed packs: {', '.join(candidates)}."
                    hint = did_you_mean(name, candidates, installed)
                    what = f"{variable} names {name!r}, but no such pack is installed"
                    yield Problem(what, hint, "unknown-name")


def read_selection(environ: Mapping[str, str]) -> Selection:
    """Returns what the environment asks for.

    Names may be a pack's or a distribution's, in any spelling, separated by commas or spaces. An
    empty ``TORCHTRT_PACKS`` means no packs; unset, it means all.
    """
    only = environ.get(ONLY)
    problems = list(_unknown_variables(environ))
    strict = _SWITCH.get(environ.get(STRICT, "").strip().lower())
    if strict is None:
        what = f"{STRICT}={environ[STRICT]!r} is neither on nor off"
        problems.append(Problem(what, "Set it to 1 or 0; it counts as 0 now.", "unknown-value"))
    preferred, pairs = [], {}
    for word in _words(environ.get(PREFER, "")):
        op, is_pair, name = word.rpartition("=")
        if not is_pair:
            preferred.append(normalize(name))
        elif op and name:
            pairs[op] = normalize(name)
        else:
            what = f"{PREFER} has {word!r}, which is neither a pack nor an op and a pack"
            problems.append(Problem(what, "Write aten.gelu=my_ops.", "unknown-value"))
    return Selection(
        only=None if only is None else frozenset(_names(only)),
        disabled=frozenset(_names(environ.get(DISABLE, ""))),
        preferred=tuple(dict.fromkeys(preferred)),
        preferred_for=tuple(pairs.items()),
        strict=bool(strict),
        problems=tuple(problems),
    )


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yields a problem for each variable that looks like one of ours and is not, with the closest name that is."""
    name_by_sorted_words = {_in_order(name): name for name in sorted(_KNOWN)}
    for name in sorted(environ):
        if name.startswith(_PREFIX) and name not in _KNOWN:
            close = difflib.get_close_matches(_in_order(name), name_by_sorted_words, n=1)
            shown = name if name.isprintable() else repr(name)
            all_of_them = f"The variables are {', '.join(name_by_sorted_words.values())}."
            hint = f"Did you mean {name_by_sorted_words[close[0]]}?" if close else all_of_them
            what = f"the environment variable {shown} has no effect, because torchtrt has none of this name"
            yield Problem(what, hint, "unknown-variable")


def _in_order(name: str) -> str:
    """Returns what follows the prefix, with its words in alphabetical order: users mix them up."""
    return "_".join(sorted(name.removeprefix(_PREFIX).split("_")))


def _names(text: str) -> list[str]:
    return [normalize(name) for name in _words(text)]


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text) if word]
