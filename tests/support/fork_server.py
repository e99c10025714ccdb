"""A Python that has imported libraries, and forks to run each program that it receives.

``tests.support.processes`` starts this script and is its only client. A request and a reply are one line each.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import importlib
import json
import linecache
import os
import runpy
import signal
import sys
import threading
import types
from typing import Any, TextIO


def serve(requests: TextIO, replies: TextIO) -> dict[str, Any]:
    """Forks for each request, and replies with the child's id and then with its exit status.

    Returns:
        The request, in the child that is to run its program.
    """
    for line in requests:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        print(child, file=replies, flush=True)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, file=replies, flush=True)
    os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Gives this process the environment, folder, streams and paths of a Python that has just started."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for stream, path in enumerate((os.devnull, request["stdout"], request["stderr"])):
        opened = os.open(path, os.O_WRONLY if stream else os.O_RDONLY)
        os.dup2(opened, stream)
        os.close(opened)
    inherited = request["environment"].get("PYTHONPATH", "")
    sys.path[:1] = [entry for entry in inherited.split(os.pathsep) if entry]
    sys.orig_argv[:] = request["command_line"]
    sys.excepthook = show_without_this_file
    atexit.register(gc.unfreeze)  # where Python frees objects, nanobind prints which ones remain


def run(program: str, *arguments: str) -> None:
    """Runs what follows the interpreter's options on a command line: ``-c code``, ``-m module`` or a script."""
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    if program == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = ["-m", *arguments[1:]]  # until runpy has found the module, as in Python itself
        runpy._run_module_as_main(arguments[0])
        return
    if program == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *arguments[1:]]
        code = compile(arguments[0], "<string>", "exec")
        if sys.version_info >= (3, 13):  # whose tracebacks show the lines of such a program
            lines = arguments[0].splitlines(keepends=True)
            linecache.cache["<string>"] = (len(arguments[0]), None, lines, "<string>")
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
        sys.argv = [program, *arguments]
        main.__file__ = program
        with open(program, "rb") as file:
            code = compile(file.read(), program, "exec")
    exec(code, main.__dict__)


def end(status: int) -> None:
    """Ends the process as Python does, but leaves its objects to the operating system: to free them takes 0.2 seconds.

    Where warnings are errors, Python frees them as ever, because some objects warn when they are freed.

    Args:
        status: The exit status.
    """
    if sys.warnoptions:
        sys.exit(status)
    threading._shutdown()  # waits for the threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def show_without_this_file(kind: Any, error: Any, traceback: Any) -> None:
    """Prints an uncaught exception from the program's first line on."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    sys.__excepthook__(kind, error.with_traceback(traceback), traceback)


if __name__ == "__main__":
    this_module = sys.modules["__main__"]  # lives on when the program's module takes its place
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client decides when this process ends
    for library in sys.argv[3:]:
        importlib.import_module(library)
    gc.collect()
    gc.freeze()
    with open(int(sys.argv[1])) as requests, open(int(sys.argv[2]), "w") as replies:
        request = serve(requests, replies)
    become(request)
    try:
        run(*request["command"])
    except SystemExit as error:
        if isinstance(error.code, int):
            end(error.code)
        raise
    end(0)
