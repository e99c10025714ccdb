"""Finds what is installed from metadata alone, without importing anything of it: packs, TensorRTs, front ends.

``entry_points(group=...)`` reads every distribution and fails for all when one is corrupt. Here a
broken distribution is a ``Problem`` and the others are found.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import importlib_metadata
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from torchtrt.packs.info import (
    ALL,
    ENTRY_POINT_GROUPS,
    FIRST_PARTY_TIER,
    FIRST_TIERS,
    LOCAL,
    PACKS,
    PROJECT,
    EntryPointGroup,
    PackInfo,
    is_pack_name,
    normalize,
)
from torchtrt.packs.problem import Problem, describe

_GROUPS = {group.name: group for group in ENTRY_POINT_GROUPS}

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_OBJECT = re.compile(r":[A-Za-z_]\w*$")
_REINSTALL = "Uninstall the distribution and install it again."


@dataclass(frozen=True, slots=True)
class InstalledExtension:
    """An installed pack, or another extension.

    Attributes:
        info: Who it is.
        module: The module that its entry point names.
        object_name: The name of the pack in that module; empty where the entry point names only a module with hooks.
    """

    info: PackInfo
    module: str
    object_name: str = ""

    @property
    def entry_point(self) -> str:
        """The value of the entry point."""
        return f"{self.module}:{self.object_name}" if self.object_name else self.module


@dataclass(frozen=True, slots=True)
class Scan:
    """The installed extensions.

    Attributes:
        packs: The packs in pack order, at most one of each name.
        problems: What could not be read, or is hidden by something else.
        others: The extensions of the other entry-point groups, by group and name.
    """

    packs: tuple[InstalledExtension, ...]
    problems: tuple[Problem, ...]
    others: tuple[InstalledExtension, ...] = ()


def scan(distributions: Iterable[importlib_metadata.Distribution] | None = None) -> Scan:
    """Returns the packs that are installed, whatever state the rest of the environment is in.

    Args:
        distributions: Where to look; everything on ``sys.path`` if omitted.
    """
    if distributions is None:
        distributions = cast(
            "Iterable[importlib_metadata.Distribution]", importlib_metadata.distributions()
        )
    candidates: list[InstalledExtension] = []
    problems: list[Problem] = []
    first_party: set[str] = set()
    try:
        for distribution in distributions:
            try:
                _read(distribution, candidates, problems)
                if canonicalize_name(metadata_folder(distribution).partition("-")[0]) == ALL:
                    first_party |= _required(distribution)
            except Exception as error:
                problems.append(_unreadable(distribution, error))
    except Exception as error:
        # A finder of another library failed: the packs seen so far are still good.
        what = f"the search for installed distributions broke off: {describe(error)}"
        hint = "Some packs may be missing. Look at the finders in sys.meta_path."
        problems.append(Problem(what, hint, "scan-failed", traceback=traceback.format_exc()))
    extensions = [
        _ranked(extension, first_party) for extension in _without_duplicates(candidates, problems)
    ]
    extensions.sort(
        key=lambda extension: (ENTRY_POINT_GROUPS.index(extension.info.group), extension.info.order)
    )
    packs = tuple(extension for extension in extensions if extension.info.group is PACKS)
    return Scan(packs, tuple(problems), tuple(extensions[len(packs) :]))


def _ranked(extension: InstalledExtension, first_party: set[str]) -> InstalledExtension:
    """Returns an extension with its tier: one for each of the first two packs, the next for all that torchtrt needs."""
    info = extension.info
    tier = FIRST_TIERS.get(info.name) if info.group is PACKS else None
    if tier is None and canonicalize_name(info.distribution) in first_party:
        tier = FIRST_PARTY_TIER
    return extension if tier is None else replace(extension, info=replace(info, tier=tier))


def _required(distribution: importlib_metadata.Distribution) -> set[str]:
    """Returns the names of the distributions that one requires."""
    lines = distribution.requires or ()
    return {canonicalize_name(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in lines}


def metadata_folder(distribution: object) -> str:
    """Returns the name of a distribution's metadata folder, or ``""`` for one that is not in a folder."""
    return str(getattr(getattr(distribution, "_path", None), "name", ""))


def _read(
    distribution: importlib_metadata.Distribution,
    extensions: list[InstalledExtension],
    problems: list[Problem],
) -> None:
    """Adds the entry points of a distribution to ``extensions``, and what is wrong with them to ``problems``."""
    is_pack = metadata_folder(distribution).lower().startswith(PACKS.package_name(""))
    try:
        text = distribution.read_text("entry_points.txt")
    except UnicodeDecodeError as error:
        raw = error.object.replace(b"\0", b"")
        if not (is_pack or any(group.encode() in raw for group in _GROUPS)):
            return  # It is broken, but not one of ours.
        raise
    text = (text or "").removeprefix("\ufeff")  # which Windows' editors put there
    if f"{PROJECT}." not in text.replace("\0", ""):
        if is_pack and distribution.read_text("METADATA"):  # not what a removal left behind
            what = f"it has no entry point in the group {PACKS.name}, so nothing of it is used"
            hint = "Its authors name the pack's module there, in pyproject.toml."
            info = PackInfo("", *_identity(distribution))
            problems.append(Problem(what, hint, "bad-metadata").about(info))
        return
    if "\0" in text:
        raise ValueError("its entry_points.txt is not UTF-8")
    for group, pack_name, value in _entries(text):
        info = PackInfo(pack_name, *_identity(distribution), group=group)
        module, _, object_name = value.partition(":")
        if (wrong := _misnamed(info, value)) is None:
            extensions.append(InstalledExtension(info, module, object_name))
        else:
            problems.append(wrong.about(info))


def _entries(text: str) -> Iterator[tuple[EntryPointGroup, str, str]]:
    """Yields each entry point in one of our groups: the group, name and value."""
    group = None
    for raw_line in text.splitlines():
        line = raw_line.strip()
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("["):
            group = _GROUPS.get(line.strip("[] "))
        elif group is not None:
            name, _, value = line.partition("=")
            yield group, name.strip(), value.strip()


def _identity(distribution: importlib_metadata.Distribution) -> tuple[str, str, str]:
    """Returns a distribution's name, version and folder.

    Reads two headers: ``distribution.metadata`` parses the whole file with ``email``, ten times as slow.
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
        raise ValueError("its METADATA has no Name or no Version")
    return name, version, os.path.abspath(str(distribution.locate_file("")))


def _misnamed(info: PackInfo, value: str) -> Problem | None:
    """Returns the problem with the names of an extension, which must follow from each other."""
    name, group = info.name, info.group
    if not is_pack_name(name) or name == LOCAL:
        what = f"its entry point is named {name!r}, which cannot be a {group.noun}'s name"
        hint = "Use lower-case letters, digits and single underscores, and no keyword of Python."
        return Problem(what, hint, "bad-name")
    module = _OBJECT.sub("", value) if group is PACKS else value
    if not _MODULE.fullmatch(module):
        wanted, right = "the name of a module", group.package_name(name)
        if group is PACKS:
            wanted, right = "the name of a module, or of a pack in one", f"{right}:pack"
        what = f"its entry point is {value!r}, which is not {wanted}"
        return Problem(what, f'Write {name} = "{right}" in pyproject.toml.', "bad-name")
    expected = group.distribution_name(name)
    if canonicalize_name(info.distribution) != expected:
        what = f"a {group.noun} of this name comes from {expected}, not from {info.distribution}"
        right = normalize(info.distribution)
        hint = (
            f"Name the entry point {right!r}."
            if info.distribution.lower().startswith(group.prefix)
            else f"Rename the distribution to {expected}."
        )
        return Problem(what, hint, "bad-name")
    if module.split(".")[0] != group.package_name(name):
        what = f"its entry point names the module {module!r}, outside its own package"
        return Problem(what, f"Move the code to {group.package_name(name)}.", "bad-name")
    return None


def _unreadable(distribution: importlib_metadata.Distribution, error: Exception) -> Problem:
    """Returns the problem for a distribution whose metadata cannot be read."""
    try:
        location = os.path.abspath(str(distribution.locate_file("")))
    except Exception:
        location = ""
    # The name of the metadata folder is what a user can look for when nothing in it can be read.
    what = f"the metadata of a pack cannot be read: {describe(error)}"
    return Problem(
        what,
        _REINSTALL,
        "bad-metadata",
        distribution=metadata_folder(distribution),
        location=location,
        traceback="".join(traceback.format_exception(error)),
    )


def _without_duplicates(
    extensions: list[InstalledExtension], problems: list[Problem]
) -> list[InstalledExtension]:
    """Returns one extension of each group and name: the one that Python would import, and of two versions the newer."""
    locations = list(dict.fromkeys(pack.info.location for pack in extensions))
    order = {location: position for position, location in enumerate(locations)}
    kept: dict[tuple[str, str], InstalledExtension] = {}
    by_name = sorted(extensions, key=lambda pack: _version(pack.info.version), reverse=True)
    for pack in sorted(by_name, key=lambda pack: order[pack.info.location]):
        first = kept.setdefault((pack.info.group.name, pack.info.name), pack)
        # An editable install may be seen twice, as itself and as the egg-info folder beside its sources.
        if (first.info.version, first.entry_point) != (pack.info.version, pack.entry_point):
            what = f"version {first.info.version} at {first.info.location} hides this one"
            problems.append(Problem(what, "Uninstall one of them.", "shadowed").about(pack.info))
    return list(kept.values())


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0.dev0")
