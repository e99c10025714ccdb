"""The effects of loading a pack, observed in a new process."""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtrt.packs.process_state import differences, process_state

BEGIN = "\x1e"
"""The line that the new process prints before it loads the pack."""


@dataclass(frozen=True)
class Loading:
    """The effects of loading a pack on a new process.

    Attributes:
        imported: The modules that it imported.
        changed: What it changed of the process, of Python and of PyTorch, in words.
        printed: What it printed to standard output.
        contents: What it registered, line by line.
        again: What it registered when its modules were imported once more.
    """

    imported: tuple[str, ...]
    changed: tuple[str, ...]
    printed: str
    contents: tuple[str, ...]
    again: tuple[str, ...]


@functools.cache
def load_in_new_process(pack: str, libraries: tuple[str, ...] = (), seed: int = 0) -> Loading:
    """Returns what loading a pack does to a process that has only PyTorch, torchtrt and some libraries.

    Args:
        pack: The pack's name.
        libraries: What is imported first, for the ops that it registers.
        seed: The seed of Python's hashes.

    Raises:
        RuntimeError: The process ended early.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        path = os.pathsep.join(entry for entry in sys.path if entry)
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith("TORCHTRT_PACKS")
        }
        environment = {
            **inherited,
            "PYTHONPATH": path,
            "PYTHONHASHSEED": str(seed),
            "TORCHTRT_PACKS": "",
        }
        request = json.dumps({"pack": pack, "libraries": libraries})
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(answer), request],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode or not answer.exists():
            raise RuntimeError(
                f"Loading the pack {pack!r} ended the process, with exit status {done.returncode}:\n{done.stderr}"
            )
        found = json.loads(answer.read_text(encoding="utf-8"))
    return Loading(
        tuple(found["imported"]), tuple(found["changed"]), done.stdout.partition(BEGIN)[2],
        tuple(found["contents"]), tuple(found["again"]),
    )  # fmt: skip


def main(answer: str, request: str) -> None:
    """Loads a pack and writes down what that did."""
    import torch

    import torchtrt  # noqa: F401

    asked = json.loads(request)
    for library in asked["libraries"]:
        importlib.import_module(library)
    _load_once(None)  # what loading any pack imports
    modules, before = set(sys.modules), process_state()
    print(end=BEGIN, flush=True)  # what libraries printed is before it
    contents = _load_once(asked["pack"])
    after, imported = process_state(), sorted(set(sys.modules) - modules)
    package = f"torchtrt_converters_{asked['pack']}"
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        held: list[Any] = list(vars(sys.modules.pop(name)).values())
        for library in held:
            if isinstance(library, torch.library.Library):
                library._destroy()  # PyTorch takes no op twice
    found = {
        "imported": imported,
        "changed": list(differences(before, after)),
        "contents": contents,
        "again": _load_once(asked["pack"]),
    }
    Path(answer).write_text(json.dumps(found), encoding="utf-8")


def _load_once(name: str | None) -> list[str]:
    """Loads one pack, as a first use of packs would, and returns what it registered."""
    from torchtrt.contract import check_names, qualified_function
    from torchtrt.packs import ConverterPack
    from torchtrt.packs.environment import read_selection
    from torchtrt.packs.load import load
    from torchtrt.packs.scan import Scan, scan
    from torchtrt.targets import qualified_name

    found = tuple(each for each in scan().packs if each.info.name == name)
    packs, problems = load(Scan(found, ()), read_selection({}), ConverterPack("local"))
    if problems:
        return [str(problem) for problem in problems]
    if name is None:
        return []

    def called(target: Any) -> str:
        return target if isinstance(target, str) else qualified_name(target)

    pack = packs.loaded[0].pack
    return [
        *(
            f"{called(each.target)} {each.priority.name} {qualified_function(each.support.converter_implementation)} "
            f"{check_names(each.support.capability_validator)} {each.support.supports_dynamic_shapes}"
            for each in pack.converters
        ),
        *(
            f"{called(each.target)} {each.priority.name} {qualified_function(each.function)}"
            for each in pack.decompositions
        ),
        *(f"{each.name} {qualified_function(each.function)}" for each in pack.lowering_passes),
    ]


def foreign(imported: Sequence[str], allowed: Sequence[str]) -> list[str]:
    """Returns the modules that loading a pack should not import: other libraries, and what is slow of PyTorch.

    Args:
        imported: The modules that it imported.
        allowed: Packages and modules that it may import all the same.
    """
    tops = {*sys.stdlib_module_names, "torch", "torchtrt"}
    return [
        name
        for name in imported
        if not _is_in(name, allowed)
        and (
            (name.split(".")[0] not in tops and not name.startswith("torchtrt_"))
            or _is_in(name, SLOW)
        )
    ]


def _is_in(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


SLOW = (
    "torch._dynamo",
    "torch._export",
    "torch._functorch",
    "torch._inductor",
    "torch.distributed",
    "torch.export",
    "torch.fx.experimental",
    "torch.onnx",
    "torch.testing",
    "torch.utils.tensorboard",
    "torchtrt_compiler.compiler",
    "torchtrt_compiler.lowering",
    "torchtrt_reference",
    "torchtrt_testing",
)
"""Modules that take long to import, and that nobody needs before something is compiled."""


if __name__ == "__main__":
    main(*sys.argv[1:])
