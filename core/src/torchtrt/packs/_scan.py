"""Finds the installed packs from metadata alone, without importing anything of theirs.

``entry_points(group=...)`` reads every distribution and fails for all when one is corrupt. Here a
broken distribution is a :class:`Problem` and the others are found.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import importlib_metadata
from packaging.version import InvalidVersion, Version

from torchtrt.packs._info import (
    DISTRIBUTION_PREFIX,
    LOCAL,
    PackInfo,
    distribution_name,
    is_pack_name,
    normalise,
    package_name,
    tier_of,
)
from torchtrt.packs._problem import Problem, describe

GROUP = "torchtrt.converters"

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_REINSTALL = "Uninstall the distribution and install it again."


@dataclass(frozen=True, slots=True)
class FoundPack:
    """An installed pack: who it is, and the module that its entry point names."""

    info: PackInfo
    module: str


@dataclass(frozen=True, slots=True)
class Scan:
    """What is installed.

    Attributes:
        packs: The packs in pack order, at most one of each name.
        problems: What could not be read, or is hidden by something else.
    """

    packs: tuple[FoundPack, ...]
    problems: tuple[Problem, ...]


def scan(distributions: Iterable[importlib_metadata.Distribution] | None = None) -> Scan:
    """Returns the packs that are installed, whatever state the rest of the environment is in.

    Args:
        distributions: Where to look; everything on ``sys.path`` if omitted.
    """
    if distributions is None:
        distributions = cast(
            "Iterable[importlib_metadata.Distribution]", importlib_metadata.distributions()
        )
    found: list[FoundPack] = []
    problems: list[Problem] = []
    try:
        for distribution in distributions:
            try:
                _read(distribution, found, problems)
            except Exception as error:
                problems.append(_unreadable(distribution, error))
    except Exception as error:
        # A finder of another library failed: the packs seen so far are still good.
        what = f"the search for installed distributions broke off: {describe(error)}"
        hint = "Some packs may be missing. Look at the finders in sys.meta_path."
        problems.append(Problem(what, hint, "scan-failed", traceback=traceback.format_exc()))
    packs = _without_duplicates(found, problems)
    return Scan(tuple(sorted(packs, key=lambda pack: pack.info.order)), tuple(problems))


def _read(
    distribution: importlib_metadata.Distribution,
    found: list[FoundPack],
    problems: list[Problem],
) -> None:
    try:
        text = distribution.read_text("entry_points.txt")
    except UnicodeDecodeError as error:
        if GROUP.encode() not in error.object:
            return  # It is broken, but it is no pack.
        raise
    if not text or GROUP not in text:
        return
    name, version, location = _identity(distribution)
    for pack_name, module in _entries(text):
        info = PackInfo(pack_name, name, version, location, tier_of(pack_name))
        wrong = _misnamed(info, module)
        if wrong is None:
            found.append(FoundPack(info, module))
        else:
            problems.append(wrong.about(info))


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Yields the name and value of each entry point in our group."""
    group = ""
    for raw_line in text.splitlines():
        line = raw_line.strip()
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("["):
            group = line.strip("[] ")
        elif group == GROUP:
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()


def _identity(distribution: importlib_metadata.Distribution) -> tuple[str, str, str]:
    """Returns a distribution's name, version and folder.

    Reads two headers: ``distribution.metadata`` parses the whole file with :mod:`email`, ten times
    as slow.
    """
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    headers: dict[str, str] = {}
    for line in text.splitlines():
        if not line:
            break
        key, _, value = line.partition(":")
        headers.setdefault(key.lower(), value.strip())
    name, version = headers.get("name"), headers.get("version")
    if not name or not version:
        message = "its METADATA has no Name or no Version"
        raise ValueError(message)
    return name, version, os.path.abspath(str(distribution.locate_file("")))


def _misnamed(info: PackInfo, module: str) -> Problem | None:
    """Returns what is wrong with the names of a pack, of which each follows from the others."""
    name = info.name
    if not is_pack_name(name) or name == LOCAL:
        what = f"its entry point is named {name!r}, which cannot be a pack's name"
        hint = "Use lower-case letters, digits and single underscores."
        return Problem(what, hint, "bad-name")
    if not _MODULE.fullmatch(module):
        what = f"its entry point is {module!r}, which is not the name of a module"
        return Problem(what, f"Write {package_name(name)}._pack.", "bad-name")
    expected = distribution_name(name)
    if re.sub(r"[-_.]+", "-", info.distribution).lower() != expected:
        what = f"a pack of this name comes from {expected}, not from {info.distribution}"
        right = normalise(info.distribution)
        hint = (
            f"Name the entry point {right!r}."
            if info.distribution.lower().startswith(DISTRIBUTION_PREFIX)
            else f"Rename the distribution to {expected}."
        )
        return Problem(what, hint, "bad-name")
    if module.split(".")[0] != package_name(name):
        what = f"its entry point names the module {module!r}, outside its own package"
        return Problem(what, f"Move the code to {package_name(name)}.", "bad-name")
    return None


def _unreadable(distribution: importlib_metadata.Distribution, error: Exception) -> Problem:
    try:
        location = os.path.abspath(str(distribution.locate_file("")))
    except Exception:
        location = ""
    # The name of the metadata folder is what a person can look for when nothing in it can be read.
    folder = getattr(distribution, "_path", None)
    what = f"the metadata of a pack cannot be read: {describe(error)}"
    return Problem(
        what,
        _REINSTALL,
        "bad-metadata",
        distribution=getattr(folder, "name", ""),
        location=location,
        traceback="".join(traceback.format_exception(error)),
    )


def _without_duplicates(found: list[FoundPack], problems: list[Problem]) -> list[FoundPack]:
    """Returns one pack of each name: what Python would import, and of two versions there the newer."""
    places = list(dict.fromkeys(pack.info.location for pack in found))
    order = {location: position for position, location in enumerate(places)}
    kept: dict[str, FoundPack] = {}
    by_name = sorted(found, key=lambda pack: _version(pack.info.version), reverse=True)
    for pack in sorted(by_name, key=lambda pack: order[pack.info.location]):
        first = kept.setdefault(pack.info.name, pack)
        # An editable install may be seen twice, as itself and as the egg-info folder beside its
        # sources.
        if (first.info.version, first.module) != (pack.info.version, pack.module):
            what = f"version {first.info.version} at {first.info.location} hides this one"
            problems.append(Problem(what, "Uninstall one of them.", "shadowed").about(pack.info))
    return list(kept.values())


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0.dev0")
