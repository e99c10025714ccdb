"""The programs of a followed model in a folder."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from torchtrt.callers import warn_caller
from torchtrt.errors import FollowWarning, InputError
from torchtrt_follow.fingerprint import Fingerprint
from torchtrt_follow.programs import Binding, Marks, Program, release
from torchtrt_follow.state import ModelState
from torchtrt_runtime import load, save
from torchtrt_runtime.serialization.folders import NewFolder, read_description, remove_file
from torchtrt_runtime.weights.recipe import digest

FORMAT = 4
"""The form of the folder. A reader takes its own only."""
_FILE = "followed.json"
_OF_THE_PROGRAM = ("modules of ", "form of ", "memory of ", "devices")
"""The beginnings of facts that make another program if they differ."""

Description = Mapping[str, str]
"""The state of a model that a program depends on, besides the values of weights: the text of each fact."""
Bindings = dict[str, list[Binding]]
"""The programs for one structure of the model, for the key of each kind of call as text."""


def describe(model: torch.nn.Module, state: ModelState) -> Description:
    """Returns the description of a model, to compare with that of a model in another process."""
    texts = {path: text for path, (text, _) in state.facts.items()}
    values = {f"value of {path}": digest(tensor) for path, tensor in state.unnamed.items()}
    devices = sorted({str(tensor.device) for tensor in state.weights.values()})
    return {**texts, **values, "devices": " ".join(devices), **dict(_code(model))}


def _code(model: torch.nn.Module) -> Iterator[tuple[str, str]]:
    """Yields digests of the files with the classes of a model's modules, and the versions of their packages."""
    for name in sorted({type(module).__module__ for module in model.modules()} | {"torch"}):
        root = name.partition(".")[0]
        yield f"version of {root}", str(getattr(sys.modules.get(root), "__version__", None))
        file = Path(getattr(sys.modules.get(name), "__file__", None) or "")
        if file.is_file():
            yield f"code of {name}", hashlib.sha256(file.read_bytes()).hexdigest()


def save_programs(
    folder: Path, model: torch.nn.Module, state: ModelState, bindings: Bindings
) -> None:
    """Writes programs, and a description of the model that they are for, into a folder.

    Args:
        folder: The folder.
        model: The model.
        state: Its state.
        bindings: The programs for each kind of call. They have the model's weights.

    Raises:
        InputError: There is no program, or one writes to weights. The folder is as it was.
        UnsupportedProgramError, UnwritableFileError: As of ``torchtrt.save``.
    """
    compiled = [
        (key, binding, binding.program.compiled)
        for key, own in bindings.items()
        for binding in own
        if binding.program.compiled is not None
    ]
    name = type(model).__name__
    if not compiled:
        raise InputError(f"{name} has no engines to save: none of its calls has been compiled.")
    for _, binding, _ in compiled:
        if binding.written:
            raise InputError(
                f"A program of {name} writes to its weights ({', '.join(sorted(binding.written))}), whose memory is "
                "the model's own, so it cannot be saved."
            )
    new = NewFolder(folder / _FILE)
    for old in (*folder.glob("program-*.pt2"), *folder.glob("constants-*.pt")):
        remove_file(old)
    rows = []
    for number, (key, binding, program) in enumerate(compiled):
        with new.part(f"program-{number}.pt2") as path:
            save(program, path)
        with new.part(f"constants-{number}.pt") as path:
            torch.save(dict(binding.constants), path)
        text, weights = binding.program.fingerprint
        rows.append(
            {
                "key": key,
                "names": binding.names,
                "ends": binding.ends,
                "stripped": program.settings.strip_engine_weights,
                # A fingerprint may name objects of this process.
                "fingerprint": (None if " object " in str(text) else text, weights),
            }
        )
    used = {name for _, binding, _ in compiled for name in binding.names.values()}
    digests = {name: digest(tensor) for name, tensor in state.tensors().items() if name in used}
    new.describe({"model": describe(model, state), "weights": digests, "programs": rows}, FORMAT)


def load_programs(folder: Path, model: torch.nn.Module) -> tuple[ModelState, Bindings]:
    """Returns a model's state, and the programs in a folder for it. The next call gives them other weights by a refit.

    If other state of the model differs, a ``FollowWarning`` says so, and the state is one that no model has.

    Raises:
        InputError: There are none in the folder, or they are for another model; or the model has other weights, and the
            engines take none.
        UnreadableFileError, EngineMismatchError: As of ``torchtrt.load``.
    """
    if not (folder / _FILE).is_file():
        raise InputError(f"{folder} has no {_FILE}, which saving a followed model writes.")
    files = read_description(folder / _FILE, FORMAT, "Save the model again")
    description, digests = files.content["model"], files.content["weights"]
    state = ModelState(model)
    if not _is_same_model(folder, type(model).__name__, description, describe(model, state)):
        state.forget()
    marks, tensors = Marks.of(state), state.tensors()  # marks first: values may be newer
    same = {
        name
        for name, tensor in tensors.items()
        if name not in digests or digest(tensor) == digests[name]
    }
    bindings: Bindings = {}
    for number, row in enumerate(files.content["programs"]):
        with files.open(f"constants-{number}.pt") as file:
            constants = torch.load(file, weights_only=True)
        own = {inner: tensors[name] for inner, name in row["names"].items() if name in tensors}
        with files.open(f"program-{number}.pt2") as file:
            compiled = load(file, weights={**own, **constants} if row["stripped"] else None)
        release(compiled)
        if compiled.weights is None and (other := sorted(digests.keys() - same)):
            raise InputError(
                f"The engines in {folder} have weights compiled in, and {other[0]!r} of the model is another. Compile "
                "the model, or save engines with immutable_weights=False, which take other weights."
            )
        text, weights = row["fingerprint"]
        fingerprint = Fingerprint(text, tuple(weights))
        binding = Binding(Program(compiled, fingerprint), row["names"], constants, row["ends"])
        binding.hold(marks.only(same), None)
        bindings.setdefault(row["key"], []).append(binding)
    return state, bindings


def _is_same_model(folder: Path, kind: str, saved: Description, now: Description) -> bool:
    """Returns whether the programs in a folder are certainly for this model, and warns if not.

    Raises:
        InputError: They are for another model.
    """
    paths = [path for path in {**saved, **now} if saved.get(path) != now.get(path)]
    for path in sorted(paths, key=lambda path: not path.startswith(_OF_THE_PROGRAM)):
        difference = f"its {path} is {now.get(path)}, and was {saved.get(path)}"
        if path.startswith(_OF_THE_PROGRAM):
            raise InputError(f"The engines in {folder} are for another {kind}: {difference}.")
        warn_caller(
            f"The {kind} may be another than the one of the engines in {folder}, because {difference}. Its first call "
            "exports it, and uses the engines if they have the same program. Save them again.",
            FollowWarning,
        )
        return False
    return True
