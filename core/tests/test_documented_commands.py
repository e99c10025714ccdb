"""Every shell command that the documentation shows runs, or is named here with the reason why not."""

from __future__ import annotations

import os
import re
import shlex
import warnings
from pathlib import Path

import pytest
import torch

import torchtrt
from tests.support.processes import run_python

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(torchtrt|python|pip|pytest|make|twine|git|trtexec|nvidia-smi)( [a-z-]|$)")

NOT_RUN = {
    r"pip |twine |git clone": "needs the network",
    r"python3 -m venv|/opt/serving|PATH=/opt/serving|curl": "needs a server; `make serving` and its tests have one",
    r"python -m build": "needs the network, for the build tools; the tutorial's own test runs it without",
    r"cd |torchtrt new-pack |torchtrt converters vision::snake": "is of the tutorial, whose own test runs all of it",
    r"python compile_snake": "is of the tutorial, too",
    r"torchtrt catalogue (add|remove|write)": "changes what is installed; the tests of catalogues run it",
    r"torchtrt doctor --locked": "needs a lock; the tests of `torchtrt lock` run it",
    r"pytest|python -m pytest|make": "is what runs this test",
    r"python -m docs\.demo": "needs a GPU",
    r"python -m tools\.": "runs for minutes; the tests beside it cover it",
}
"""Commands that are not run, by a pattern of how they begin, and why."""
SHORTENED = {"verify": ["--time-limit", "1"]}
"""Arguments that are added to the commands of the program that would run for minutes."""
ASSIGNMENT = re.compile(r"([A-Z_]+)=(\S*)")


def commands() -> list[tuple[str, str]]:
    """Returns the commands in the shell blocks of all pages: those with a prompt, and those of a known program."""
    pages = {}
    for page in PAGES:
        for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            is_shell = language in ("", "sh", "bash", "shell", "console")
            for line in block.replace("\\\n", "").splitlines():
                command = line.removeprefix("$ ").split("  #")[0].strip()
                if line.startswith("$ ") or (is_shell and COMMAND.match(command)):
                    pages[command] = page.name
    return [(page, command) for command, page in pages.items()]


def why_not(command: str) -> str | None:
    """Returns why a command is not run, if it is not."""
    reasons = (reason for start, reason in NOT_RUN.items() if re.match(start, command))
    return next(reasons, None)


RUN = [(page, command) for page, command in commands() if why_not(command) is None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model of the pages."""
    made = tmp_path_factory.mktemp("documented")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    rows = {0: torch.export.Dim("rows", min=1, max=8)}
    program = torch.export.export(model, (torch.ones(2, 4),), dynamic_shapes=(rows,))
    torch.export.save(program, made / "model.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        convolution = torch.nn.Conv2d(3, 1, 64, 32).eval()
        torch.jit.script(convolution).save(made / "scripted.ts")
    with torchtrt.use_tensorrt("reference"):
        compiled = torchtrt.compile(program, min_block_size=1)
        torchtrt.save(compiled, made / "compiled.pt2")
    return made


@pytest.mark.parametrize(("page", "command"), RUN, ids=lambda value: value)
def test_a_documented_command_runs(folder: Path, page: str, command: str) -> None:
    """It prints a result, or that there is none; its arguments are never wrong."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHTRT_TENSORRT": "reference"}
    environment["TORCHTRT_CACHE"] = str(folder / "cache")
    words = shlex.split(command)
    while assignment := ASSIGNMENT.fullmatch(words[0]):
        environment[assignment[1]] = assignment[2]
        del words[0]
    program, *arguments = words
    module = {"torchtrt": ["-m", "torchtrt"], "python": []}[program]
    arguments += SHORTENED.get(arguments[0], [])

    done = run_python(*module, *arguments, cwd=folder, env=environment)

    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr


def test_the_commands_of_the_program_are_among_those_that_run() -> None:
    """So that this file keeps finding them."""
    shown = {shlex.split(command)[1] for _, command in RUN if command.startswith("torchtrt ")}

    assert {"packs", "doctor", "lock", "converters", "coverage", "explain"} <= shown


def test_no_exception_is_out_of_date() -> None:
    """Each pattern still fits a command of a page."""
    unused = [s for s in NOT_RUN if not any(re.match(s, command) for _, command in commands())]

    assert [] == unused
