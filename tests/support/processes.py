"""Programs in Python processes of their own, without the seconds that each of them would import PyTorch for.

``run_python`` takes the arguments of a Python interpreter. It asks a server that has imported other people's
libraries, and nothing of this project, to fork. The child imports torchtrt and its packs anew.
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from json import dumps
from pathlib import Path

SERVER = Path(__file__).with_name("fork_server.py")
FRESH = "FRESH_PROCESSES"
"""The environment variable that, if it is not empty, makes processes start without a server."""

ONLY_TORCH = ("torch",)
COMPILING = (
    *ONLY_TORCH,
    "importlib_metadata",
    "packaging.specifiers",
    "pluggy",
    "rich",
    "sympy",
    "torch._decomp",
    "torch._dynamo",
    "torch.export._trace",
    "torch.fx.experimental.symbolic_shapes",
)
TESTING = (*COMPILING, "pytest")
"""Libraries that a process with these tasks imports."""


class ForkServer:
    """A Python with libraries that forks for each program, and whose children look newly started.

    Args:
        options: Options of the interpreter.
        libraries: The modules to import before the first fork.
    """

    def __init__(self, options: Sequence[str], libraries: Sequence[str]) -> None:
        their_requests, requests = os.pipe()
        replies, their_replies = os.pipe()
        theirs = (their_requests, their_replies)
        hidden = {"PYTHONPATH", "PYTHONHASHSEED"}
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in hidden and not name.startswith("TORCHTRT_")
        }
        self._process = subprocess.Popen(
            [sys.executable, *options, str(SERVER), *map(str, theirs), *libraries],
            env={**inherited, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=theirs,
        )
        for end in theirs:
            os.close(end)
        self._requests, self._replies = os.fdopen(requests, "w"), os.fdopen(replies)
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the server."""
        self._requests.close()
        self._process.wait()
        self._replies.close()

    def run(
        self,
        command_line: Sequence[str],
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        timeout: float | None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end.

        Args:
            command_line: The whole command line, for ``sys.orig_argv``.
            command: The part of it behind the interpreter's options.
            environment: The environment variables.
            folder: The current folder.
            timeout: Seconds after which the process is killed.

        Raises:
            subprocess.TimeoutExpired: The process was killed.
        """
        with tempfile.TemporaryDirectory() as made:
            streams = {name: Path(made, name) for name in ("stdout", "stderr")}
            for path in streams.values():
                path.touch()
            request = {
                "command_line": list(command_line),
                "command": list(command),
                "environment": dict(environment),
                "folder": str(folder),
                **{name: str(path) for name, path in streams.items()},
            }
            print(dumps(request), file=self._requests, flush=True)
            child = int(self._replies.readline())
            is_late = not select.select([self._replies], [], [], timeout)[0]
            if is_late:
                os.kill(child, signal.SIGKILL)
            status = int(self._replies.readline())
            stdout, stderr = (path.read_text(encoding="utf-8") for path in streams.values())
        if is_late:
            assert timeout is not None
            raise subprocess.TimeoutExpired(list(command_line), timeout, stdout, stderr)
        return subprocess.CompletedProcess(list(command_line), status, stdout, stderr)


server_of = functools.cache(ForkServer)


def run_python(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
    check: bool = False,
    libraries: Sequence[str] = COMPILING,
    may_be_fresh: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Runs a Python interpreter on arguments, as ``subprocess.run`` would, and returns its status and output.

    A program that looks at what is imported, at hashes or at how Python starts needs ``libraries=()``.

    Args:
        *arguments: The interpreter's options, then ``-c code``, ``-m module`` or a script, and its arguments.
        env: The environment variables; those of this process if omitted.
        cwd: The current folder; that of this process if omitted.
        timeout: Seconds after which the process is killed.
        check: Whether a status other than 0 is an error.
        libraries: What the process may have imported before it starts; nothing means a new interpreter.
        may_be_fresh: Whether the process starts without a server in ``make test-all``; one of many alike need not.
    """
    words = [str(argument) for argument in arguments]
    environment = dict(os.environ if env is None else env)
    command_line = [sys.executable, *words]
    can_fork = hasattr(os, "fork") and not (may_be_fresh and os.environ.get(FRESH))
    if not libraries or not can_fork or environment.get("PYTHONHASHSEED"):
        return subprocess.run(
            command_line,
            env=environment,
            cwd=cwd,
            timeout=timeout,
            check=check,
            capture_output=True,
            text=True,
        )
    options = _options(words)
    server = server_of(options, tuple(libraries))
    done = server.run(
        command_line, words[len(options) :], environment, Path(cwd or Path.cwd()), timeout
    )
    if check:
        done.check_returncode()
    return done


def _options(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the interpreter's options at the start of its arguments."""
    count = 0
    while words[count].startswith("-") and words[count] not in ("-c", "-m"):
        count += 2 if words[count] in ("-W", "-X") else 1
    return tuple(words[:count])
