"""Everything that has a known answer, on the TensorRT in use.

``TORCHTRT_TENSORRT=real python -m tools.sweep OUT.jsonl --jobs 14 --seconds 60 cases architectures samples``

Items run in worker processes with a time limit: what crashes or hangs costs one worker, which is started anew. Of the
samples a worker checks several items in one engine; where those crash or hang it is asked again for each half of them.
Outcomes are appended as they come, so an interrupted sweep has what it has, and a second one goes on behind it.
``--reversed`` begins at the other end, and ``--items FILE`` runs only the items that a file names, in its order.
``python -m tools.sweep OUT.jsonl --table`` summarizes a file.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import selectors
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REAL = {"disable_tf32": True, "tactic_sources": 0, "optimization_level": 1}
"""Settings for a TensorRT without cuBLAS and cuDNN, which builds small networks in a second."""
ANSWER = "\x1e"
"""The prefix of a worker's lines that are answers; TensorRT prints too."""
WORK = (sys.executable, "-m", "tools.sweep", "-", "--work")
"""The command that starts a worker."""
FIRST = 60
"""The seconds that a process' first item may take in addition."""


@dataclass(frozen=True)
class Part:
    """One kind of items.

    Attributes:
        names: Returns the names of all of them.
        check: Takes some, and yields of each its name and what becomes a row of the file: ``outcome``, and more.
        at_once: How many a worker is asked for at once.
        kind: Returns what names have in common that are asked for together.
    """

    names: Callable[[], Iterable[str]]
    check: Callable[[list[str]], Iterator[tuple[str, dict[str, Any]]]]
    at_once: int = 1
    kind: Callable[[str], str] = str


def cases() -> dict[str, Callable[[], None]]:
    """Returns every pack's cases by label."""
    from torchtrt.testing import first_party_cases
    from torchtrt_testing.checking import check_where_exact

    return {
        f"{place} {case.label}": lambda case=case: check_where_exact(case, REAL)
        for place, case in enumerate(first_party_cases())
    }


def extremes() -> dict[str, Callable[[], None]]:
    """Returns every pack's cases whose sizes vary, with all of them 1, at their maximum, and from 1 to it."""
    from torchtrt.testing import first_party_cases

    return {
        f"{place} {case.label} {name}": functools.partial(_check_extreme, case, name)
        for place, case in enumerate(first_party_cases())
        if case.varies and not case.rejected
        for name in ("one", "maximum", "from-one")
    }


def _check_extreme(case: Any, name: str) -> None:
    """Checks a case at sizes that it does not name, where eager PyTorch takes them.

    Raises:
        AssertionError: The results differ.
    """
    import torch

    from torchtrt.errors import InputError
    from torchtrt_testing.checking import check_where_exact
    from torchtrt_testing.tensors import MINIMUM

    low, usual, high = zip(*case.dimensions.values(), strict=True)
    points = {"one": [(1, 1, 1)] * len(low), "maximum": [(each,) * 3 for each in high]}
    points["from-one"] = [(1, *each) for each in zip(usual, high, strict=True)]
    sizes = dict(zip(case.dimensions, points[name], strict=True))
    extreme = dataclasses.replace(case, dimensions=sizes, ops=())  # some vanish at fixed sizes
    try:
        with torch.no_grad():
            extreme.model()(*extreme.inputs(MINIMUM))
    except Exception as error:
        raise _NotApplicableError(f"eager PyTorch refuses these sizes: {error}") from error
    try:
        check_where_exact(extreme, REAL, varying=name == "from-one")
    except InputError as error:
        raise _NotApplicableError(f"the program does not take these sizes: {error}") from error


def attention() -> dict[str, Callable[[], None]]:
    """Returns attention with every kind of mask, for few and many queries and keys, widths, dtypes and places."""
    from tools.sweep import attention as grid

    return {each.label: functools.partial(each.check, REAL) for each in grid.GRID}


def steps() -> dict[str, Callable[[], None]]:
    """Returns a step of a language model in several forms, which should be one engine each."""
    from tools.sweep import steps as grid

    return {each.label: functools.partial(each.check, REAL) for each in grid.GRID}


def architectures() -> dict[str, Callable[[], None]]:
    """Returns every architecture with fixed and with dynamic sizes."""
    from tests.architectures import test_architectures
    from tests.architectures.zoo import ZOO

    test_architectures.REAL.update(REAL)
    check = test_architectures.check
    return {
        f"{each.name} {'varying' if varying else 'fixed'}": lambda each=each, varying=varying: (
            check(each, varying)
        )
        for varying in (False, True)
        for each in ZOO
    }


def samples() -> list[str]:
    """Returns each op and dtype of PyTorch's OpInfo database."""
    from torchtrt_testing.op_info import ops

    return [f"{name} {dtype}" for name in ops() for dtype in _dtypes()]


def _dtypes() -> dict[str, Any]:
    from torchtrt_testing.op_info import DTYPES

    return {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}


def check_samples(names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Checks the first four samples of ops: each that is converted whole has PyTorch's values."""
    from tools.sweep import together
    from torchtrt.tensorrt import is_real
    from torchtrt_testing.op_info import samples_of

    items = {}
    for name in names:
        op, dtype = name.split()
        items[name] = samples_of(op, _dtypes()[dtype])[:4]
    for name, found in together.check_samples(items, **(REAL if is_real() else {})):
        wrong = _shorten("; ".join(found.wrong))
        outcome = f"AssertionError: {wrong}" if wrong else "right"
        rest = {
            key: value for key, value in asdict(found).items() if key != "wrong" and value != ()
        }
        yield name, {"outcome": outcome, **rest}


class _NotApplicableError(Exception):
    """An item cannot be tried."""


def one_by_one(part: Callable[[], dict[str, Callable[[], None]]]) -> Part:
    """Returns the part of what is checked by functions without arguments, which raise where it is wrong."""
    known = functools.cache(part)

    def check(names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name in names:
            try:
                known()[name]()
                yield name, {"outcome": "right"}
            except _NotApplicableError as reason:
                yield name, {"outcome": f"not applicable: {_shorten(str(reason))}"}
            except Exception as error:
                yield name, {"outcome": _error(error)}

    return Part(known, check)


def _error(error: Exception) -> str:
    text = str(error) or traceback.format_exc(limit=-2)
    return f"{type(error).__name__}: {_shorten(text)}"


def _shorten(text: str) -> str:
    return " ".join(text.split())[:600]


PARTS = {
    "cases": one_by_one(cases),
    "extremes": one_by_one(extremes),
    "attention": one_by_one(attention),
    "steps": one_by_one(steps),
    "architectures": one_by_one(architectures),
    "samples": Part(samples, check_samples, 8, lambda name: name.split()[-1]),
}


def work() -> None:
    """Answers with what became of the items that are asked for, one line for each, until there are no more."""
    import torch

    warnings.simplefilter("ignore")
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for line in sys.stdin:
        asked = [item.partition(":") for item in json.loads(line)]
        left = {name: f"{part}:{name}" for part, _, name in asked}
        try:
            for name, found in PARTS[asked[0][0]].check(list(left)):
                _answer(left.pop(name), found)
        except Exception as error:
            for item in left.values():
                _answer(item, {"outcome": _error(error)})


def _answer(item: str, found: dict[str, Any]) -> None:
    print(ANSWER + json.dumps({"item": item, **found}), flush=True)


class _Worker:
    """A worker process, and what it is doing."""

    def __init__(self, command: Sequence[str], threads: int) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.unread = b""
        self.items: list[str] = []
        self.since = 0.0
        self.asked = 0

    def ask(self, items: list[str]) -> None:
        """Begins with some items of one part."""
        self.items, self.since = items, time.monotonic()
        self.asked += 1
        self.stdin.write(f"{json.dumps(items)}\n".encode())

    def answers(self) -> list[dict[str, Any]] | None:
        """Returns what has come since, one row for each item that is done; None where the process has ended."""
        came = os.read(self.stdout.fileno(), 1 << 16)
        *lines, self.unread = (self.unread + came).split(b"\n")
        marked = [line.partition(ANSWER.encode())[2] for line in lines]
        return [json.loads(answer) for answer in marked if answer] if came else None

    def end(self) -> None:
        """Ends the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        self.stdin.close()
        self.stdout.close()


def groups(items: Iterable[str]) -> Iterator[list[str]]:
    """Yields what a worker is asked for at once: neighbours of one part and kind, in the order of their first."""
    found: list[list[str]] = []
    latest: dict[tuple[str, str], list[str]] = {}
    for item in items:
        name, _, rest = item.partition(":")
        part = PARTS[name]
        key = name, part.kind(rest)
        if key not in latest or len(latest[key]) == part.at_once:
            latest[key] = []
            found.append(latest[key])
        latest[key].append(item)
    yield from found


class _Sweep:
    """The workers of a sweep, and the items that are left.

    Attributes:
        out: The file, to which a row is added for each item: its outcome, and the seconds since the worker's last one.
        pending: The groups of items that are left; the next one is last.
    """

    def __init__(self, out: Path, items: Iterable[str], command: Sequence[str]) -> None:
        done = {row["item"] for row in rows(out)}
        self.out = out
        self.pending = list(groups(item for item in items if item not in done))[::-1]
        self._command = command
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._busy: dict[Any, _Worker] = {}

    def is_done(self) -> bool:
        """Returns whether every item has an outcome."""
        return not (self.pending or self._busy)

    def start(self, jobs: int) -> None:
        """Gives idle and new workers groups of items, until ``jobs`` workers are busy."""
        threads = max(1, (os.cpu_count() or 1) // jobs)
        while self.pending and len(self._busy) < jobs:
            if not self._idle:
                self._idle.append(_Worker(self._command, threads))
                self._workers.append(self._idle[-1])
            worker = self._idle.pop()
            worker.ask(self.pending.pop())
            self._busy[worker.stdout] = worker
            self._selector.register(worker.stdout, selectors.EVENT_READ)

    def read(self) -> None:
        """Writes the outcomes that workers have sent, after a second at the most."""
        for key, _ in self._selector.select(timeout=1):
            worker = self._busy[key.fileobj]
            answers = worker.answers()
            for row in answers or ():
                worker.items.remove(row["item"])
                self._write(worker, row)
            if answers is not None and worker.items:
                continue
            self._release(worker)
            if worker.items:
                self._give_up(worker, f"crashed: exit status {worker.process.wait()}")
            else:
                self._idle.append(worker)

    def end_late(self, seconds: float) -> None:
        """Ends the workers that have sent no outcome for ``seconds``."""
        for worker in list(self._busy.values()):
            # The first network of a process loads TensorRT's kernels.
            limit = seconds + (FIRST if worker.asked == 1 else 0)
            if time.monotonic() - worker.since > limit:
                self._release(worker)
                worker.process.kill()
                self._give_up(worker, f"timed out after {limit:.0f} s")

    def end(self) -> None:
        """Ends all workers. Items that they have not finished have no outcome."""
        self._selector.close()
        for worker in self._workers:
            worker.end()

    def _release(self, worker: _Worker) -> None:
        self._selector.unregister(worker.stdout)
        del self._busy[worker.stdout]

    def _give_up(self, worker: _Worker, outcome: str) -> None:
        """Writes the outcome of a lost worker's item. If there are several, each half is asked for again."""
        items = worker.items
        if len(items) == 1:
            self._write(worker, {"item": items[0], "outcome": outcome})
        else:
            middle = len(items) // 2
            self.pending.extend([items[middle:], items[:middle]])

    def _write(self, worker: _Worker, row: dict[str, Any]) -> None:
        now = time.monotonic()
        row["seconds"] = round(now - worker.since, 1)
        worker.since = now
        with self.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


def sweep(
    out: Path,
    items: Iterable[str],
    jobs: int,
    seconds: float,
    total: float = 1e9,
    command: Sequence[str] = WORK,
) -> None:
    """Runs the items that the file has no outcome of.

    Args:
        out: The file, to which a row is added for each item.
        items: The items to run, ``part:name``.
        jobs: The number of workers.
        seconds: The longest time that a worker may take until its next outcome.
        total: The seconds after which the sweep stops.
        command: The command that starts a worker.
    """
    running = _Sweep(out, items, command)
    end = time.monotonic() + total
    while not running.is_done() and time.monotonic() < end:
        running.start(jobs)
        running.read()
        running.end_late(seconds)
    running.end()


def rows(out: Path) -> Iterator[dict[str, Any]]:
    """Yields the outcomes of a file."""
    if out.exists():
        for line in out.read_text().splitlines():
            yield json.loads(line)


def table(out: Path) -> str:
    """Returns how many items of each part were right, and what the others did."""
    counts: dict[str, Counter[str]] = {}
    for row in rows(out):
        kind = row["outcome"].split(":")[0].split(" after")[0]
        counts.setdefault(row["item"].split(":")[0], Counter())[kind] += 1
    lines = ["| part | items | right | otherwise |", "|---|---|---|---|"]
    for part, kinds in counts.items():
        others = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common() if kind != "right")
        lines.append(f"| {part} | {sum(kinds.values())} | {kinds['right']} | {others} |")
    return "\n".join(lines)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.sweep", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=60, help="the time limit of an outcome")
    parser.add_argument("--total", type=float, default=1e9, help="when to stop")
    parser.add_argument("--reversed", action="store_true", help="begin with the last item")
    parser.add_argument(
        "--optimization-level",
        type=int,
        default=REAL["optimization_level"],
        help="TensorRT's: 0 times no kernels, so that many jobs do not wait for each other's",
    )
    parser.add_argument("--items", type=Path, help="a file with the items to run, one a line")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--table", action="store_true", help="summarize the file")
    options = parser.parse_intermixed_args()
    REAL["optimization_level"] = options.optimization_level
    if options.work:
        work()
    elif options.table:
        print(table(options.out))
    else:
        items = [f"{part}:{name}" for part in options.parts for name in PARTS[part].names()]
        if options.items:
            items += options.items.read_text().split("\n")
        items = list(filter(None, items))
        sweep(
            options.out,
            reversed(items) if options.reversed else items,
            options.jobs,
            options.seconds,
            options.total,
            (*WORK, f"--optimization-level={options.optimization_level}"),
        )
