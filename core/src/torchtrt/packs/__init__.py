"""Converter packs: what a pack is made of, and which packs this process has.

A pack author needs :class:`ConverterPack` and :data:`hookimpl`; see ``docs/publish-a-pack.md``.
"""

from torchtrt.packs._hooks import hookimpl, hookspec
from torchtrt.packs._info import PackInfo
from torchtrt.packs._load import LoadedPack, PackSet
from torchtrt.packs._pack import API_VERSION, ConverterPack
from torchtrt.packs._problem import Problem
from torchtrt.packs._state import current_packs, load_packs, loaded_packs, problems
from torchtrt.packs._support import (
    CallingConvention,
    ConverterPriority,
    ConverterSupport,
    Reject,
)

__all__ = [
    "API_VERSION",
    "CallingConvention",
    "ConverterPack",
    "ConverterPriority",
    "ConverterSupport",
    "LoadedPack",
    "PackInfo",
    "PackSet",
    "Problem",
    "Reject",
    "current_packs",
    "hookimpl",
    "hookspec",
    "load_packs",
    "loaded_packs",
    "problems",
]
