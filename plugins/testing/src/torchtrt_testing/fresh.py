"""What loading a pack does to a process, found out in a new one."""

from __future__ import annotations

import functools
import gc
import importlib
import json
import locale
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BEGIN = "\x1e"
"""What the new process prints before it loads the pack."""


@dataclass(frozen=True)
class Loading:
    """What loading a pack did to a new process.

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
    modules, before = set(sys.modules), _state()
    print(end=BEGIN, flush=True)  # what libraries printed is before it
    contents = _load_once(asked["pack"])
    after, imported = _state(), sorted(set(sys.modules) - modules)
    package = f"torchtrt_converters_{asked['pack']}"
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        held: list[Any] = list(vars(sys.modules.pop(name)).values())
        for library in held:
            if isinstance(library, torch.library.Library):
                library._destroy()  # type: ignore[no-untyped-call]  # PyTorch takes no op twice
    found = {
        "imported": imported,
        "changed": list(_differences(before, after)),
        "contents": contents,
        "again": _load_once(asked["pack"]),
    }
    Path(answer).write_text(json.dumps(found), encoding="utf-8")


def _load_once(name: str | None) -> list[str]:
    """Loads one pack, as ``import torchtrt`` would, and returns what it registered."""
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


def _state() -> dict[str, Any]:
    """Returns what is common to a whole process, by a name that a person knows."""
    import torch
    from torch._tensor_str import PRINT_OPTS

    numpy = sys.modules.get("numpy")
    root = logging.getLogger()
    state = {
        "sys.path": list(sys.path),
        "sys.meta_path": list(map(repr, sys.meta_path)),
        "sys.path_hooks": list(map(repr, sys.path_hooks)),
        "sys.excepthook": repr(sys.excepthook),
        "sys.displayhook": repr(sys.displayhook),
        "sys.stdout": repr(sys.stdout),
        "sys.stderr": repr(sys.stderr),
        "sys.getrecursionlimit()": sys.getrecursionlimit(),
        "warnings.filters": list(map(repr, warnings.filters)),
        "os.environ": dict(os.environ),
        "os.getcwd()": os.getcwd(),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the root logger": (root.level, list(map(repr, root.handlers))),
        "gc.get_threshold()": gc.get_threshold(),
        "gc.isenabled()": gc.isenabled(),
        "the handlers of signals": {
            str(each): repr(signal.getsignal(each)) for each in sorted(signal.valid_signals())
        },
        "the running threads": [thread.name for thread in threading.enumerate()],
        "Python's random numbers": hash(random.getstate()),
        "PyTorch's random numbers": hash(bytes(torch.get_rng_state().tolist())),
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.get_default_device()": torch.get_default_device(),
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.get_num_interop_threads()": torch.get_num_interop_threads(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "torch.backends.cudnn": [
            getattr(torch.backends.cudnn, name)
            for name in ("enabled", "benchmark", "deterministic", "allow_tf32")
        ],
        "torch.backends.cuda.matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "torch.set_printoptions(...)": repr(vars(PRINT_OPTS)),
    }
    if numpy is not None:
        state["numpy.geterr()"] = dict(numpy.geterr())
    for owner in (
        torch,
        torch.Tensor,
        torch.nn.Module,
        torch.nn.functional,
        torch.library,
        torch.export,
    ):
        state |= {
            f"{owner.__name__}.{name}": id(value)
            for name, value in vars(owner).items()
            if name[:2] != "__"
        }
    return state


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name, value in before.items():
        if name not in after:
            yield f"{name} is gone"
        elif after[name] != value:
            kept = isinstance(value, int) and name.startswith("torch.") and not name.endswith(")")
            yield f"{name} was replaced" if kept else f"{name} was {value!r} and is {after[name]!r}"


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
    "torchtrt.compiler",
    "torchtrt.lowering",
    "torchtrt_reference",
    "torchtrt_testing",
)
"""Modules that take long to import, and that nobody needs before something is compiled."""


if __name__ == "__main__":
    main(*sys.argv[1:])
