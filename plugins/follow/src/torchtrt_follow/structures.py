"""The states that a followed model had, while other threads may change it, and the programs for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from torchtrt_follow.files import SavedPrograms
from torchtrt_follow.programs import Binding
from torchtrt_follow.state import ModelState

_ATTEMPTS = 100
"""How often a state is read that other threads change meanwhile."""
_Result = TypeVar("_Result")


class Structure:
    """A model as it was, and the programs for it.

    Attributes:
        state: The state.
        bindings: The programs for each kind of call.
        chosen: The one for each kind of call and shapes; None where PyTorch runs the call.
        refused: The kinds of calls that cannot be compiled.
        saved: The programs of a folder that are for it.
    """

    def __init__(self, model: torch.nn.Module, saved: SavedPrograms | None) -> None:
        self.state = steady(lambda: ModelState(model))
        self.saved = saved if saved is not None and saved.fit(model, self.state) else None
        self.bindings: dict[Any, list[Binding]] = {}
        self.chosen: dict[Any, Binding | None] = {}
        self.refused: set[Any] = set()

    def all_bindings(self) -> list[Binding]:
        """Returns the programs for all kinds of calls."""
        return [each for held in self.bindings.values() for each in held]

    def take_saved(self, key: Any) -> None:
        """Takes the programs of the folder for a kind of calls that is new."""
        if self.saved is not None and key not in self.bindings:
            self.bindings[key] = self.saved.bindings(key)

    def to_save(self) -> dict[str, list[Binding]]:
        """Returns the programs for each kind of calls as text, with those of the folder that no call has used."""
        saved = {} if self.saved is None else self.saved.all_bindings()
        return {**saved, **{repr(key): held for key, held in self.bindings.items()}}

    def drop(self, key: Any, binding: Binding) -> None:
        """Removes a program."""
        self.bindings[key] = [each for each in self.bindings[key] if each is not binding]
        self.chosen = {place: each for place, each in self.chosen.items() if each is not binding}


def steady(function: Callable[[], _Result]) -> _Result:
    """Calls a function until no other thread changes a container that it reads, and returns its result."""
    for _ in range(_ATTEMPTS):
        try:
            return function()
        except RuntimeError as error:
            if "during iteration" not in str(error):
                raise
    return function()


def holds(state: ModelState) -> bool:
    """Returns whether a model has still this state; no, while another thread changes it."""
    try:
        return state.holds()
    except RuntimeError:  # of a container that changes meanwhile
        return False
