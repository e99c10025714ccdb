"""Converter packs: what a pack is made of, and which packs this process has.

A pack author needs ``ConverterPack`` and ``hookimpl``; see ``docs/publish-a-pack.md``. Names
are imported on first use, so that what is installed can be listed where PyTorch cannot be imported.
"""

from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names
from torchtrt.packs.info import API_VERSION as API_VERSION
from torchtrt.packs.info import FRONT_ENDS as FRONT_ENDS
from torchtrt.packs.info import PACKS as PACKS
from torchtrt.packs.info import TENSORRTS as TENSORRTS
from torchtrt.packs.info import EntryPointGroup as EntryPointGroup
from torchtrt.packs.info import PackInfo as PackInfo
from torchtrt.packs.problem import Problem as Problem

if TYPE_CHECKING:
    from torchtrt.contract import AutocastRule as AutocastRule
    from torchtrt.contract import CallingConvention as CallingConvention
    from torchtrt.contract import ConverterPriority as ConverterPriority
    from torchtrt.contract import ConverterSupport as ConverterSupport
    from torchtrt.contract import Reject as Reject
    from torchtrt.packs.hooks import hookimpl as hookimpl
    from torchtrt.packs.load import LoadedPack as LoadedPack
    from torchtrt.packs.load import PackSet as PackSet
    from torchtrt.packs.load import import_modules as import_modules
    from torchtrt.packs.pack import ConverterPack as ConverterPack
    from torchtrt.packs.state import add_pack as add_pack
    from torchtrt.packs.state import current_packs as current_packs
    from torchtrt.packs.state import load_packs as load_packs
    from torchtrt.packs.state import loaded_packs as loaded_packs
    from torchtrt.packs.state import local_pack as local_pack
    from torchtrt.packs.state import problems as problems
    from torchtrt.packs.state import use_packs as use_packs

_CONTRACT = ("AutocastRule", "CallingConvention", "ConverterPriority", "ConverterSupport", "Reject")
_STATE = (
    "add_pack", "current_packs", "load_packs", "loaded_packs", "local_pack", "problems", "use_packs",
)  # fmt: skip
_LAZY = {
    "torchtrt.contract": _CONTRACT,
    "torchtrt.packs.hooks": ("hookimpl",),
    "torchtrt.packs.load": ("LoadedPack", "PackSet", "import_modules"),
    "torchtrt.packs.pack": ("ConverterPack",),
    "torchtrt.packs.state": _STATE,
}


__getattr__, __dir__ = lazy_names(globals(), _LAZY)
