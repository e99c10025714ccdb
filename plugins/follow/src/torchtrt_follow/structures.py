"""The structures that a followed model had, and the programs for each."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch

from torchtrt.callers import warn_caller
from torchtrt.errors import FollowWarning
from torchtrt_follow.files import Bindings
from torchtrt_follow.programs import Binding, Program
from torchtrt_follow.state import ModelState

_KEPT = 8
"""The structures of a model whose programs are kept."""


class Structure:
    """A model whose Python state stays, and the programs for it.

    Args:
        state: The model's state, in whose place newer ones with equal facts come.
        bindings: The programs for each kind of call.

    Attributes:
        chosen: The program for each kind of call and shapes; None where PyTorch runs the call.
        refused: The kinds of calls that cannot be compiled.
    """

    def __init__(self, state: ModelState, bindings: Bindings) -> None:
        self.state = state
        self.bindings = bindings
        self.chosen: dict[Any, Binding | None] = {}
        self.refused: set[Any] = set()

    def all_bindings(self) -> list[Binding]:
        """Returns the programs for all kinds of calls."""
        return list(chain.from_iterable(self.bindings.values()))

    def drop(self, program: Program) -> None:
        """Removes a program."""
        for key, bindings in self.bindings.items():
            self.bindings[key] = [binding for binding in bindings if binding.program is not program]
        chosen = self.chosen.items()
        self.chosen = {
            kind: binding
            for kind, binding in chosen
            if binding is None or binding.program is not program
        }


class Structures:
    """The structures that a model had.

    Args:
        model: The model.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._kept: list[Structure] = []  # the one of the last call is the last
        self._changes = 0

    @property
    def last(self) -> Structure | None:
        """The structure of the last call; None before the first."""
        return self._kept[-1] if self._kept and self._kept[-1].state.facts else None

    def current(self) -> Structure:
        """Returns the structure that the model has."""
        state, last = ModelState(self._model), self.last
        equal = (kept for kept in reversed(self._kept) if kept.state.facts == state.facts)
        structure = next(equal, None) or Structure(state, {})
        if not structure.state.is_same():
            structure.state = state
        others = [other for other in self._kept if other is not structure]
        if last is not None and last is not structure:
            self.take_all_weights()  # libraries that merge adapters write through .data
            if structure not in self._kept:
                self._note_change(last.state, state)
        self._kept = [*others[1 - _KEPT :], structure]
        return structure

    def _note_change(self, old: ModelState, new: ModelState) -> None:
        self._changes += 1
        if self._changes == 2 * _KEPT:
            warn_caller(
                f"The model has had {self._changes} structures, and each is exported anew. The last to change was "
                f"{new.difference(old)!r}. If each call changes it, follow the modules that do not.",
                FollowWarning,
            )

    def programs(self) -> list[Program]:
        """Returns all programs, those for the structure of the last call last."""
        bindings = chain.from_iterable(structure.all_bindings() for structure in self._kept)
        return list(dict.fromkeys(binding.program for binding in bindings))

    def take_all_weights(self) -> None:
        """Lets the next call of each program give it all weights."""
        for program in self.programs():
            program.loaded = None

    def restart(self) -> None:
        """Lets the next call export the model; it runs one of the programs if the exported one is equal."""
        for structure in self._kept:
            structure.state.forget()

    def replace(self, structure: Structure) -> None:
        """Takes a structure, and its programs, in place of all others."""
        self._kept = [structure]

    def has_room(self, count: int, structure: Structure) -> bool:
        """Removes programs of other structures until there are less than a number, and returns whether there are."""
        while len(self.programs()) >= count and self._kept[0] is not structure:
            self._kept.pop(0)
        return len(self.programs()) < count

    def forget(self, program: Program) -> None:
        """Removes a program."""
        for structure in self._kept:
            structure.drop(program)
