"""The programs of a followed model in a folder."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import torch

from torchtrt.callers import warn_caller
from torchtrt.errors import FollowWarning, InputError
from torchtrt_follow.fingerprint import Fingerprint
from torchtrt_follow.programs import Binding, Program, release
from torchtrt_follow.state import ModelState
from torchtrt_runtime import load, save
from torchtrt_runtime.serialization.folders import NewFolder, read_description, remove_file
from torchtrt_runtime.weights.marks import WatchedWeights
from torchtrt_runtime.weights.recipe import digest

FORMAT = 5
"""The form of the folder. A reader takes its own only."""
_FILE = "followed.json"
_OF_THE_PROGRAM = ("modules of ", "form of ", "memory of ", "devices")
"""The beginnings of facts that make another program if they differ."""


def save_programs(
    folder: Path, model: torch.nn.Module, state: ModelState, bindings: Collection[Binding]
) -> None:
    """Writes programs that have a model's weights, and a description of the model and its state, into a folder.

    Raises:
        InputError: There is no program, or one writes to weights. The folder is as it was.
        UnsupportedProgramError, UnwritableFileError: As of ``torchtrt.save``.
    """
    name = type(model).__name__
    if not bindings:
        raise InputError(f"{name} has no engines to save: none of its calls has been compiled.")
    if written := set[str]().union(*(binding.written for binding in bindings)):
        raise InputError(
            f"A program of {name} writes to its weights ({', '.join(sorted(written))}), whose memory is "
            "the model's own, so it cannot be saved."
        )
    new = NewFolder(folder / _FILE)
    for old in (*folder.glob("program-*.pt2"), *folder.glob("constants-*.pt")):
        remove_file(old)
    rows = []
    for number, binding in enumerate(bindings):
        program = binding.program
        with new.part(f"program-{number}.pt2") as path:
            save(program.compiled, path)
        with new.part(f"constants-{number}.pt") as path:
            torch.save(dict(binding.constants), path)
        rows.append(
            {
                "key": binding.key,
                "names": binding.names,
                "ends": program.ends,
                "stripped": program.compiled.settings.strip_engine_weights,
                "fingerprint": program.fingerprint,
            }
        )
    names = {name for binding in bindings for name in binding.names.values()}
    digests = {name: digest(tensor) for name, tensor in state.tensors().items() if name in names}
    content = {"model": _describe(model, state), "weights": digests, "programs": rows}
    new.describe(content, FORMAT)


def load_programs(folder: Path, model: torch.nn.Module) -> tuple[ModelState, list[Binding], bool]:
    """Returns a model's state, and the programs in a folder. The next call gives them other weights by a refit.

    The third result is whether the programs are certainly for this model; if not, a ``FollowWarning`` says so.

    Raises:
        InputError: There are none in the folder, or they are for another model; or the model has other weights, and the
            engines take none.
        UnreadableFileError, EngineMismatchError: As of ``torchtrt.load``.
    """
    if not (folder / _FILE).is_file():
        raise InputError(f"{folder} has no {_FILE}, which saving a followed model writes.")
    files = read_description(folder / _FILE, FORMAT, "Save the model again")
    digests, state = files.content["weights"], ModelState(model)
    is_same_model = _is_same_model(folder, model, state, files.content["model"])
    watched, tensors = WatchedWeights(state.weights), state.tensors()
    others = sorted(
        name for name, old in digests.items() if name not in tensors or digest(tensors[name]) != old
    )
    bindings = []
    for number, row in enumerate(files.content["programs"]):
        with files.open(f"constants-{number}.pt") as file:
            constants = torch.load(file, weights_only=True)
        own = {inner: tensors[name] for inner, name in row["names"].items() if name in tensors}
        with files.open(f"program-{number}.pt2") as file:
            compiled = load(file, weights={**own, **constants} if row["stripped"] else None)
        release(compiled)
        if compiled.weights is None and others:
            raise InputError(
                f"The engines in {folder} have weights compiled in, and {others[0]!r} of the model is another. Compile "
                "the model, or save engines with immutable_weights=False, which take other weights."
            )
        text, weights = row["fingerprint"]
        fingerprint = Fingerprint(text, tuple(weights))
        binding = Binding(
            Program(compiled, fingerprint, row["ends"]), row["key"], row["names"], constants
        )
        if is_same_model and not others:
            binding.hold(state, watched)
        bindings.append(binding)
    return state, bindings, is_same_model


def _describe(model: torch.nn.Module, state: ModelState) -> dict[str, str]:
    """Returns the description of a model, to compare with that of a model in another process."""
    texts = {path: text for path, (text, _) in state.facts.items()}
    values = {f"value of {path}": digest(tensor) for path, tensor in state.unnamed.items()}
    code = {}
    classes = {base for module in model.modules() for base in type(module).__mro__}
    for name in sorted({base.__module__ for base in classes} | {"torch"}):
        root, module = name.partition(".")[0], sys.modules.get(name)
        code[f"version of {root}"] = str(getattr(sys.modules.get(root), "__version__", None))
        file = Path(getattr(module, "__file__", None) or "")
        if file.is_file():
            code[f"code of {name}"] = hashlib.sha256(file.read_bytes()).hexdigest()
    devices = sorted({str(tensor.device) for tensor in state.weights.values()})
    return {**texts, **values, **code, "devices": " ".join(devices)}


def _is_same_model(
    folder: Path, model: torch.nn.Module, state: ModelState, saved: Mapping[str, str]
) -> bool:
    """Returns whether the programs in a folder are certainly for this model, and warns if not.

    Raises:
        InputError: They are for another model.
    """
    now, kind = _describe(model, state), type(model).__name__
    paths = [path for path in {**saved, **now} if saved.get(path) != now.get(path)]
    if not (paths or state.opaque):
        return True
    if not paths:
        warn_caller(
            f"The {kind} may be another than the one of the engines in {folder}: its {state.opaque[0]!r} is an object "
            "whose class and attributes do not say all of what it is. Its first call exports the model, and uses the "
            "engines if they have the same program.",
            FollowWarning,
        )
        return False
    path = min(paths, key=lambda path: not path.startswith(_OF_THE_PROGRAM))
    difference = f"{path}: {now.get(path) or 'none'} here, {saved.get(path) or 'none'} there"
    if path.startswith(_OF_THE_PROGRAM):
        raise InputError(
            f"The engines in {folder} are not for this {kind}. They differ in the {difference}."
        )
    warn_caller(
        f"The {kind} may be another than the one of the engines in {folder}. They differ in the {difference}. Its "
        "first call exports it, and uses the engines if they have the same program. Save them again.",
        FollowWarning,
    )
    return False
