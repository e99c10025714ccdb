"""Faults of an installation, found in metadata alone: neither PyTorch nor a pack is imported."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from torchtrt.packs.problem import Problem, describe
from torchtrt.packs.scan import metadata_folder
from torchtrt_cli import core_file

OURS = re.compile(r"torchtrt-.+")
"""The names of distributions of torchtrt, and of packs."""
WATCHED = re.compile(r"torchtrt-.+|torch|tensorrt([-_].+)?|pluggy")
"""The distributions that are a problem if there are two of them."""

UNTESTED = (
    " No test has run with this PyTorch. torchtrt uses parts of PyTorch that have no public name, and where they have "
    "changed, imports or compilations raise errors."
)
"""The meaning of a PyTorch whose version the core does not declare."""


@dataclass(frozen=True)
class Piece:
    """An installed distribution of torchtrt, or a pack.

    Attributes:
        name: The distribution's name.
        version: Its version.
        location: The folder that it is installed in or, of an editable one, that it is worked on in.
        editable: Whether it is an editable install.
    """

    name: str
    version: str
    location: str
    editable: bool

    def __str__(self) -> str:
        return f"{self.name} {self.version}" + (
            f" (editable, {self.location})" if self.editable else ""
        )


def pieces() -> tuple[Piece, ...]:
    """Returns the installed distributions of torchtrt, packs among them, by name."""
    by_name: dict[str, Piece] = {}
    for distribution in _readable():
        name = canonicalize_name(distribution.metadata["Name"])
        if OURS.fullmatch(name) and name not in by_name:
            source = _editable_source(distribution)
            location = source or str(distribution.locate_file(""))
            by_name[name] = Piece(name, distribution.version, location, source is not None)
    return tuple(by_name[name] for name in sorted(by_name))


def installation_problems() -> tuple[Problem, ...]:
    """Returns what is wrong with what is installed: unreadable, there twice, not what others require, or a danger.

    The danger is the placeholder that package indexes have under the project's name.
    """
    threat = core_file.threat()
    threats = [] if threat is None else [Problem(threat.what, threat.hint, core_file.CODE)]
    return (*_unreadable(), *_twice(), *_unmet(), *threats)


def _unreadable() -> Iterator[Problem]:
    """Yields the distributions whose entry points cannot be read: PyTorch's own import reads all of them."""
    for distribution in importlib.metadata.distributions():
        try:
            tuple(distribution.entry_points)
        except Exception as error:
            yield Problem(
                f"its entry_points.txt cannot be read: {describe(error)}",
                "This stops `import torch`, whatever it belongs to. Uninstall the distribution and install it again; "
                "until then TORCH_DEVICE_BACKEND_AUTOLOAD=0 gets past it.",
                "bad-metadata",
                distribution=metadata_folder(distribution),
                location=str(distribution.locate_file("")),
            )


def _twice() -> Iterator[Problem]:
    """Yields the distributions that have a second copy on Python's path, behind the first."""
    first: dict[str, Distribution] = {}
    for distribution in _readable():
        name = canonicalize_name(distribution.metadata["Name"])
        if not WATCHED.fullmatch(name):
            continue
        kept = first.setdefault(name, distribution)
        same_version = kept.version == distribution.version
        # An editable install may be seen twice: as itself, and as the egg-info beside its sources.
        if kept is distribution or (
            same_version and metadata_folder(distribution).endswith(".egg-info")
        ):
            continue
        if same_version and _location(kept) == _location(
            distribution
        ):  # a folder is on the path twice
            continue
        yield Problem(
            f"version {kept.version} at {kept.locate_file('')} hides this one",
            "Uninstall one of them.",
            "shadowed",
            distribution=name,
            version=distribution.version,
            location=str(distribution.locate_file("")),
        )


def _unmet() -> Iterator[Problem]:
    """Yields what distributions of torchtrt require and do not get."""
    versions = {
        canonicalize_name(distribution.metadata["Name"]): distribution.version
        for distribution in reversed([*_readable()])
    }
    for distribution in _readable():
        name = canonicalize_name(distribution.metadata["Name"])
        if not OURS.fullmatch(name):
            continue
        for line in distribution.requires or ():
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            version = versions.get(canonicalize_name(requirement.name))
            if version is not None and requirement.specifier.contains(version, prereleases=True):
                continue
            wanted = f"{requirement.name}{requirement.specifier}"
            is_untested = (name, requirement.name) == ("torchtrt-core", "torch") and version
            yield Problem(
                f"it requires {wanted}, and "
                + ("that is not installed" if version is None else f"{version} is installed"),
                f'Run `pip install "{wanted}"`, or install another version of {name}.'
                + (UNTESTED if is_untested else ""),
                "requirement",
                distribution=name,
                version=distribution.version,
                location=str(distribution.locate_file("")),
            )


def _readable() -> Iterable[Distribution]:
    """Returns the distributions that have a name and a version, in the order in which Python finds them."""
    distributions = []
    for distribution in importlib.metadata.distributions():
        try:
            if distribution.metadata["Name"] and distribution.version:
                distributions.append(distribution)
        except Exception:  # Python could not use it; the search for packs reports it
            continue
    return distributions


def _editable_source(distribution: Distribution) -> str | None:
    """Returns the folder that a distribution is imported from where it was installed editable, otherwise ``None``."""
    source = core_file.editable_folder(distribution)
    if source is not None:
        return source
    folder = getattr(distribution, "_path", None)
    if str(folder).endswith(".egg-info"):
        return str(Path(str(folder)).parent)
    return None


def _location(distribution: Distribution) -> Path:
    return Path(str(distribution.locate_file(""))).resolve()
