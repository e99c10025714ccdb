"""Records of compilations in folders: the graph after each step, each decision, and the layers of engines."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path

import torch
from torch.fx import GraphModule, Node

from torchtrt.errors import EngineError, UnwritableFileError
from torchtrt.registry import Resolution
from torchtrt.targets import qualified_name
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import ErrorLog
from torchtrt.tensorrt.selection import describe, is_real, use_module
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.reports.report import BlockReport, CompilationReport
from torchtrt_runtime.serialization.files import check_path

LOG = "compilation.log"
GRAPHS = "graphs"
LAYERS = "layers"


class CompilationRecord:
    """Notes the course of one compilation; by itself nothing."""

    def graph(self, step: str, graph_module: GraphModule) -> None:
        """Notes the graph after a step."""

    def decision(self, kind: str, *parts: object) -> None:
        """Notes a decision: its kind in a word, and its details."""

    def lookup(self, node: Node, resolution: Resolution) -> None:
        """Notes the outcome of a lookup, and each rejection."""

    def partition(self, report: CompilationReport) -> None:
        """Notes the blocks, and why other nodes stay in PyTorch."""

    def engine(self, row: BlockReport, seconds: float) -> None:
        """Notes an engine that was built, or taken from a cache."""

    def layers(self, engine: EngineModule) -> None:
        """Notes TensorRT's information on the layers of an engine, under the name that it has at the end."""


def check_empty(folder: Path) -> None:
    """Checks that nothing is in the folder of a record, or that there is none yet.

    Raises:
        UnwritableFileError: There is.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise UnwritableFileError(
            f"The folder {folder} is not empty. A record of a compilation needs a folder of its own: name another, or "
            "remove what is in it."
        )


class FolderRecord(CompilationRecord):
    """Writes a compilation into a folder.

    Args:
        folder: The folder. It must be empty, or not exist.

    Raises:
        UnwritableFileError: It holds something, or cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._start = time.perf_counter()
        self._graphs = 0
        try:
            check_path(folder)
            folder.mkdir(parents=True, exist_ok=True)
            check_empty(folder)
            # Exclusively: of two processes that found it empty, one writes.
            self._log = (folder / LOG).open("x", encoding="utf-8", errors="backslashreplace")
            (folder / GRAPHS).mkdir()
            (folder / LAYERS).mkdir()
        except OSError as error:
            if isinstance(error, UnwritableFileError):
                raise
            raise UnwritableFileError(
                f"The folder {folder} cannot be written to: {error.strerror or error}. Name another."
            ) from error
        self.decision("compiles for", describe())

    def close(self, error: BaseException | None = None) -> None:
        """Notes the end, and closes the log."""
        if error is None:
            self.decision("ends")
        else:
            self.decision("fails", f"{type(error).__name__}: {error}")
        self._log.close()

    def graph(self, step: str, graph_module: GraphModule) -> None:
        """Writes a graph into a file that is named after its number and the step."""
        try:
            text = graph_module.print_readable(print_output=False)
        except Exception as error:  # code of PyTorch's that a strange graph may stop
            text = f"# PyTorch cannot print the module: {type(error).__name__}: {error}\n{graph_module.graph}"
        safe = "".join(
            character if character.isalnum() or character in "._-" else "-" for character in step
        )
        name = f"{self._graphs:02}-{safe}.txt"
        self._graphs += 1
        text = f"# {step}\n{text}\n"
        self._write(f"{GRAPHS}/{name}", text)
        self.decision("graph", f"{GRAPHS}/{name}")

    def _write(self, name: str, text: str) -> None:
        try:
            (self.folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UnwritableFileError(
                f"{self.folder / name} cannot be written: {error.strerror or error}."
            ) from error

    def decision(self, kind: str, *parts: object) -> None:
        """Writes a line: the seconds since the start, the kind, and the rest."""
        text = " ".join("; ".join(str(part).splitlines()) for part in parts)
        self._log.write(f"{time.perf_counter() - self._start:9.3f}  {kind:<14} {text}\n")
        self._log.flush()

    def lookup(self, node: Node, resolution: Resolution) -> None:
        """Writes a line for each rejection, and one for the outcome."""
        subject = f"{node.name} ({qualified_name(node.target)})"
        for rejection in resolution.rejections:
            candidate = rejection.candidate
            who = (
                ""
                if candidate is None
                else f"{candidate.pack.label} {candidate.qualified_function}: "
            )
            self.decision("rejected", f"{subject}: {who}{rejection.reason} [{rejection.code}]")
        chosen = resolution.chosen
        outcome = "none" if chosen is None else f"{chosen.pack.label} {chosen.qualified_function}"
        self.decision("lookup", f"{subject}: {outcome}")

    def partition(self, report: CompilationReport) -> None:
        """Writes a line for each block, and for each node that stays in PyTorch."""
        for block in report.blocks:
            self.decision("block", f"{block.name}: nodes={block.nodes}")
        for entry in report.in_torch:
            self.decision("in PyTorch", f"{entry.node} ({entry.op}): {entry.reason}")

    def engine(self, row: BlockReport, seconds: float) -> None:
        """Writes a line for an engine."""
        kind = "cached" if row.cached else "built"
        sizes = f"nodes={row.nodes} layers={row.layers} bytes={row.plan_bytes}"
        self.decision(kind, f"{row.name} in {seconds:.3f} s: {sizes}")

    def layers(self, engine: EngineModule) -> None:
        """Writes TensorRT's information on the layers of an engine into a file."""
        try:
            text = layer_information(engine)
        except (EngineError, ValueError) as error:
            self.decision("no layers", f"{engine.name}: {error}")
            return
        self._write(f"{LAYERS}/{engine.name}.json", text)


def layer_information(engine: EngineModule) -> str:
    """Returns TensorRT's information on the layers of an engine, as JSON.

    Raises:
        EngineError: The engine cannot be loaded on this machine.
        ValueError: TensorRT gives no JSON.
    """
    with use_module(engine.tensorrt_module), ErrorLog() as log:
        loaded = engine.deserialize(torch.device("cuda" if is_real() else "cpu"))
        if loaded.engine is None:
            raise EngineError(f"{describe()} cannot load it here: {log.text()}")
        inspector = loaded.engine.create_engine_inspector()
        text: str = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return json.dumps(json.loads(text), indent=1) + "\n"


_folders: ContextVar[Iterator[Path] | None] = ContextVar("torchtrt_record_folders", default=None)
"""The folders of the compilations inside a ``with`` block, one after another."""
_record: ContextVar[CompilationRecord] = ContextVar("torchtrt_record", default=CompilationRecord())  # noqa: B039


def current_record() -> CompilationRecord:
    """Returns the record of the compilation that runs in this thread; one that notes nothing if there is none."""
    return _record.get()


@contextlib.contextmanager
def record_compilation(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Records each compilation inside a ``with`` block, in this thread (or task), in a folder.

    The folder then holds the log ``compilation.log``, ``graphs/`` with the graph after each step, and ``layers/``
    with TensorRT's information on each engine. A second compilation writes into ``compilation-2`` inside, and so on.

    Args:
        folder: An empty folder, or one that does not exist.

    Yields:
        The folder.

    Raises:
        UnwritableFileError: The folder holds something, or cannot be written to; raised by the compilation.
    """
    path = Path(folder)
    further = (path / f"compilation-{number}" for number in itertools.count(2))
    token = _folders.set(itertools.chain([path], further))
    try:
        yield path
    finally:
        _folders.reset(token)


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Records a compilation inside a ``with`` block if ``record_compilation`` asks for it."""
    folders = _folders.get()
    if folders is None:
        yield
        return
    record = FolderRecord(next(folders))
    token = _record.set(record)
    try:
        yield
    except BaseException as error:
        record.close(error)
        raise
    else:
        record.close()
    finally:
        _record.reset(token)


def names_of(nodes: Iterable[Node]) -> str:
    """Returns the names and the ops of nodes, for a line of the log."""
    return ", ".join(f"{node.name} ({qualified_name(node.target)})" for node in nodes)
