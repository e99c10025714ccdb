"""Converter packs: what a pack is made of, and which packs this process has.

A pack author needs :class:`ConverterPack` and :data:`hookimpl`; see ``docs/publish-a-pack.md``. Names
are imported on first use, so that what is installed can be listed where PyTorch cannot be imported.
"""

from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names
from torchtrt.packs.info import API_VERSION, FRONT_ENDS, PACKS, TENSORRTS, Door, PackInfo
from torchtrt.packs.modules import import_modules
from torchtrt.packs.problem import Problem

if TYPE_CHECKING:
    from torchtrt.contract import (
        AutocastRule,
        CallingConvention,
        ConverterPriority,
        ConverterSupport,
        Reject,
    )
    from torchtrt.packs.hooks import hookimpl
    from torchtrt.packs.load import LoadedPack, PackSet
    from torchtrt.packs.pack import ConverterPack
    from torchtrt.packs.state import (
        add_pack,
        current_packs,
        load_packs,
        loaded_packs,
        local_pack,
        problems,
    )

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
    "add_pack",
    "current_packs",
    "hookimpl",
    "import_modules",
    "load_packs",
    "loaded_packs",
    "local_pack",
    "problems",
]

_CONTRACT = ("AutocastRule", "CallingConvention", "ConverterPriority", "ConverterSupport", "Reject")
_STATE = ("add_pack", "current_packs", "load_packs", "loaded_packs", "local_pack", "problems")
_LAZY = {
    "torchtrt.contract": _CONTRACT,
    "torchtrt.packs.hooks": ("hookimpl",),
    "torchtrt.packs.load": ("LoadedPack", "PackSet"),
    "torchtrt.packs.pack": ("ConverterPack",),
    "torchtrt.packs.state": _STATE,
}


__getattr__, __dir__ = lazy_names(globals(), _LAZY)
