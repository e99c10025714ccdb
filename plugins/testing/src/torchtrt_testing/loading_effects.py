"""The effects of loading a pack, observed in a new process."""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
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

    imported: Sequence[str]
    changed: Sequence[str]
    printed: str
    contents: Sequence[str]
    again: Sequence[str]


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
    path = os.pathsep.join(entry for entry in sys.path if entry)
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(
            ("TORCHTRT_PACKS", "PYTEST_CURRENT_TEST")
        )  # pytest's is new each time
    }
    environment = {
        **inherited,
        "PYTHONPATH": path,
        "PYTHONHASHSEED": str(seed),
        "TORCHTRT_PACKS": "",
    }
    with tempfile.TemporaryDirectory() as folder:
        answer, printed, errors = (Path(folder, name) for name in ("answer", "printed", "errors"))
        request = {"pack": pack, "libraries": libraries, "answer": str(answer)}
        server = _server(tuple(sorted(environment.items())))
        status = server.run({**request, "printed": str(printed), "errors": str(errors)})
        if status or not answer.exists():
            raise RuntimeError(
                f"Loading the pack {pack!r} ended the process, with exit status {status}:\n"
                + errors.read_text(encoding="utf-8", errors="replace")
            )
        effects = json.loads(answer.read_text(encoding="utf-8"))
        output = printed.read_text(encoding="utf-8").partition(BEGIN)[2]
    return Loading(printed=output, **effects)


class _Server:
    """A Python that has imported PyTorch and torchtrt, and forks for each pack: only the first one waits for them.

    Windows has no forks; there, the process starts another Python for each pack.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        atexit.register(self._process.communicate)  # which ends its input, and with it the process

    def run(self, request: Mapping[str, Any]) -> int:
        """Loads a pack in a new process, and returns the exit status."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(request), file=self._process.stdin, flush=True)
        status = self._process.stdout.readline()
        if not status:
            raise RuntimeError(
                f"Python cannot import torchtrt: it ended with exit status {self._process.wait()}."
            )
        return int(status)


@functools.cache
def _server(environment: tuple[tuple[str, str], ...]) -> _Server:
    return _Server(dict(environment))


def serve() -> None:
    """Loads a pack in a new process for each request of standard input, and prints the process' exit status."""
    import torch  # noqa: F401

    import torchtrt  # noqa: F401

    _load_once(None)  # what loading any pack imports
    for line in sys.stdin:
        print(_status_of(line), flush=True)


def _status_of(request: str) -> int:
    """Returns the exit status of a process that loads a pack."""
    fork = getattr(os, "fork", None)
    if fork is None:  # Windows, where each process imports PyTorch itself
        command = [sys.executable, "-m", "torchtrt_testing.loading_effects", request]
        return subprocess.run(command, check=False).returncode
    child: int = fork()
    if child == 0:
        _redirected(json.loads(request))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _redirected(request: Mapping[str, Any]) -> None:
    """Loads a pack with output to files, and ends the process."""
    for stream, name in ((1, "printed"), (2, "errors")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT), stream)
    status = 1
    try:
        load_and_describe(request)
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def load_and_describe(request: Mapping[str, Any]) -> None:
    """Loads a pack and writes down what that did."""
    import torch

    for library in request["libraries"]:
        importlib.import_module(library)
    modules, before = set(sys.modules), process_state()
    print(end=BEGIN, flush=True)  # what libraries printed is before it
    contents = _load_once(request["pack"])
    after, imported = process_state(), sorted(set(sys.modules) - modules)
    package = f"torchtrt_converters_{request['pack']}"
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        held: list[Any] = list(vars(sys.modules.pop(name)).values())
        for library in held:
            if isinstance(library, torch.library.Library):
                library._destroy()  # PyTorch takes no op twice
    effects = {
        "imported": imported,
        "changed": list(differences(before, after)),
        "contents": contents,
        "again": _load_once(request["pack"]),
    }
    Path(request["answer"]).write_text(json.dumps(effects), encoding="utf-8")


def _load_once(name: str | None) -> list[str]:
    """Loads one pack, as a first use of packs would, and returns what it registered."""
    from torchtrt.contract import check_names, qualified_function
    from torchtrt.packs import ConverterPack
    from torchtrt.packs.environment import read_selection
    from torchtrt.packs.load import load
    from torchtrt.packs.scan import Scan, scan
    from torchtrt.targets import qualified_name

    extensions = tuple(pack for pack in scan().packs if pack.info.name == name)
    packs, problems = load(Scan(extensions, ()), read_selection({}), ConverterPack("local"))
    if problems:
        return [str(problem) for problem in problems]
    if name is None:
        return []

    pack = packs.loaded[0].pack
    contents = []
    for converter in pack.converters:
        support = converter.support
        checks = check_names(support.capability_validator)
        function = qualified_function(support.converter_implementation)
        contents.append(
            f"{qualified_name(converter.target)} {converter.priority.name} {function} {checks} "
            f"{support.supports_dynamic_shapes}"
        )
    for decomposition in pack.decompositions:
        function = qualified_function(decomposition.function)
        contents.append(
            f"{qualified_name(decomposition.target)} {decomposition.priority.name} {function}"
        )
    for pass_ in pack.lowering_passes:
        contents.append(f"{pass_.name} {qualified_function(pass_.function)}")
    return contents


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
    "torchtrt_compiler.api",
    "torchtrt_compiler.lowering",
    "torchtrt_reference",
    "torchtrt_testing",
)
"""Modules that take long to import, and that are not needed before something is compiled."""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _redirected(json.loads(sys.argv[1]))
    serve()
