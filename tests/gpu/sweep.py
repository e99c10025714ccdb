"""Everything that has a known answer, one by one, on the TensorRT in use.

``TORCHTRT_TENSORRT=real python -m tests.gpu.sweep OUT.jsonl --jobs 14 --seconds 60 cases architectures samples``

Each item runs in a worker process with a time limit: what crashes or hangs costs one worker, which is started anew.
Outcomes are appended as they come, so an interrupted sweep has what it has, and a second one goes on behind it.
``python -m tests.gpu.sweep OUT.jsonl --table`` summarizes a file.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REAL = {"disable_tf32": True, "tactic_sources": 0, "optimization_level": 1}
"""Settings for a TensorRT without cuBLAS and cuDNN, which builds small networks in a second."""
ANSWER = "\x1e"
"""What a worker's lines begin with that are answers; TensorRT prints too."""
FIRST = 60
"""The seconds that a process' first item may take in addition."""


def cases() -> dict[str, Callable[[], None]]:
    """Returns every pack's cases by label."""
    from torchtrt.testing import first_party_cases
    from torchtrt_testing.aten import check_where_exact

    return {
        f"{place} {case.label}": lambda case=case: check_where_exact(case, REAL)
        for place, case in enumerate(first_party_cases())
    }


def architectures() -> dict[str, Callable[[], None]]:
    """Returns every architecture with fixed and with varying sizes."""
    from tests.architectures import test_architectures
    from tests.architectures.zoo import ZOO

    test_architectures.REAL.update(REAL)
    check = test_architectures.test_an_architecture_becomes_engines_alone_and_equals_eager
    return {
        f"{each.name} {'varying' if varying else 'fixed'}": lambda each=each, varying=varying: (
            check(each, varying)
        )
        for varying in (False, True)
        for each in ZOO
    }


def samples() -> dict[str, Callable[[], None]]:
    """Returns the first samples of each op and dtype of PyTorch's OpInfo database."""
    from torchtrt_testing.op_info import DTYPES, ops

    return {
        f"{name} {str(dtype).removeprefix('torch.')}": lambda name=name, dtype=dtype: (
            _check_samples(name, dtype)
        )
        for name in ops()
        for dtype in DTYPES
    }


def _check_samples(name: str, dtype: Any) -> None:
    """Checks the first four samples of an op: each that is converted whole has PyTorch's values."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils import _pytree as pytree

    import torchtrt
    from torchtrt.errors import FullCompilationError, UnsupportedProgramError
    from torchtrt_testing import comparison
    from torchtrt_testing.op_info import samples_of

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = REAL if device.type == "cuda" else {}
    wrong = []
    for place, sample in enumerate(samples_of(name, dtype)[:4]):
        try:
            with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
                expected = comparison.eager(sample)
                exported = torch.export.export(sample.model, sample.tensors, strict=False)
                compiled = torchtrt.compile(exported, require_full_compilation=True, **settings)
        except (FullCompilationError, UnsupportedProgramError):
            continue
        except torchtrt.errors.TorchTRTError as error:
            wrong.append(f"sample {place}: {type(error).__name__}: {error}")
            continue
        except Exception:  # PyTorch does not run or export it
            continue
        tensors = [tensor.to(device) for tensor in sample.tensors]
        results = [*pytree.tree_leaves(compiled(*tensors)), *tensors]
        actual = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, results)
        difference = comparison.difference(sample, exported, actual, expected)
        if difference is not None:
            wrong.append(f"sample {place} ({sample.describe()[:150]}): {difference}")
    assert not wrong, "; ".join(wrong)


PARTS = {"cases": cases, "architectures": architectures, "samples": samples}


def work() -> None:
    """Answers with what became of each item that is asked for, one line each, until there are no more."""
    import torch

    warnings.simplefilter("ignore")
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    known: dict[str, dict[str, Callable[[], None]]] = {}
    for line in sys.stdin:
        part, _, name = line.strip().partition(":")
        try:
            if part not in known:
                known[part] = PARTS[part]()
            known[part][name]()
            outcome = "right"
        except Exception as error:
            text = str(error) or traceback.format_exc(limit=-2)
            outcome = f"{type(error).__name__}: {' '.join(text.split())[:600]}"
        print(ANSWER + outcome, flush=True)


class _Worker:
    """A worker process, and what it is doing."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.sweep", "-", "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        self.item = ""
        self.since = 0.0
        self.asked = 0

    def ask(self, item: str) -> None:
        """Begins an item."""
        self.item, self.since = item, time.monotonic()
        self.asked += 1
        assert self.process.stdin is not None
        self.process.stdin.write(item + "\n")
        self.process.stdin.flush()


def sweep(out: Path, parts: list[str], jobs: int, seconds: float, total: float) -> None:
    """Runs the items of some parts that the file has no outcome of."""
    done = {row["item"] for row in rows(out)}
    todo = [f"{part}:{name}" for part in parts for name in PARTS[part]()]
    pending = [item for item in reversed(todo) if item not in done]
    end = time.monotonic() + total
    selector = selectors.DefaultSelector()
    idle: list[_Worker] = []
    busy: dict[Any, _Worker] = {}

    def note(worker: _Worker, outcome: str) -> None:
        row = {
            "item": worker.item,
            "outcome": outcome,
            "seconds": round(time.monotonic() - worker.since, 1),
        }
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")

    while (pending or busy) and time.monotonic() < end:
        while pending and len(busy) < jobs:
            worker = idle.pop() if idle else _Worker()
            worker.ask(pending.pop())
            busy[worker.process.stdout] = worker
            selector.register(worker.process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        for key, _ in selector.select(timeout=1):
            stream: Any = key.fileobj
            line = stream.readline()
            worker = busy[stream]
            if line and not line.startswith(ANSWER):
                continue
            selector.unregister(stream)
            del busy[stream]
            if line:
                note(worker, line.removeprefix(ANSWER).strip())
                idle.append(worker)
            else:
                note(worker, f"crashed: exit status {worker.process.wait()}")
        for stream, worker in list(busy.items()):
            # The first network of a process loads TensorRT's kernels.
            limit = seconds + (FIRST if worker.asked == 1 else 0)
            if time.monotonic() - worker.since > limit:
                selector.unregister(stream)
                del busy[stream]
                worker.process.kill()
                note(worker, f"timed out after {limit:.0f} s")
    for worker in (*idle, *busy.values()):  # what is not finished has no outcome
        worker.process.kill()


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
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.sweep", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=60, help="an item's time limit")
    parser.add_argument("--total", type=float, default=1e9, help="when to stop")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--table", action="store_true", help="summarize the file")
    options = parser.parse_intermixed_args()
    if options.work:
        work()
    elif options.table:
        print(table(options.out))
    else:
        sweep(options.out, options.parts, options.jobs, options.seconds, options.total)


if __name__ == "__main__":
    main()
