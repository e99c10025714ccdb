"""The programs of a followed model in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchtrt.callers import warn_caller
from torchtrt.errors import FollowWarning, InputError
from torchtrt_follow.description import describe, differences
from torchtrt_follow.fingerprint import Fingerprint
from torchtrt_follow.programs import Binding, ModelWeights, Program
from torchtrt_follow.scales import as_tensor
from torchtrt_follow.state import ModelState
from torchtrt_runtime import load, save
from torchtrt_runtime.serialization.folders import (
    NewFolder,
    read_description,
    remove_file,
)
from torchtrt_runtime.weights.recipe import digest

FORMAT = 3
"""The form of the folder. A reader takes its own only."""
_FILE = "followed.json"
_CONSTANTS = "constants"


@dataclass
class _SavedProgram:
    """A program of a file, and the kind of calls that it runs.

    Attributes:
        program: The program.
        key: The kind of calls, as text.
        names: The model's name for each weight of the program.
        constants: The values of weights that have no name in the model.
        ends: The minimum and the maximum shapes of the tensors that it was compiled for.
    """

    program: Program
    key: str
    names: Mapping[str, str]
    constants: Mapping[str, torch.Tensor]
    ends: Sequence[Any]


class SavedPrograms:
    """The programs of a folder.

    Args:
        lines: The description of the model that they are for.
        programs: The programs.
    """

    def __init__(self, lines: Sequence[str], programs: Sequence[_SavedProgram]) -> None:
        self.lines = lines
        self._programs = list(programs)

    def programs(self) -> list[Program]:
        """Returns the programs."""
        return [each.program for each in self._programs]

    def bindings(self, key: Any) -> list[Binding]:
        """Returns new bindings of the programs for a kind of calls."""
        return self.all_bindings().get(repr(key), [])

    def all_bindings(self) -> dict[str, list[Binding]]:
        """Returns new bindings of all programs, by the kind of calls as text."""
        found: dict[str, list[Binding]] = {}
        for each in self._programs:
            binding = Binding(each.program, each.names, each.constants, each.ends)
            found.setdefault(each.key, []).append(binding)
        return found

    def fit(self, model: torch.nn.Module, state: ModelState) -> bool:
        """Returns whether they compute what a model in this state does, but for its weights."""
        return describe(model, state) == self.lines

    def drop(self, program: Program) -> None:
        """Removes a program."""
        self._programs = [each for each in self._programs if each.program is not program]


def save_programs(
    folder: Path, model: torch.nn.Module, state: ModelState, bindings: Mapping[str, list[Binding]]
) -> None:
    """Writes the programs for one state of a model to a folder.

    Args:
        folder: The folder; it is made if there is none.
        model: The model.
        state: Its state.
        bindings: The programs for each kind of calls, as text, with the model's weights.

    Raises:
        InputError: There is no program, or one writes to weights. The folder is as it was.
        UnsupportedProgramError, UnwritableFileError: As of ``torchtrt.save``.
    """
    entries = _compiled_entries(model, bindings)
    new = NewFolder(folder / _FILE)
    for old in (*folder.glob("program-*.pt2"), *folder.glob(f"{_CONSTANTS}-*.pt")):
        remove_file(old)
    rows, digests = [], {}
    known = _known(ModelWeights(model, state), state)
    for number, (key, binding) in enumerate(entries):
        program = binding.program
        assert program.compiled is not None
        with new.part(f"program-{number}.pt2") as path:
            save(program.compiled, path)
        with new.part(f"{_CONSTANTS}-{number}.pt") as path:
            torch.save(dict(binding.constants), path)
        used = [name for name in binding.names.values() if name in known]
        digests.update({name: digest(known[name]) for name in used if name not in digests})
        rows.append(
            {
                "key": key,
                "names": dict(binding.names),
                "ends": binding.ends,
                "stripped": program.compiled.settings.strip_engine_weights,
                "fingerprint": _fingerprint_to_json(program.fingerprint),
            }
        )
    content = {"model": describe(model, state), "weights": digests, "programs": rows}
    new.describe(content, FORMAT)


def _compiled_entries(
    model: torch.nn.Module, bindings: Mapping[str, list[Binding]]
) -> list[tuple[str, Binding]]:
    """Returns the programs that were compiled, each with its kind of calls.

    Raises:
        InputError: There is none, or one writes to weights.
    """
    entries = [
        (key, binding)
        for key, held in bindings.items()
        for binding in held
        if binding.program.compiled is not None
    ]
    if not entries:
        raise InputError(
            f"{type(model).__name__} has no engines to save: none of its calls has been compiled."
        )
    for _, binding in entries:
        if binding.written:
            raise InputError(
                f"A program of {type(model).__name__} writes to its weights "
                f"({', '.join(sorted(binding.written))}), whose memory is the model's own, so it cannot be saved."
            )
    return entries


def load_programs(folder: Path, model: torch.nn.Module) -> SavedPrograms:
    """Returns the programs in a folder, for a model. They take other weights by a refit in the next call.

    A ``FollowWarning`` says what of the model differs; the next call then exports the model to compare.

    Raises:
        InputError: There are none in the folder, or they are for another model; or the model has other weights, and the
            engines take none.
        UnreadableFileError, EngineMismatchError: As of ``torchtrt.load``.
    """
    if not (folder / _FILE).is_file():
        raise InputError(f"{folder} has no {_FILE}, which saving a followed model writes.")
    saved_files = read_description(folder / _FILE, FORMAT, "Save the model again")
    content = saved_files.content
    state = ModelState(model)
    _check_same_model(folder, model, differences(content["model"], describe(model, state)))
    watched = ModelWeights(model, state)  # before values are read
    known = _known(watched, state)
    digests: dict[str, str] = content["weights"]
    other = {
        name for name, each in digests.items() if name not in known or digest(known[name]) != each
    }
    programs = []
    for number, row in enumerate(content["programs"]):
        with saved_files.open(f"{_CONSTANTS}-{number}.pt") as file:
            constants = torch.load(file, weights_only=True)
        own = {inner: known[name] for inner, name in row["names"].items() if name in known}
        with saved_files.open(f"program-{number}.pt2") as file:
            compiled = load(file, weights={**own, **constants} if row["stripped"] else None)
        compiled.usage_checks = compiled.usage_checks.without_weights()
        compiled.usage_checks.trains = False
        if compiled.weight_recipes is None and other:
            raise InputError(
                f"The engines in {folder} have weights compiled in, and {min(other)!r} of the model is another. "
                "Compile the model, or save engines with immutable_weights=False, which take other weights."
            )
        program = Program(compiled, _fingerprint_from_json(row["fingerprint"]))
        ends = [[tuple(shape) for shape in end] for end in row["ends"]]
        saved = _SavedProgram(program, row["key"], row["names"], constants, ends)
        # The weights are those of the model that was saved.
        program.loaded = Binding(program, saved.names, constants, ends)
        marks = program.loaded.marks(watched)
        program.held = {own: mark for own, mark in marks.items() if saved.names[own] not in other}
        programs.append(saved)
    return SavedPrograms(content["model"], programs)


def _check_same_model(folder: Path, model: torch.nn.Module, found: tuple[str, str]) -> None:
    """Checks that the programs in a folder are for this model, and warns where that is uncertain.

    Args:
        folder: The folder.
        model: The model.
        found: A difference that is certain, and one that is possible; ``""`` for none.

    Raises:
        InputError: They are for another model.
    """
    certain, possible = found
    if certain:
        raise InputError(
            f"The engines in {folder} are for another {type(model).__name__}: {certain}."
        )
    if possible:
        warn_caller(
            f"The {type(model).__name__} may be another than the one of the engines in {folder}, because {possible}. "
            "Its first call exports it, and uses the engines if they have the same program. Save them again.",
            FollowWarning,
        )


def _known(weights: ModelWeights, state: ModelState) -> dict[str, torch.Tensor]:
    """Returns the weights of a model, and the scales of its adapters, by name."""
    return {**state.weights, **{each.name: as_tensor(each.value) for each in weights.scales}}


def _fingerprint_to_json(fingerprint: Fingerprint | None) -> Any:
    """Returns a fingerprint that holds in other processes; None where it names objects of this one."""
    if fingerprint is None or " object " in fingerprint.text:
        return None
    return fingerprint.text, fingerprint.weights


def _fingerprint_from_json(data: Any) -> Fingerprint | None:
    return None if data is None else Fingerprint(data[0], tuple(data[1]))
