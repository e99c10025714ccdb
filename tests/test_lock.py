"""``constraints.txt`` pins what `make` installs, so that each run of the tests has the same versions."""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
OF_PYTORCH = re.compile("torch|setuptools|triton|cuda-.+|nvidia-(?!ml-py|modelopt).+")
"""PyTorch itself, which `make TORCH=` exchanges, and what its builds pin."""


def requirements_of_groups() -> Iterator[Requirement]:
    """Yields what the dependency groups name."""
    for group in GROUPS.values():
        for entry in group:
            if isinstance(entry, str):
                yield Requirement(entry)


def installed() -> dict[str, Distribution]:
    """Returns the distributions that the groups and their requirements bring, by their names."""
    waiting = [requirement for requirement in requirements_of_groups() if applies(requirement)]
    reached: dict[str, Distribution] = {}
    alone = {Requirement(entry).name for entry in GROUPS["without-dependencies"]}
    asked: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        reached[name] = distribution(name)
        for extra in {"", *requirement.extras} - {extra for at, extra in asked if at == name}:
            asked.add((name, extra))
            lines = [] if name in alone else reached[name].requires or []
            waiting += [inner for inner in map(Requirement, lines) if applies(inner, extra)]
    return reached


def applies(requirement: Requirement, extra: str = "") -> bool:
    """Returns whether this Python on this machine needs a requirement."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def pins() -> dict[str, Requirement]:
    """Returns what ``constraints.txt`` pins for this Python, by the names of the distributions."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    usable = [requirement for requirement in requirements if applies(requirement)]
    names = [canonicalize_name(requirement.name) for requirement in usable]
    assert len(names) == len(set(names))
    return dict(zip(names, usable, strict=True))


def test_the_lock_pins_everything_that_the_groups_bring():
    """A version that nothing pins changes from one installation to the next."""
    try:
        versions = {name: part.version for name, part in installed().items()}
    except PackageNotFoundError as missing:
        pytest.skip(f"`make` did not make this environment: it lacks {missing.name}")
    pinned = pins()
    ours = {name: version for name, version in versions.items() if not OF_PYTORCH.fullmatch(name)}

    assert len(ours) > 80
    assert [] == sorted(name for name in ours if name not in pinned)
    assert {} == {
        name: version
        for name, version in ours.items()
        if not pinned[name].specifier.contains(version, prereleases=True)
    }


def test_the_lock_pins_one_version_of_each_distribution():
    """A range is no lock; a marker may choose between two versions."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [Requirement(line) for line in lines if not line.startswith("#")]

    assert [] == [str(pin) for pin in pinned if not re.fullmatch(r"==[\w.]+", str(pin.specifier))]


def test_the_groups_name_what_the_distributions_require():
    """`make` installs these editable, without their dependencies."""
    named = {canonicalize_name(requirement.name) for requirement in requirements_of_groups()}
    folders = ("core", "plugins/*", "plugins/contrib/*")
    projects = [path for folder in folders for path in ROOT.glob(f"{folder}/pyproject.toml")]
    required = {
        canonicalize_name(Requirement(line).name)
        for path in projects
        for line in tomllib.loads(path.read_text(encoding="utf-8"))["project"]["dependencies"]
    }

    assert {"numpy", "torch"} <= required
    assert set() == {name for name in required - named if not name.startswith("torchtrt-")}
