"""Which packs a compilation prefers: by its settings, and by the environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torchtrt.errors import SettingsError, UnknownTargetError, did_you_mean
from torchtrt.packs.environment import PREFER
from torchtrt.packs.info import LOCAL, normalize
from torchtrt.packs.load import PackSet
from torchtrt.packs.problem import Problem
from torchtrt.packs.state import current_packs, record
from torchtrt.settings import CompilationSettings
from torchtrt.targets import Target, parse_targets, qualified_name


def settings_from(keywords: Mapping[str, Any]) -> CompilationSettings:
    """Returns the settings of a compilation. They may name ops that packs define, and packs in any spelling.

    A preference of the environment for one op holds if the settings have none for it.

    Raises:
        SettingsError: A setting is unknown or unusable, or prefers a pack that is not installed or has no converter
            for the op.
    """
    packs = current_packs()
    pack_names = [LOCAL, *(info.name for info in packs.installed)]
    settings = CompilationSettings.from_keywords(**keywords)
    preferences = {op: normalize(name) for op, name in settings.converter_preferences.items()}
    for name in preferences.values():
        if name not in pack_names:
            hint = did_you_mean(name, pack_names, f"Installed packs: {', '.join(pack_names)}.")
            raise SettingsError(
                f"converter_preferences names the pack {name!r}, which is not installed. {hint}"
            )
    # Each as it was given: a packet stands for several overloads, and the pack may convert one.
    for op, name in keywords.get("converter_preferences", {}).items():
        if reason := _why_not_preferred(packs, op, normalize(name)):
            raise SettingsError(f"converter_preferences: {reason}")
    preferences = {**preferred_by_environment(packs), **preferences}
    return dataclasses.replace(settings, converter_preferences=preferences)


def preferred_by_environment(packs: PackSet) -> dict[Target, str]:
    """Returns the pack that the environment prefers for single ops, by op. One that cannot be preferred is a problem.

    Args:
        packs: The packs in use.
    """
    preferences: dict[Target, str] = {}
    for op, name in packs.preferred_for:
        try:
            reason = _why_not_preferred(packs, op, name)
        except UnknownTargetError as error:
            reason = str(error)
        if reason:
            record(Problem(f"{PREFER}: {reason}", code="unknown-value"))
        else:
            preferences |= dict.fromkeys(parse_targets(op), name)
    return preferences


def _why_not_preferred(packs: PackSet, op: Target | str, name: str) -> str | None:
    """Returns why a pack cannot be preferred for an op, or ``None``."""
    loaded = next(
        (loaded_pack.pack for loaded_pack in packs.loaded if loaded_pack.info.name == name), None
    )
    if loaded is None:
        return f"the pack {name!r} is not in use. Run `torchtrt packs` to see why."
    wanted = set(map(qualified_name, parse_targets(op)))
    if wanted & {qualified_name(converter.target) for converter in loaded.converters}:
        return None
    named = qualified_name(op)
    return f"the pack {name!r} has no converter for {named}. Name one that `torchtrt converters {named}` lists."
