"""Work in processes with a time limit: what crashes or hangs costs one process, which is started anew.

A worker is asked for several items at once. Where it ends or hangs, another one is asked for each half of the items
without an answer, down to the single item that is the matter.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtrt.errors import TorchTRTError
from torchtrt_testing.verification.findings import CRASHED, LATE, of_error

START = 300.0
"""The seconds after which a process that has not started is an error."""
_TAIL = 300
"""The maximum number of characters of a lost process' last line."""

Row = dict[str, Any]
"""The outcome of an item as plain data: ``item``, ``outcome``, ``message``, ``seconds`` and what a part adds."""


@dataclass(frozen=True)
class Part:
    """One kind of items.

    Attributes:
        names: Returns the names of all of them.
        check: Takes some, and yields for each its name and its row without ``item`` and ``seconds``.
        at_once: The maximum number of items that a worker is asked for at once.
        kind: Returns what items that are asked for together have in common.
    """

    names: Callable[[], Iterable[str]]
    check: Callable[[list[str]], Iterator[tuple[str, Row]]]
    at_once: int = 1
    kind: Callable[[str], str] = str


def groups(items: Iterable[str], parts: Mapping[str, Part]) -> list[list[str]]:
    """Returns what workers are asked for at once: items of one part and kind, in the order of their first.

    Args:
        items: The items, ``part:name``.
        parts: The parts by name.
    """
    batches: list[list[str]] = []
    latest: dict[tuple[str, str], list[str]] = {}
    for item in items:
        name, _, rest = item.partition(":")
        key = name, parts[name].kind(rest)
        if key not in latest or len(latest[key]) == parts[name].at_once:
            latest[key] = []
            batches.append(latest[key])
        latest[key].append(item)
    return batches


# In the worker


def work(parts: Mapping[str, Part]) -> None:
    """Answers, in a worker, with one row for each item that is asked for, until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # TensorRT prints to standard output
    asked: list[list[str]] = []
    arrived = threading.Semaphore(0)
    threading.Thread(target=_read, args=(asked, arrived), daemon=True).start()
    answers.write("{}\n")
    while True:
        arrived.acquire()
        for row in _rows(asked.pop(0), parts):
            answers.write(json.dumps(row) + "\n")
            if row.get("ends"):
                answers.flush()
                os._exit(0)


def _read(asked: list[list[str]], arrived: threading.Semaphore) -> None:
    """Takes requests from standard input; its end ends the process, even in the middle of an item."""
    for line in sys.stdin:
        asked.append(json.loads(line))
        arrived.release()
    os._exit(0)


def _rows(items: list[str], parts: Mapping[str, Part]) -> Iterator[Row]:
    name = items[0].partition(":")[0]
    left = {item.partition(":")[2]: item for item in items}
    try:
        for short, row in parts[name].check(list(left)):
            yield {"item": left.pop(short), **row, **({} if gpu_answers() else {"ends": True})}
    except Exception as error:  # of a part itself
        failed = of_error(error)
        for item in left.values():
            yield {"item": item, "outcome": failed.kind, "message": failed.message}


def gpu_answers() -> bool:
    """Returns whether the GPU, if PyTorch uses one, still works: an invalid access ends its context for all."""
    import torch

    if not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except Exception:
        return False
    return True


# In the process that asks


class _Worker:
    """A worker process and its items."""

    def __init__(self, command: Sequence[str], threads: int, folder: Path) -> None:
        descriptor, name = tempfile.mkstemp(dir=folder, suffix=".log")
        self._log = Path(name)
        own = {"TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=descriptor,
            env={"OMP_NUM_THREADS": str(threads), **os.environ, **own},
            bufsize=0,
            start_new_session=True,  # with its own children: Ctrl-C reaches the asking process alone
        )
        os.close(descriptor)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.items: list[str] = []
        self.since = time.monotonic()
        self.has_started = False
        self.asked = 0
        self._unread = b""
        self._position = 0

    def ask(self, items: list[str]) -> None:
        """Asks for some items of one part."""
        self.items, self.since = list(items), time.monotonic()
        self.asked += 1
        self._position = self._log.stat().st_size
        with contextlib.suppress(BrokenPipeError):  # it has ended, which its output shows
            self.stdin.write(f"{json.dumps(items)}\n".encode())

    def answers(self) -> list[Row] | None:
        """Returns the rows that have come since; ``None`` where the process has ended."""
        came = os.read(self.stdout.fileno(), 1 << 16)
        *lines, self._unread = (self._unread + came).split(b"\n")
        rows = [json.loads(line) for line in lines]
        if rows and not self.has_started:
            self.has_started, self.since = True, time.monotonic()
            rows = rows[1:]
        return rows if came else None

    def last_line(self) -> str:
        """Returns the last line that it printed about its items."""
        with self._log.open("rb") as file:
            file.seek(self._position)
            lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1][-_TAIL:] if lines else ""

    def end(self) -> int:
        """Ends the process and its children, whatever they are doing; returns the exit status."""
        self.process.kill()
        if kill_group := getattr(os, "killpg", None):  # Windows has none
            with contextlib.suppress(ProcessLookupError):
                kill_group(self.process.pid, 9)
        status = self.process.wait()
        self.stdin.close()
        self.stdout.close()
        self._log.unlink(missing_ok=True)
        return status


class _Pool:
    """The workers, and the groups of items that are left."""

    def __init__(
        self, left: Iterable[list[str]], command: Sequence[str], jobs: int, folder: Path
    ) -> None:
        self.left = list(left)[::-1]
        self.rows: list[Row] = []
        self._command, self._jobs, self._folder = command, jobs, folder
        self._selector = selectors.DefaultSelector()
        self._idle: list[_Worker] = []
        self._busy: dict[Any, _Worker] = {}

    def is_done(self) -> bool:
        """Returns whether every item has a row."""
        return not (self.left or self._busy)

    def start(self) -> None:
        """Gives groups of items to idle and new workers."""
        threads = max(1, (os.cpu_count() or 1) // self._jobs)
        while self.left and len(self._busy) < self._jobs:
            worker = (
                self._idle.pop() if self._idle else _Worker(self._command, threads, self._folder)
            )
            self._busy[worker.stdout] = worker
            self._selector.register(worker.stdout, selectors.EVENT_READ)
            worker.ask(self.left.pop())

    def read(self) -> None:
        """Takes the rows that workers have sent, after a second at the most."""
        for key, _ in self._selector.select(timeout=1):
            worker = self._busy[key.fileobj]
            answers = worker.answers()
            for row in answers or ():
                worker.items.remove(row["item"])
                ends = row.pop("ends", False)
                self._add(worker, row)
                if ends:
                    self._replace(worker)
                    break
            else:
                if answers is None:
                    self._release(worker)
                    self._lose(worker)
                elif not worker.items:
                    self._release(worker)
                    self._idle.append(worker)

    def end_late(self, seconds: float, first: float) -> None:
        """Ends the workers that have sent no row for ``seconds``, and ``first`` more for their first items."""
        for worker in list(self._busy.values()):
            limit = seconds + (first if worker.asked == 1 else 0)
            if time.monotonic() - worker.since > (limit if worker.has_started else START):
                self._release(worker)
                self._lose(worker, f"after {limit:.0f} s")

    def end(self) -> None:
        """Ends all workers."""
        self._selector.close()
        for worker in (*self._idle, *self._busy.values()):
            worker.end()

    def _release(self, worker: _Worker) -> None:
        self._selector.unregister(worker.stdout)
        del self._busy[worker.stdout]

    def _replace(self, worker: _Worker) -> None:
        """Ends a worker whose GPU does not answer any more; its further items are asked for again."""
        self._release(worker)
        worker.end()
        if worker.items:
            self.left.append(worker.items)

    def _lose(self, worker: _Worker, late: str = "") -> None:
        """Ends a worker. Its only item gets a row; of several, each half is asked for again.

        Raises:
            TorchTRTError: The worker did not start.
        """
        last, items = worker.last_line(), worker.items
        status = worker.end()
        if not worker.has_started:
            raise TorchTRTError(
                f"A worker process did not start (exit status {status}): {last or 'it printed nothing'}. "
                "`torchtrt doctor` says what is wrong here."
            )
        if len(items) == 1:
            message = late or ": ".join(filter(None, (f"exit status {status}", last)))
            self._add(
                worker, {"item": items[0], "outcome": LATE if late else CRASHED, "message": message}
            )
        else:
            middle = len(items) // 2
            self.left.extend(half for half in (items[middle:], items[:middle]) if half)

    def _add(self, worker: _Worker, row: Row) -> None:
        now = time.monotonic()
        self.rows.append({**row, "seconds": round(now - worker.since, 1)})
        worker.since = now


def outcomes(
    left: Iterable[list[str]],
    command: Sequence[str],
    *,
    jobs: int,
    seconds: float,
    total: float | None = None,
    first: float = 60.0,
) -> Generator[Row, None, None]:
    """Yields a row for each item, as they come. No worker outlives the iteration.

    Args:
        left: The groups of items, as ``groups`` returns them.
        command: The command that starts a worker, which calls ``work``.
        jobs: The number of workers.
        seconds: The longest time that a worker may take until its next row.
        total: The seconds after which the iteration stops, although items are left.
        first: The seconds that a worker's first items may take in addition: its first network loads TensorRT's kernels.

    Raises:
        TorchTRTError: A worker does not start.
    """
    end = time.monotonic() + (float("inf") if total is None else total)
    with tempfile.TemporaryDirectory(prefix="torchtrt-workers-") as folder:
        pool = _Pool(left, command, jobs, Path(folder))
        try:
            while not pool.is_done() and time.monotonic() < end:
                pool.start()
                pool.read()
                pool.end_late(seconds, first)
                while pool.rows:
                    yield pool.rows.pop(0)
        finally:
            pool.end()


def rows_of(path: Path) -> list[Row]:
    """Returns the rows of a file with one JSON object a line; an unfinished last line is no row."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
