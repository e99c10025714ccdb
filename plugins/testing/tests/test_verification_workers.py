"""Work in processes: the outcome of an item does not depend on those it runs together with."""

import sys
import tempfile
import time

import pytest

from torchtrt.errors import TorchTRTError
from torchtrt_testing.verification.findings import AGREES, CRASHED, FAILED, LATE
from torchtrt_testing.verification.workers import Part, groups, outcomes, rows_of

WORKER = """
import os, subprocess, sys, time
from torchtrt_testing.verification import workers

def check(names):
    log(" ".join(names))
    print("a message of TensorRT", flush=True)
    for name in names:
        if name == "crashing":
            print("a failed assertion", file=sys.stderr, flush=True)
            os._exit(3)
        if name == "hanging":
            child = subprocess.Popen(["sleep", "600"])
            log(f"processes {os.getpid()} {child.pid}")
            time.sleep(600)
        if name == "raising":
            raise ValueError("of this one")
        if name == "losing":
            workers.gpu_answers = lambda: False
        yield name, {"outcome": "agrees", "message": ""}

def log(line):
    with open(sys.argv[1], "a") as file:
        file.write(line + "\\n")

workers.work({"fake": workers.Part(list, check)})
"""
PARTS = {"fake": Part(list, lambda names: iter(()), at_once=4, kind=lambda name: "")}


@pytest.fixture
def run(tmp_path):
    """Runs items of a fake part; returns the rows by name, and what workers were asked for."""
    log = tmp_path / "log"

    def run(names, **options):
        log.write_text("")
        left = groups([f"fake:{name}" for name in names], PARTS)
        options = {"jobs": 1, "seconds": 60.0, **options}
        rows = list(outcomes(left, command(log), **options))
        rows_of = {row["item"].removeprefix("fake:"): row for row in rows}
        assert len(rows_of) == len(rows)
        return rows_of, log.read_text().splitlines()

    return run


def command(log):
    """Returns the command that starts a worker of the fake part."""
    return sys.executable, "-c", WORKER, str(log)


def kinds(rows):
    """Returns the outcome of each item."""
    return {name: row["outcome"] for name, row in rows.items()}


def test_items_are_asked_for_together_and_each_has_a_row(run):
    """Four at once, the most of this part, whatever the worker prints. An error of the part is one of its items."""
    rows, asked = run(["a", "b", "c", "raising", "e"])

    assert kinds(rows) == {**dict.fromkeys("abce", AGREES), "raising": FAILED}
    assert rows["raising"]["message"] == "ValueError: of this one"
    assert asked == ["a b c raising", "e"]


def test_a_crash_costs_the_item_that_crashes(run):
    """The rows before it are kept, and the others are asked for in halves."""
    rows, asked = run(["a", "b", "crashing", "d"])

    assert kinds(rows) == {"a": AGREES, "b": AGREES, "crashing": CRASHED, "d": AGREES}
    assert rows["crashing"]["message"] == "exit status 3: a failed assertion"
    assert asked == ["a b crashing d", "crashing", "d"]


def test_a_hang_ends_at_its_time_limit_and_leaves_no_process(run):
    """The worker and its children are ended."""
    rows, asked = run(["hanging"], seconds=2.0, first=0.0)

    assert kinds(rows) == {"hanging": LATE}
    assert rows["hanging"]["message"] == "after 2 s"
    assert_ended(*map(int, asked[-1].split()[1:]))


def assert_ended(*processes):
    """Checks that none of these processes runs; the operating system takes a moment."""
    for process in processes:
        for _ in range(100):
            if not is_running(process):
                break
            time.sleep(0.05)
        else:
            pytest.fail(f"process {process} still runs")


def is_running(process):
    """Returns whether a process runs; one that has ended may wait to be read."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_whose_gpu_is_lost_is_replaced(run):
    """The item that lost it has its row; the next ones are asked of another process."""
    rows, asked = run(["losing", "c"])

    assert kinds(rows) == dict.fromkeys(["losing", "c"], AGREES)
    assert asked == ["losing c", "c"]


def test_nothing_is_left_where_the_iteration_stops(tmp_path, monkeypatch):
    """Neither a process nor a file."""
    log, temporary = tmp_path / "log", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    left = [["fake:a"], ["fake:hanging"]]
    rows = outcomes(left, command(log), jobs=2, seconds=60.0)

    assert next(rows)["item"] == "fake:a"
    while "processes" not in log.read_text():
        time.sleep(0.05)
    rows.close()

    (line,) = (line for line in log.read_text().splitlines() if "processes" in line)
    assert_ended(*map(int, line.split()[1:]))
    assert list(temporary.iterdir()) == []


def test_a_worker_that_does_not_start_is_an_error_with_its_last_line():
    """It would be so for each item."""
    broken = (sys.executable, "-c", "raise SystemExit('no TensorRT')")

    with pytest.raises(TorchTRTError, match=r"did not start .exit status 1.: no TensorRT"):
        list(outcomes([["fake:a"]], broken, jobs=1, seconds=60.0))


def test_items_of_one_kind_are_asked_for_together():
    """A float16 sample lets TensorRT 8.6 compute the others in half precision."""
    parts = {"samples": Part(list, lambda names: iter(()), 8, lambda name: name.split()[-1])}
    items = [f"samples:{op} {dtype}" for op in "abcdefghi" for dtype in ("float32", "float16")]

    grouped = groups(items, parts)

    assert [len(group) for group in grouped] == [8, 8, 1, 1]
    assert [{item.split()[-1] for item in group} for group in grouped] == [
        {"float32"}, {"float16"}, {"float32"}, {"float16"},
    ]  # fmt: skip
    assert sorted(item for group in grouped for item in group) == sorted(items)


def test_an_unfinished_line_of_a_file_is_no_row(tmp_path):
    """The process may have been ended while it wrote."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"item": "a"}\n{"item": "b')

    assert rows_of(path) == [{"item": "a"}]
    assert rows_of(tmp_path / "none") == []
