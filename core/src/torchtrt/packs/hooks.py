"""The hooks that a pack's entry-point module implements. Their names are part of the public contract."""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from torchtrt.packs.info import PROJECT
from torchtrt.packs.pack import ConverterPack
from torchtrt.packs.problem import Problem

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a pack's module as one of the hooks below."""


@hookspec
def torchtrt_converter_pack() -> ConverterPack:  # type: ignore[empty-body]
    """Returns the pack, as yet empty: who it is and which versions it works with.

    Called once, when packs are loaded. Keep it cheap: versions are checked before anything else
    of the pack is imported.
    """


@hookspec
def torchtrt_register_converters(pack: ConverterPack) -> None:
    """Fills the pack. May import the pack's other modules; returns nothing.

    Called once, after the checks. If it raises, nothing of the pack is kept.
    """


@hookspec
def torchtrt_check(pack: ConverterPack) -> Iterable[Problem]:  # type: ignore[empty-body]
    """Returns the reasons why the pack cannot work on this machine: a missing library, an old driver.

    Called only by ``torchtrt doctor``, so it may be slow.
    """
