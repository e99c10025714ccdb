"""The cases of installed packs, which are in a pack's own package ``cases``.

Each module there has a table ``CASES``, and the module ``architectures``, if there is one, a table ``ARCHITECTURES``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from torchtrt.packs import PACKS, loaded_packs
from torchtrt.packs.info import FIRST_PARTY_TIER
from torchtrt.targets import parse_targets, qualified_name
from torchtrt_testing.architectures import Architecture
from torchtrt_testing.cases import OpCase

_ARCHITECTURES = "architectures"


@functools.cache
def families_of(pack: str) -> Mapping[str, tuple[OpCase, ...]]:
    """Returns the cases beside the converters of a pack, by the names of their modules.

    Args:
        pack: The pack's name, such as ``"aten_core"``.

    Returns:
        For each module in the package ``cases`` of the pack its cases; nothing if there is no such package.

    Raises:
        ModuleNotFoundError: The cases need a library that is not installed.
    """
    names = [name for name in _modules(pack) if name != _ARCHITECTURES]
    return MappingProxyType({name: tuple(_import(pack, name).CASES) for name in names})


def architectures_of(pack: str) -> tuple[Architecture, ...]:
    """Returns the architectures that a pack is tested with; none if its package has none.

    Raises:
        ModuleNotFoundError: They need a library that is not installed.
    """
    is_there = _ARCHITECTURES in _modules(pack)
    return tuple(_import(pack, _ARCHITECTURES).ARCHITECTURES) if is_there else ()


def _modules(pack: str) -> list[str]:
    """Returns the names of the modules in the package ``cases`` of a pack."""
    package = f"{PACKS.package_name(pack)}.cases"
    try:
        folder = importlib.import_module(package).__path__
    except ModuleNotFoundError as error:
        if error.name not in (package, PACKS.package_name(pack)):
            raise
        return []
    return sorted(module.name for module in pkgutil.iter_modules(folder))


def _import(pack: str, module: str) -> ModuleType:
    return importlib.import_module(f"{PACKS.package_name(pack)}.cases.{module}")


def cases_of(pack: str) -> tuple[OpCase, ...]:
    """Returns the cases beside the converters of a pack; none if its package has no package ``cases``."""
    return tuple(case for family in families_of(pack).values() for case in family)


def first_party_packs() -> tuple[str, ...]:
    """Returns the names of the first-party packs in use, in pack order."""
    infos = (loaded.info for loaded in loaded_packs())
    return tuple(info.name for info in infos if info.tier <= FIRST_PARTY_TIER)


def first_party_cases(*ops: str) -> tuple[OpCase, ...]:
    """Returns the cases that the installed first-party packs are tested with, except those that need a missing library.

    Args:
        *ops: Only those of these ops, in any spelling; all if omitted.

    Raises:
        UnknownTargetError: There is no such op.
    """
    cases: list[OpCase] = []
    for pack in first_party_packs():
        with contextlib.suppress(ModuleNotFoundError):
            cases += cases_of(pack)
    if not ops:
        return tuple(cases)
    targets = {target for op in ops for target in parse_targets(op)}
    names = {qualified_name(target) for target in targets}
    return tuple(case for case in cases if names & set(case.ops) or case.function in targets)
