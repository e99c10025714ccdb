"""Runs the samples of many ops in processes of their own, so that a crash or a hang is an outcome like any other."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from torchtrt_compiler.coverage import CRASHED
from torchtrt_testing.op_info import DTYPES, Sample, samples_of
from torchtrt_testing.outcome import Outcome, outcomes

SECONDS = 120
"""How long one sample may take."""

Found = tuple[str, str, int, str, "dict[str, Outcome] | None"]
"""Of one sample: the op, the dtype, its place, its arguments in words, and the outcomes by version."""


@dataclass
class _Worker:
    """A process that works through one op's samples.

    Attributes:
        process: The process.
        answers: Where it sends what it starts with, and what became of it.
        op: The op.
        done: How many samples are done, in this process and in those before it.
        current: The sample it works on: dtype, place and arguments.
        since: When it was last heard of.
    """

    process: Any
    answers: Connection
    op: str
    done: int
    current: tuple[str, int, str] | None = None
    since: float = field(default_factory=time.monotonic)


def run(ops: Sequence[str], versions: Sequence[str], jobs: int) -> Iterator[Found]:
    """Yields what became of every sample of the ops, op by op as they are finished."""
    torch.set_num_threads(1)
    _warm_up(versions)
    waiting = list(reversed(ops))
    workers: list[_Worker] = []
    while waiting or workers:
        while waiting and len(workers) < jobs:
            workers.append(_start(waiting.pop(), 0, versions))
        ready = wait([worker.answers for worker in workers], timeout=1)
        for worker in list(workers):
            if worker.answers not in ready:
                if time.monotonic() - worker.since > SECONDS:
                    assert worker.process.pid is not None
                    # The end of its pipe is handled below, in a later round.
                    os.kill(worker.process.pid, signal.SIGKILL)
                continue
            try:
                message = worker.answers.recv()
            except EOFError:
                workers.remove(worker)
                worker.process.join()
                if worker.current is not None:
                    yield _died(worker, versions)
                    workers.append(_start(worker.op, worker.done + 1, versions))
                elif worker.process.exitcode:
                    message = f"{worker.op}: no samples, exit status {worker.process.exitcode}"
                    raise RuntimeError(message) from None
                continue
            worker.since = time.monotonic()
            if isinstance(message, tuple):
                worker.current = message
            else:
                assert worker.current is not None
                dtype, index, arguments = worker.current
                yield worker.op, dtype, index, arguments, message["outcomes"]
                worker.current, worker.done = None, worker.done + 1


def _died(worker: _Worker, versions: Sequence[str]) -> Found:
    assert worker.current is not None
    code = worker.process.exitcode
    reason = f"no answer in {SECONDS} s" if code == -signal.SIGKILL else f"exit status {code}"
    dtype, index, arguments = worker.current
    outcome: Mapping[str, Outcome] = dict.fromkeys(versions, Outcome(CRASHED, reason))
    return worker.op, dtype, index, arguments, dict(outcome)


def _start(op: str, skipped: int, versions: Sequence[str]) -> _Worker:
    # Forked, so that PyTorch and its database are imported once.
    context: Any = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    sys.stdout.flush()
    process = context.Process(target=_work, args=(op, skipped, versions, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours, op, skipped)


def _work(op: str, skipped: int, versions: Sequence[str], answers: Connection) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # torch.export explains itself at length
        os.dup2(nowhere, stream.fileno())
    samples = [sample for dtype in DTYPES for sample in samples_of(op, dtype)]
    for sample in samples[skipped:]:
        dtype = str(sample.dtype).removeprefix("torch.")
        answers.send((dtype, sample.index, sample.describe()))
        answers.send({"outcomes": outcomes(sample, versions)})


def _warm_up(versions: Sequence[str]) -> None:
    """Imports in this process what exporting and compiling import when first used."""
    sample: Sample = samples_of("add", torch.float32)[0]
    outcomes(sample, versions)
