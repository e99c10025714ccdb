"""Converter packs: what a pack is made of, and which packs this process has.

A pack author needs :class:`ConverterPack` and :data:`hookimpl`; see ``docs/publish-a-pack.md``.
"""

from torchtrt.contract import (
    AutocastRule,
    CallingConvention,
    ConverterPriority,
    ConverterSupport,
    Reject,
)
from torchtrt.packs.hooks import hookimpl
from torchtrt.packs.info import FRONT_ENDS, PACKS, TENSORRTS, Door, PackInfo
from torchtrt.packs.load import LoadedPack, PackSet
from torchtrt.packs.modules import import_modules
from torchtrt.packs.pack import API_VERSION, ConverterPack
from torchtrt.packs.problem import Problem
from torchtrt.packs.state import current_packs, load_packs, loaded_packs, local_pack, problems

__all__ = [
    "API_VERSION",
    "FRONT_ENDS",
    "PACKS",
    "TENSORRTS",
    "AutocastRule",
    "CallingConvention",
    "ConverterPack",
    "ConverterPriority",
    "ConverterSupport",
    "Door",
    "LoadedPack",
    "PackInfo",
    "PackSet",
    "Problem",
    "Reject",
    "current_packs",
    "hookimpl",
    "import_modules",
    "load_packs",
    "loaded_packs",
    "local_pack",
    "problems",
]
