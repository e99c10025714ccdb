"""``torchtrt verify``, on a pack whose converters are right, wrong, and fatal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.processes import run_python
from torchtrt_cli import main

REGISTER = """
import os, time
from torchtrt import trt
from torchtrt.conversion import add

def identity(ctx, self):
    return self

def crash(ctx, self):
    print("a failed assertion of TensorRT", flush=True)
    os._exit(7)

def hang(ctx, self):
    time.sleep(600)

def refuse(ctx, self):
    raise ValueError(f"cannot read {os.path.expanduser('~/secret')}/model.bin")

for op, function in {"relu": identity, "neg": crash, "exp": hang, "sin": refuse}.items():
    pack.add(f"aten.{op}.default", function, priority=ConverterPriority.HIGH, supports_dynamic_shapes=True)
"""
CASES = """
import torch
from torchtrt_testing.cases import op_case

CASES = (
    op_case("aten.tanh.default", "batch 4", dtypes=(torch.float32, torch.float16)),
    op_case("aten.relu.default", "2 4"),
    op_case("aten.neg.default", "2 4"),
    op_case("aten.exp.default", "2 4"),
    op_case("aten.sin.default", "2 4"),
)
"""
TANH = "cases:acme aten.tanh.default-{} {}"
RELU = "cases:acme aten.relu.default fixed"


@pytest.fixture
def command(site, source_of_pack, tmp_path):
    """Returns the arguments and the environment of the command, with the pack."""
    source = source_of_pack("acme", REGISTER)
    site.unpack(site.wheel("acme", source, modules={"cases/__init__": "", "cases/ops": CASES}))

    def command(*options):
        words = ["-m", "torchtrt", "verify", "--packs", "acme", "--workers", "1"]
        path = os.pathsep.join(filter(None, sys.path))
        environment = {"PYTHONPATH": path, "TORCHTRT_TENSORRT": "reference@11.4.0"}
        return [*words, "--output", str(tmp_path / "out"), *options], {**os.environ, **environment}

    return command


@pytest.fixture
def run(command):
    """Runs the command."""

    def run(*options):
        words, environment = command(*options)
        return run_python(*words, env=environment)

    return run


def report_of(folder):
    """Returns the report in a folder, as data and as a page."""
    data = json.loads((folder / "out/report.json").read_text())
    return data, (folder / "out/report.md").read_text()


def test_each_case_has_its_outcome_and_a_command_that_repeats_it(run, tmp_path):
    """A converter that is wrong, ends the process, hangs or raises costs no other case; a second run runs none."""
    done = run("--case-time-limit", "5")

    assert done.returncode == 1, done.stderr
    data, page = report_of(tmp_path)
    right = [
        TANH.format(dtype, sizes)
        for dtype in ("float32", "float16")
        for sizes in ("fixed", "varying")
    ]
    assert data["outcomes"] == {
        **dict.fromkeys(right, "agrees"),
        RELU: "differs",
        "cases:acme aten.neg.default fixed": "ended the process",
        "cases:acme aten.exp.default fixed": "no answer in time",
        "cases:acme aten.sin.default fixed": "refused",
    }
    rows = {row["ops"][0]: row for row in data["disagreements"]}
    assert rows["aten.relu.default"]["pack"] == "acme"
    assert rows["aten.relu.default"]["dtype"] == "float32"
    assert "Mismatched elements" in rows["aten.relu.default"]["message"]
    assert rows["aten.neg.default"]["message"] == "exit status 7: a failed assertion of TensorRT"
    assert rows["aten.relu.default"]["repeat"].endswith(f"torchtrt verify --case '{RELU}'")
    assert rows["aten.relu.default"]["repeat"] in page
    assert "…/model.bin" in rows["aten.sin.default"]["message"]
    assert os.path.expanduser("~") + "/" not in json.dumps(data) + page
    assert str(tmp_path) not in json.dumps(data) + page
    assert data["machine"]["packs"]["acme"] == "1.0"
    assert "8 of 8 cases" in done.stdout

    # What has an outcome does not run again, and what has none does.
    (kept,) = (tmp_path / "out").glob("outcomes-*.jsonl")
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(line for line in lines if "float16" not in line) + '{"item": "unfin')
    again = run()
    assert again.returncode == 1, again.stderr
    assert report_of(tmp_path)[0]["outcomes"] == data["outcomes"]
    assert "7 of 8 cases" in again.stderr
    assert "4 of 8 cases" not in again.stderr


def test_one_case_runs_again_and_the_report_stays(run, tmp_path):
    """``--case`` is the command in the report."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/report.md").write_text("of all cases")
    item = TANH.format("float16", "varying")

    done = run("--case", item, "--case", RELU, "--json")

    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {item: "agrees", RELU: "differs"}
    assert (tmp_path / "out/report.md").read_text() == "of all cases"
    assert run("--case", item).returncode == 0


def test_a_run_stops_at_its_time_limit(run, tmp_path):
    """The report says how many cases did not run; without any, the exit status is 1."""
    done = run("--time-limit", "0.1")

    assert done.returncode == 1, done.stderr
    data, page = report_of(tmp_path)
    assert (data["not run"], data["stopped"]) == (8, "time limit")
    assert "0 of 8 cases with --packs acme ran" in page


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_an_interrupted_run_leaves_a_report_and_nothing_else(command, tmp_path, sent):
    """No process, and no temporary folder."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words, environment = command("--ops", "aten.exp")
    process = subprocess.Popen(
        [sys.executable, *words], env={**environment, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell ignores Ctrl-C in what it runs in the background, as all of these tests may be.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while not (worker := children_of(process.pid)) and process.poll() is None:
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(sent)
    out, errors = process.communicate(timeout=60)

    assert process.returncode == 130, errors
    assert "0 of 1 cases with --packs acme --ops aten.exp ran" in out
    assert report_of(tmp_path)[0]["stopped"] == "interrupted"
    assert worker
    assert not any(os.path.exists(f"/proc/{pid}") for pid in worker)
    assert list(temporary.iterdir()) == []


def children_of(process):
    """Returns the child processes of a process that run a worker."""
    with open(f"/proc/{process}/task/{process}/children") as file:
        children = file.read().split()
    pids = []
    for child in children:
        with open(f"/proc/{child}/cmdline") as file:
            if "verification.worker" in file.read():
                pids.append(int(child))
    return pids


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--packs", "specia"], "Did you mean 'special'?"),
        (["--case", "cases:special aten.erfinv"], "There is no case"),
        (["--case", "aten.erfinv"], "There is no case"),
        (["--packs", "special", "--ops", "aten.nothing"], "No case fits"),
        (["--workers", "0"], "must be positive"),
    ],
)
def test_wrong_options_are_refused(options, message, tmp_path, capsys):
    """Before anything runs."""
    assert main(["verify", "--output", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
