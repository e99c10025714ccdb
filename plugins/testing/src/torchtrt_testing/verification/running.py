"""Runs a verification and writes its report."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from torchtrt.errors import SettingsError, did_you_mean
from torchtrt.tensorrt.selection import ENVIRONMENT_VARIABLE
from torchtrt_testing.verification import worker
from torchtrt_testing.verification.environment import describe_machine, digest, without_paths
from torchtrt_testing.verification.items import (
    MISSING,
    PARTS,
    Item,
    chosen,
    neighbours,
    packs_in_use,
    parts_with,
)
from torchtrt_testing.verification.report import VerificationReport, described
from torchtrt_testing.verification.workers import Row, groups, outcomes, rows_of

CASE_SECONDS = 120.0
"""The seconds after which a case without an answer is ended."""
MESSAGE = 600
"""The maximum number of characters of a message that are kept."""

Progress = Callable[[int, int, Row], None]


def verify(  # noqa: PLR0913  (the options of the command)
    folder: str | os.PathLike[str],
    *,
    parts: Sequence[str] = PARTS,
    packs: Sequence[str] = (),
    ops: Sequence[str] = (),
    cases: Sequence[str] = (),
    workers: int | None = None,
    time_limit: float | None = None,
    case_time_limit: float = CASE_SECONDS,
    settings: Mapping[str, Any] | None = None,
    libraries: Sequence[str] = (),
    options: Sequence[str] = (),
    progress: Progress | None = None,
) -> VerificationReport:
    """Verifies the TensorRT in use against eager PyTorch and the reference, and writes the report.

    The outcomes are kept in the folder, and a second call runs only what has none there. The function returns early,
    with what it has, on ``KeyboardInterrupt`` and on SIGTERM. No process and no temporary file outlives it.

    Args:
        folder: The folder of the outcomes and of the report.
        parts: Of ``"cases"``, ``"samples"`` and ``"architectures"`` the ones to run.
        packs: Only cases of these packs; all if omitted.
        ops: Only ops that match one of these patterns; all if omitted.
        cases: Only these cases, by the IDs in a report. They run again if they have run, and no report is written.
        workers: The number of processes; by default half of the CPU cores, and at most 8.
        time_limit: The seconds after which the run stops; no limit if omitted.
        case_time_limit: The seconds after which a case without an answer is ended.
        settings: Settings of the compilations.
        libraries: Modules that workers import first, for the ops that they register.
        options: The options of a command line that repeat these settings and imports.
        progress: Called for each case that has run: the number of those, the number of all, and the row.

    Raises:
        SettingsError: There is no such part, pack or case, or none fits, or a number is not positive.
        TensorRTUnavailableError: No TensorRT is usable, or the reference is not installed.
        TorchTRTError: A worker process does not start.
    """
    started = time.monotonic()
    _check(parts, packs, cases, workers, time_limit, case_time_limit)
    settings = settings or {}
    machine = describe_machine(settings)
    items = chosen(parts, packs, ops, cases)
    if not items:
        missing = "".join(
            f" {source} cannot be imported: {why}." for source, why in MISSING.items()
        )
        raise SettingsError(
            f"No case fits: `torchtrt converters` lists the ops and packs.{missing}"
        )
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"The reports cannot be written to {folder}: {error.strerror}."
        ) from error
    file = _Outcomes(folder / f"outcomes-{digest(machine)}.jsonl", items, again=set(cases))
    left = groups(_mixed(file.left()), parts_with(settings))
    rows = outcomes(
        left,
        worker.command(settings, libraries),
        jobs=workers or default_workers(),
        seconds=case_time_limit,
        total=None if time_limit is None else started + time_limit - time.monotonic(),
    )
    stopped = ""
    try:
        with _sigterm_interrupts():
            for row in rows:
                file.add(row)
                if progress is not None:
                    progress(len(file.rows), len(items), file.rows[row["item"]])
            stopped = "time limit" if file.left() else ""
    except KeyboardInterrupt:
        stopped = "interrupted"
    finally:
        rows.close()
    report = VerificationReport(
        machine,
        list(file.rows.values()),
        file.left(),
        {pack: _short(reason) for pack, reason in MISSING.items() if pack in packs or not packs},
        _selection(parts, packs, ops),
        _repeating(options),
        stopped,
    )
    if not cases:
        report.write(folder)
    return report


def default_workers() -> int:
    """Returns the number of workers that leaves half of the CPU cores, and GPU memory for each."""
    return max(1, min(8, (os.cpu_count() or 1) // 2))


def _check(
    parts: Sequence[str],
    packs: Sequence[str],
    cases: Sequence[str],
    workers: int | None,
    *seconds: float | None,
) -> None:
    """Raises a ``SettingsError`` about a name that there is not, or a number that is not positive."""
    for noun, names, valid_names in (("part", parts, PARTS), ("pack", packs, packs_in_use())):
        for name in names:
            if name not in valid_names:
                hint = did_you_mean(name, valid_names, f"Select from {', '.join(valid_names)}.")
                raise SettingsError(f"There is no {noun} {name!r}. {hint}")
    for item in cases:
        part, _, name = item.partition(":")
        if name not in neighbours(item):
            valid_names = [f"{part}:{neighbour}" for neighbour in neighbours(item)]
            hint = did_you_mean(item, valid_names, "Use an ID of a report.")
            raise SettingsError(f"There is no case {item!r}. {hint}")
    if not all(number is None or number > 0 for number in (workers, *seconds)):  # NaN is not
        raise SettingsError("The number of workers and the time limits must be positive.")


def _mixed(items: Iterable[str]) -> list[str]:
    """Returns items in an order without a pattern: a run that stops early has tried some of everything."""
    return sorted(items, key=lambda item: crc32(item.encode()))


class _Outcomes:
    """The file of the outcomes, and the rows of the chosen items in it.

    Args:
        path: The file.
        items: The chosen items by ID.
        again: The items whose rows in the file do not count.
    """

    def __init__(self, path: Path, items: Mapping[str, Item], again: set[str]) -> None:
        kept = {row["item"]: row for row in rows_of(path)}
        path.write_text("".join(map(_line, kept.values())), encoding="utf-8")
        self._path, self._items = path, items
        self.rows = {item: row for item, row in kept.items() if item in items.keys() - again}

    def left(self) -> list[str]:
        """Returns the items without a row."""
        return [item for item in self._items if item not in self.rows]

    def add(self, row: Row) -> None:
        """Adds a row of a worker."""
        item = row["item"]
        row["message"] = _short(row["message"])
        if "reference" in row:
            row["reference"]["message"] = _short(row["reference"]["message"])
        self.rows[item] = described(row, self._items[item])
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line(self.rows[item]))


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _short(text: str) -> str:
    return without_paths(" ".join(text.split()))[:MESSAGE]


def _selection(parts: Sequence[str], packs: Sequence[str], ops: Sequence[str]) -> str:
    """Returns the options that choose cases; empty if all are chosen."""
    all_parts = set(parts) == set(PARTS)
    options = (("--part", () if all_parts else parts), ("--packs", packs), ("--ops", ops))
    return shlex.join(
        word for option, names in options for name in names for word in (option, name)
    )


def _repeating(options: Sequence[str]) -> str:
    variable = os.environ.get(ENVIRONMENT_VARIABLE)
    before = [f"{ENVIRONMENT_VARIABLE}={shlex.quote(variable)}"] if variable else []
    return " ".join((*before, "torchtrt verify", *map(shlex.quote, options)))


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Makes SIGTERM, which ``timeout`` and job schedulers send, what Ctrl-C is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
