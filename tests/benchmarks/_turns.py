"""Programs that are made ready side by side and measured one after the other, alone.

Building engines and compiling kernels takes minutes and many cores; timing needs the machine to itself. So every
program of a benchmark is a process that gets ready, reports it, waits for its turn, measures and answers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_MARK = "\x1e"
"""What a program's lines begin with that are for ``in_turns``; libraries print too."""


def take_turn(get_ready: Callable[[], Callable[[], Any]]) -> None:
    """Calls a function that makes everything ready, and what it returns when it is this program's turn.

    What the second returns, or how either failed, is the program's answer: anything that JSON holds.
    """
    try:
        measure = get_ready()
        _say("ready")
        sys.stdin.readline()
        answer = measure()
    except Exception as error:
        text = " ".join(str(error).split())[:600]
        answer = {"failed": f"{type(error).__name__}: {text}"}
        traceback.print_exc()
    _say(json.dumps(answer))


def _say(text: str) -> None:
    print(f"{_MARK}{text}", flush=True)


def in_turns(
    programs: Mapping[str, Sequence[str]],
    jobs: Mapping[str, int],
    seconds: float,
    note: Callable[[str, Any], None],
    after: Path | None = None,
) -> None:
    """Runs programs that ``take_turn``, and notes the answer of each by its name.

    Args:
        programs: The command of each. Its name begins with its kind and a colon.
        jobs: How many of each kind get ready at a time.
        seconds: How long all together may take to get ready. Who is not ready then fails.
        note: Called with a name and its answer, as they come.
        after: A file that must exist before the first is measured. Once all are ready, a file of the same name with
            it has the suffix ``.waiting``.
    """
    positions = {kind: threading.Semaphore(count) for kind, count in jobs.items()}
    end = time.monotonic() + seconds
    waiting: dict[str, subprocess.Popen[str]] = {}

    def prepare(name: str, command: Sequence[str]) -> None:
        with positions[name.partition(":")[0]]:
            left = end - time.monotonic()
            if left <= 0:
                return note(name, {"failed": "there was no time left to get ready"})
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            timer = threading.Timer(left, process.kill)
            timer.start()
            first = _answer(process)
            timer.cancel()
        if first == "ready":
            waiting[name] = process
        else:
            note(name, json.loads(first) if first else _silence(process))
        return None

    threads = [
        threading.Thread(target=prepare, args=program, daemon=True) for program in programs.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if after is not None:
        after.with_suffix(".waiting").touch()
        while not after.exists():
            time.sleep(1)
    for name, process in sorted(waiting.items()):
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        text = _answer(process)
        note(name, json.loads(text) if text else _silence(process))
        process.wait()


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(_MARK):
            return line.removeprefix(_MARK).strip()
    return ""


def _silence(process: subprocess.Popen[str]) -> dict[str, str]:
    return {"failed": f"ended without an answer, with exit status {process.wait()}"}
