"""A process that a fork server makes behaves as a new Python, but for the time that it takes to start."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.processes import COMPILING, ONLY_TORCH, TESTING, run_python

LOOK = """
import json, os, sys, warnings

print(json.dumps({
    "arguments": sys.argv,
    "command line": sys.orig_argv,
    "path": sys.path,
    "name": __name__,
    "file": globals().get("__file__"),
    "is main": sys.modules["__main__"].__dict__ is globals(),
    "options": [*sys.warnoptions, sys.flags.dev_mode],
    "folder": os.getcwd(),
    "environment": {name: os.environ[name] for name in sorted(os.environ) if name != "LC_CTYPE"},
    "input": sys.stdin.read(),
    "interactive": [stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)],
}))
"""


@pytest.fixture
def looks(tmp_path):
    """Runs the program that looks at its process, started in each of three ways."""
    (tmp_path / "look.py").write_text(LOOK)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}/nowhere", "NEW": "x"}
    ways = (["-c", LOOK], ["-m", "look"], [str(tmp_path / "look.py")])

    def run(libraries, *options):
        answers = []
        for way in ways:
            done = run_python(
                *options, *way, "first", "-m", cwd=tmp_path, env=environment, libraries=libraries
            )
            assert 0 == done.returncode, done.stderr
            answers.append(json.loads(done.stdout))
        return answers

    return run


@pytest.mark.parametrize("options", [(), ("-W", "error")], ids=str)
def test_a_forked_process_looks_like_a_new_one(looks, options):
    """A test that forks proves what a test with a new process would."""
    assert looks((), *options) == looks(COMPILING, *options)


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(3)",
        "raise SystemExit('a reason')",
        "1 / 0",
        "import os; os._exit(7)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import atexit, threading, time; atexit.register(print, 'last'); "
        "threading.Thread(target=lambda: (time.sleep(0.1), print('first'))).start()",
        "def broken(:",
    ],
)
def test_a_forked_process_ends_as_a_new_one_does(program):
    """Its status and what it prints are the same, a traceback to the letter."""
    new, forked = (run_python("-c", program, libraries=imports) for imports in ((), COMPILING))

    assert (new.returncode, new.stdout, new.stderr) == (
        forked.returncode,
        forked.stdout,
        forked.stderr,
    )


@pytest.mark.parametrize("libraries", [ONLY_TORCH, COMPILING, TESTING])
def test_a_server_has_imported_nothing_of_the_project(libraries):
    """What a test looks for in a process is imported in that process."""
    program = "import sys; print([name for name in sys.modules if 'torchtrt' in name])"

    assert "[]\n" == run_python("-c", program, libraries=libraries).stdout


def test_a_process_that_takes_too_long_is_killed_and_the_next_one_runs():
    """The server outlives it."""
    with pytest.raises(subprocess.TimeoutExpired):
        run_python("-c", "import time; time.sleep(60)", timeout=0.5)

    assert "next\n" == run_python("-c", "print('next')").stdout


def test_hashes_are_those_that_the_environment_names():
    """Only a new interpreter can have them."""
    program = "print(hash('torchtrt'))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    new = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )

    assert new.stdout == run_python("-c", program, env=environment).stdout


def test_a_failure_is_an_error_where_it_is_asked_for():
    """As with ``subprocess.run``."""
    with pytest.raises(subprocess.CalledProcessError):
        run_python("-c", "raise SystemExit(1)", check=True)


@pytest.mark.parametrize("may_be_fresh", [False, True])
def test_one_of_many_alike_forks_where_others_start_anew(monkeypatch, may_be_fresh):
    """Of some hundreds of imports, ``make test-all`` starts a new Python for some."""
    monkeypatch.setenv("FRESH_PROCESSES", "1")
    program = "import sys; print('torch' in sys.modules)"

    done = run_python("-c", program, libraries=ONLY_TORCH, may_be_fresh=may_be_fresh)

    assert str(not may_be_fresh) == done.stdout.strip()
