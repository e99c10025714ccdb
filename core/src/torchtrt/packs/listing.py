"""The packs as a user sees them in a listing, in use or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchtrt.packs.info import LOCAL, PackInfo
from torchtrt.packs.problem import Problem

if TYPE_CHECKING:
    from torchtrt.packs.load import LoadedPack, PackSet

IN_USE = "in use"
DISABLED = "disabled"
NOT_LOADED = "not loaded"


@dataclass(frozen=True, slots=True)
class PackRow:
    """A pack as a user sees it in a listing.

    Attributes:
        info: Who it is.
        status: ``"in use"``, ``"disabled"`` or ``"not loaded"``.
        reason: Why it is not in use.
        summary: What it is for, in its author's words.
        ops: How many ops it has a converter for.
        converters: How many converters it has.
        high: How many of its converters are ``HIGH``.
        decompositions: How many decompositions it has.
        passes: How many passes over the graph it has.
        tensorrt: The TensorRT versions that it works with; all, or not known, if empty.
    """

    info: PackInfo
    status: str
    reason: str = ""
    summary: str = ""
    ops: int = 0
    converters: int = 0
    high: int = 0
    decompositions: int = 0
    passes: int = 0
    tensorrt: str = ""

    @property
    def state(self) -> str:
        """The status and its reason, as a user reads them."""
        if self.status == DISABLED:
            return self.reason
        return f"{self.status}: {self.reason}" if self.reason else self.status


def list_packs(packs: PackSet, problems: Sequence[Problem]) -> tuple[PackRow, ...]:
    """Returns every installed pack in pack order, in use or not, and ``local`` if this program registered anything."""
    loaded = {entry.info.name: entry for entry in packs.loaded}
    rows = [
        _used_row(loaded[info.name]) if info.name in loaded else _unused_row(info, packs, problems)
        for info in packs.installed
    ]
    local = loaded.get(LOCAL)
    if local is not None and (local.pack.converters or local.pack.decompositions):
        rows.append(_used_row(local))
    return tuple(rows)


def _used_row(loaded: LoadedPack) -> PackRow:
    """Returns the row of a pack in use."""
    from torchtrt.contract import ConverterPriority  # which imports PyTorch

    registered = loaded.pack.converters
    return PackRow(
        loaded.info,
        IN_USE,
        summary=loaded.pack.summary,
        ops=len({registration.target for registration in registered}),
        converters=len(registered),
        high=sum(registration.priority is ConverterPriority.HIGH for registration in registered),
        decompositions=len(loaded.pack.decompositions),
        passes=len(loaded.pack.lowering_passes),
        tensorrt=loaded.pack.tensorrt,
    )


def _unused_row(info: PackInfo, packs: PackSet, problems: Sequence[Problem]) -> PackRow:
    if info.name in packs.disabled:
        return PackRow(info, DISABLED, packs.disabled[info.name])
    reasons = [problem.what for problem in problems if problem.pack == info.name]
    return PackRow(info, NOT_LOADED, "; ".join(reasons))
