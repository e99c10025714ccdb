"""The packs of this process: loaded once, and the one pack that can grow, ``local``."""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from torchtrt.callers import warn_caller
from torchtrt.errors import PackError, PackWarning
from torchtrt.packs.environment import read_selection
from torchtrt.packs.info import LOCAL, PackInfo
from torchtrt.packs.load import LOCAL_INFO, LoadedPack, PackSet, Watch, load
from torchtrt.packs.pack import ConverterPack
from torchtrt.packs.problem import Problem
from torchtrt.packs.scan import scan


class _LocalPack(ConverterPack):
    """The pack of what a program registers itself; it never seals."""

    def _check_open(self) -> None:
        if _is_loading_here():
            raise PackError(
                "A pack used @dynamo_tensorrt_converter while it was being loaded, which would hide who the "
                "converter is from. Use @pack.converter(...) with the pack's own ConverterPack."
            )

    def _changed(self) -> None:
        # Code that keeps something derived from the old object sees by the new one that it is out of date.
        with _state.lock:
            _state.packs = dataclasses.replace(_state.packs)

    def registrations(self) -> dict[str, Any]:
        """Returns what is registered now, for ``restore``."""
        return {**vars(self), "_converters": [*self._converters]}

    def restore(self, registrations: dict[str, Any]) -> None:
        """Registers what was registered before, and nothing else."""
        vars(self).update(registrations)
        self._changed()


class _State:
    def __init__(self, local: ConverterPack) -> None:
        self.lock = threading.RLock()
        self.packs = PackSet(loaded=(LoadedPack(LOCAL_INFO, local),))
        self.problems: list[Problem] = []
        self.added: list[tuple[ConverterPack, PackInfo]] = []
        self.loaded = False
        self.loading_thread: int | None = None


local_pack = _LocalPack(LOCAL, summary="registered by this program")
_state = _State(local_pack)


def load_packs(watch: Watch = nullcontext) -> PackSet:
    """Returns the packs of this process, finding and loading them on the first call, each within ``watch(its info)``.

    The first question about packs calls it: a lookup, a listing, a compilation. ``import torchtrt`` does not, so that
    any module of a pack can be the first import of a process. Every problem is recorded, and shown as one
    ``PackWarning``.

    Raises:
        PackError: A pack has a problem and ``TORCHTRT_PACKS_STRICT`` is set.
    """
    with _state.lock:
        if _state.loaded or _is_loading_here():
            return _state.packs
        _state.loading_thread = threading.get_ident()
        # Whatever is made here lives on. A full collection in the middle of it would go through all that
        # PyTorch has made so far, and free nothing.
        collecting = gc.isenabled()
        gc.disable()
        try:
            selection = read_selection(os.environ)
            packs, problems = load(scan(), selection, local_pack, watch)
        finally:
            _state.loading_thread = None
            if collecting:
                gc.enable()
        # Published whole, after everything that can fail.
        _state.packs, _state.loaded = packs, True
        for pack, info in _state.added:
            try:
                add_pack(pack, info)
            except PackError as error:
                problems.append(Problem(str(error), code="bad-name").about(info))
        _state.problems.extend(problems)
    for problem in problems:
        try:
            warn_caller(str(problem), PackWarning)
        except PackWarning as warning:
            # Where warnings are errors this one is not: the program may need nothing of the broken pack.
            print(f"PackWarning: {warning}", file=sys.stderr)
    return _state.packs


def add_pack(pack: ConverterPack, info: PackInfo) -> None:
    """Puts a pack without an entry point into use, at its position in the order of packs.

    After later registrations in the pack, add it again: until then, they have no effect.

    Raises:
        PackError: Another pack has this name.
    """
    with _state.lock:
        packs = load_packs()
        if _is_loading_here():  # the packs that are installed come first
            _state.added.append((pack, info))
            return
        others = [loaded for loaded in packs.loaded if loaded.pack is not pack]
        if pack.name != info.name or info.name in (loaded.info.name for loaded in others):
            raise PackError(f"A pack cannot be added as {info.name!r}: that is another one's name.")
        loaded = sorted(
            (*others, LoadedPack(info, pack)), key=lambda loaded_pack: loaded_pack.info.order
        )
        remaining = [pack_info for pack_info in packs.installed if pack_info.name != info.name]
        installed = sorted((*remaining, info), key=lambda pack_info: pack_info.order)
        _state.packs = dataclasses.replace(packs, loaded=tuple(loaded), installed=tuple(installed))


@contextmanager
def use_packs(
    packs: PackSet | None = None, problems: Sequence[Problem] | None = None
) -> Iterator[None]:
    """Uses other packs inside a ``with`` block, in all threads.

    Afterwards, the packs are those from before: what the block added or registered is gone. Tests of a pack need it.
    Blocks nest: the one that begins last ends first, whichever threads they are in.

    Args:
        packs: The packs; by default those in use.
        problems: What went wrong with them; by default what went wrong so far.
    """
    current = load_packs()
    with _state.lock:
        before = _state.packs, _state.problems, local_pack.registrations()
        _state.packs = current if packs is None else packs
        _state.problems = [*(_state.problems if problems is None else problems)]
    try:
        yield
    finally:
        with _state.lock:
            _state.packs, _state.problems, registrations = before
            local_pack.restore(registrations)


def current_packs() -> PackSet:
    """Returns the packs as of now, loaded if need be. The same object is returned until something changes.

    Raises:
        PackError: They are still being loaded, and one of them asks.
    """
    if _state.loaded:
        return _state.packs
    if _is_loading_here():
        raise PackError(
            "A pack looked something up or compiled while packs were being loaded, before it is known what there is. "
            "Its module and its hook only register: do the rest in a converter, or when it is first called."
        )
    return load_packs()


def loaded_packs() -> tuple[LoadedPack, ...]:
    """Returns the packs in use, in pack order."""
    return current_packs().loaded


def problems() -> tuple[Problem, ...]:
    """Returns everything that went wrong with packs so far, at loading and since."""
    load_packs()
    return tuple(_state.problems)


def record(problem: Problem) -> None:
    """Notes a problem and shows it as a warning, the first time that it occurs.

    Raises:
        PackError: ``TORCHTRT_PACKS_STRICT`` is set.
    """
    with _state.lock:
        if any(
            (recorded.code, recorded.pack, recorded.what)
            == (problem.code, problem.pack, problem.what)
            for recorded in _state.problems
        ):
            return
        _state.problems.append(problem)
    if _state.packs.strict:
        raise PackError(str(problem))
    warn_caller(str(problem), PackWarning)


def _is_loading_here() -> bool:
    """Returns whether this thread is loading the packs. Others wait until they are loaded."""
    return _state.loading_thread == threading.get_ident()
