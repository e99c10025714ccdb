"""The structures that a followed model had, and the programs for each."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch

from torchtrt.callers import warn_caller
from torchtrt.errors import FollowWarning
from torchtrt_follow.files import SavedPrograms, describe
from torchtrt_follow.programs import Binding, Bindings, Program
from torchtrt_follow.state import ModelState

_KEPT = 8
"""The structures of a model whose programs are kept."""


class Structure:
    """A model whose Python state stays, and the programs for it.

    Args:
        state: The model's state, in whose place newer ones with equal facts come.

    Attributes:
        bindings: The programs for each kind of call.
        chosen: The one for each kind of call and shapes; None where PyTorch runs the call.
        refused: The kinds of calls that cannot be compiled.
    """

    def __init__(self, state: ModelState) -> None:
        self.state = state
        self.bindings = Bindings()
        self.chosen: dict[Any, Binding | None] = {}
        self.refused: set[Any] = set()

    def drop(self, program: Program) -> None:
        """Removes a program."""
        self.bindings.drop(program)
        chosen = self.chosen.items()
        self.chosen = {
            kind: each for kind, each in chosen if each is None or each.program is not program
        }


class Structures:
    """The structures that a model had.

    Args:
        model: The model.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._kept: list[Structure] = []  # the last one is the current one
        self._saved: SavedPrograms | None = None  # for a structure that the model did not have yet
        self._spare: list[Program] = []  # for no structure
        self._changes = 0

    @property
    def last(self) -> Structure | None:
        """The structure of the last call; None before the first."""
        return self._kept[-1] if self._kept else None

    def current(self) -> Structure:
        """Returns the structure that the model has."""
        state, last = ModelState(self._model), self.last
        equal = (each for each in reversed(self._kept) if each.state.facts == state.facts)
        structure = next(equal, None) or self._new(state)
        if not structure.state.is_same():
            structure.state = state
        others = [each for each in self._kept if each is not structure]
        self._kept = [*others[1 - _KEPT :], structure]
        if last not in (None, structure):  # libraries that merge adapters write through .data
            self.take_all_weights()
        return structure

    def _new(self, state: ModelState) -> Structure:
        """Returns a structure with the programs of a folder, if they are for it."""
        structure = Structure(state)
        if self._saved is not None and self._saved.description == describe(self._model, state):
            structure.bindings, self._saved = self._saved.bindings, None
        self._changes += bool(self._kept)
        if self._changes == 2 * _KEPT:
            warn_caller(
                f"The model has had {self._changes} structures, and each is exported anew. The last to change was "
                f"{state.difference(self._kept[-1].state)!r}. If each call changes it, follow the modules that do not.",
                FollowWarning,
            )
        return structure

    def programs(self) -> list[Program]:
        """Returns all programs, those for the current structure last."""
        saved = [] if self._saved is None else self._saved.bindings.all()
        bindings = chain(saved, *(each.bindings.all() for each in self._kept))
        return list(dict.fromkeys([*self._spare, *(each.program for each in bindings)]))

    def take_all_weights(self) -> None:
        """Lets the next call of each program give it all weights."""
        for program in self.programs():
            program.loaded = None

    def restart(self) -> None:
        """Lets the next call export the model; it runs one of the programs if the exported one is equal."""
        self._kept, self._spare, self._saved = [], self.programs(), None

    def replace(self, saved: SavedPrograms) -> None:
        """Takes the programs of a folder in place of all others."""
        self._kept, self._spare, self._saved = [], [], saved

    def has_room(self, count: int, structure: Structure) -> bool:
        """Removes programs of other structures until there are less than a number, and returns whether there are."""
        while len(self.programs()) >= count and self._kept[0] is not structure:
            self._kept.pop(0)
        while len(self.programs()) >= count and self._spare:
            self._spare.pop(0)
        return len(self.programs()) < count

    def forget(self, program: Program) -> None:
        """Removes a program."""
        self.take_spare(program)
        for structure in self._kept:
            structure.drop(program)
        if self._saved is not None:
            self._saved.bindings.drop(program)

    def take_spare(self, program: Program) -> None:
        """Removes a program from those of no structure."""
        self._spare = [each for each in self._spare if each is not program]
