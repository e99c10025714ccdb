"""The sweep, with parts of our own: what becomes of an item does not depend on those it runs together with."""

import dataclasses
import json
import sys
import time

import pytest
import torch

import torchtrt
from tools.sweep import steps, sweeping, together
from torchtrt_compiler.building import engine as building
from torchtrt_testing.op_info import samples_of

WORKER = """
import os, sys, time
from tools.sweep import sweeping

def check(names):
    with open(sys.argv[1], "a") as log:
        log.write(" ".join(names) + "\\n")
    print("TensorRT says something", flush=True)
    for name in names:
        if name == "crashing":
            os._exit(3)
        if name == "hanging":
            time.sleep(600)
        if name == "raising":
            raise ValueError("of this one")
        yield name, {"outcome": "wrong" if name == "wrong" else "right", "compared": 4}

sweeping.FIRST = 0
sweeping.PARTS = {"fake": sweeping.Part(list, check, 4)}
sweeping.work()
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Sweeps a fake part; returns the outcomes, and what workers were asked for."""
    fake = sweeping.Part(list, lambda names: iter(()), 4, kind=lambda name: "")
    monkeypatch.setattr(sweeping, "PARTS", {"fake": fake})
    monkeypatch.setattr(sweeping, "FIRST", 60)
    out, log = tmp_path / "out.jsonl", tmp_path / "log"

    def run(names, seconds=60.0):
        log.write_text("")
        command = (sys.executable, "-c", WORKER, str(log))
        sweeping.sweep(
            out, [f"fake:{name}" for name in names], jobs=1, seconds=seconds, command=command
        )
        outcomes = {row["item"].removeprefix("fake:"): row["outcome"] for row in sweeping.rows(out)}
        return outcomes, log.read_text().splitlines()

    run.out, run.log = out, log
    return run


def test_items_are_asked_for_together_and_each_has_a_row(run):
    """Four at once, the most of this part; a table reads what is written."""
    outcomes, asked = run(["a", "b", "wrong", "d", "e"])
    assert outcomes == {"a": "right", "b": "right", "wrong": "wrong", "d": "right", "e": "right"}
    assert asked == ["a b wrong d", "e"]
    assert "| fake | 5 | 4 | 1 wrong |" in sweeping.table(run.out)


def test_a_crash_costs_the_item_that_crashes(run):
    """What was answered before is kept, and the others are asked for in halves."""
    outcomes, asked = run(["a", "b", "crashing", "d"])
    assert outcomes == {
        "a": "right",
        "b": "right",
        "crashing": "crashed: exit status 3",
        "d": "right",
    }
    assert asked == ["a b crashing d", "crashing", "d"]


class Clock:
    """A clock that has gone an hour further each time that a worker hangs."""

    def __init__(self, log):
        self.log = log

    def monotonic(self):
        return time.monotonic() + 3600 * self.log.read_text().count("hanging")


def test_a_hang_costs_the_item_that_hangs(run, monkeypatch):
    """The worker is ended, and each half asked for again."""
    monkeypatch.setattr(sweeping, "time", Clock(run.log))
    outcomes, asked = run(["hanging", "b"], seconds=600)
    assert outcomes == {"hanging": "timed out after 660 s", "b": "right"}
    assert asked == ["hanging b", "hanging", "b"]


def test_an_error_is_the_outcome_of_what_has_none_yet(run):
    """Where a part itself fails, no item is lost."""
    outcomes, _ = run(["a", "raising"])
    assert outcomes == {"a": "right", "raising": "ValueError: of this one"}


def test_what_has_an_outcome_is_not_run_again(run):
    """A file from before, too: a row needs no more than an item and its outcome."""
    run.out.write_text(json.dumps({"item": "fake:a", "outcome": "right", "seconds": 8.1}) + "\n")
    outcomes, asked = run(["a", "b"])
    assert outcomes == {"a": "right", "b": "right"}
    assert asked == ["b"]


def test_samples_of_one_dtype_are_asked_for_together():
    """A float16 one lets TensorRT 8.6 compute the others in half precision."""
    items = [f"samples:{op} {dtype}" for op in "abcdefghi" for dtype in ("float32", "float16")]
    found = list(sweeping.groups(items))
    assert [len(group) for group in found] == [8, 8, 1, 1]
    assert [{item.split()[-1] for item in group} for group in found] == [
        {"float32"}, {"float16"}, {"float32"}, {"float16"},
    ]  # fmt: skip
    assert sorted(item for group in found for item in group) == sorted(items)


@pytest.fixture
def engines(monkeypatch):
    """Counts the engines that are built."""
    build_plan, built = building.build_plan, []

    def counted(*args):
        built.append(args)
        return build_plan(*args)

    monkeypatch.setattr(building, "build_plan", counted)
    return built


def items_of(*names):
    """Returns the first samples of some ops, in float32."""
    return {name: samples_of(name, torch.float32)[:2] for name in names}


def check(items):
    """Returns what was found of each item."""
    with torchtrt.use_tensorrt("reference@8.6.0"):
        return dict(together.check_samples(items))


def test_samples_become_one_engine(engines):
    """Also random ones and those that write to their inputs; what stays in PyTorch is not compared."""
    found = check(items_of("add", "bernoulli", "fill", "index_put", "nextafter", "median"))
    assert {name: each.compared for name, each in found.items()} == {
        "add": 2, "bernoulli": 2, "fill": 2, "index_put": 2, "nextafter": 0, "median": 2,
    }  # fmt: skip
    assert not any(each.wrong or each.only_together for each in found.values())
    assert len(engines) == 1


def one_of_another_op(items, name, function):
    """Replaces the op of an item's second sample."""
    first, second = items[name]
    items[name] = [first, dataclasses.replace(second, function=function)]


def test_a_wrong_sample_is_named_and_the_others_are_right(engines):
    """It is tried alone, and nothing else is."""

    def exported_as_another(input, *others, **settings):
        result = torch.mul(input, *others)
        return result + 1 if torch.compiler.is_exporting() else result

    items = items_of("sub", "mul", "add")
    one_of_another_op(items, "mul", exported_as_another)
    found = check(items)
    assert [each.startswith("sample 1 (") for each in found["mul"].wrong] == [True]
    assert "result 0" in found["mul"].wrong[0]
    assert not found["sub"].wrong
    assert not found["add"].wrong
    assert {each.compared for each in found.values()} == {2}
    assert len(engines) == 2


def test_an_input_that_is_written_wrongly_is_wrong():
    """Inputs are compared as they are after the call."""

    def writes(input, *others, **settings):
        input.add_(2 if torch.compiler.is_exporting() else 1)
        return torch.mul(input, 0)

    items = items_of("mul", "add")
    one_of_another_op(items, "mul", writes)
    found = check(items)
    assert len(found["mul"].wrong) == 1
    assert "result 1" in found["mul"].wrong[0]
    assert not found["add"].wrong


def test_what_fails_together_is_tried_in_halves(engines, monkeypatch):
    """Down to the one that is the matter, which has its own outcome."""
    items = items_of("sub", "mul", "add", "pow")
    culprit = items["mul"][0]
    run_together, sizes = together._run, []

    def failing(candidates, settings):
        sizes.append(len(candidates))
        if any(candidate.sample is culprit for candidate in candidates):
            raise RuntimeError("not these")
        return run_together(candidates, settings)

    monkeypatch.setattr(together, "_run", failing)
    found = check(items)
    assert sizes == [8, 4, 2, 2, 4]
    assert all(each == together.Found(compared=2) for each in found.values())
    assert len(engines) == 4  # 2, 1, 1 and 4 samples


def test_what_is_wrong_only_together_is_right_and_told(monkeypatch):
    """Values that differ in company, and not alone, are no error of the sample, as its row shows."""
    run_together = together._run

    def spoiling(candidates, settings):
        results = run_together(candidates, settings)
        return [[each + 1 for each in results[0]], *results[1:]]

    monkeypatch.setattr(together, "_run", spoiling)
    items = items_of("sub", "add")
    found = check(items)
    assert found["add"] == together.Found(compared=2)
    assert not found["sub"].wrong
    assert [each.startswith("sample 0 (") for each in found["sub"].only_together] == [True]


def test_a_row_says_how_many_samples_were_compared(monkeypatch):
    """And what was wrong, as one outcome."""
    found = [
        ("add float32", together.Found(1, ("sample 0: bad", "sample 3: bad"), ("sample 1: odd",)))
    ]
    monkeypatch.setattr(together, "check_samples", lambda items, **settings: iter(found))
    assert list(sweeping.check_samples(["add float32"])) == [
        (
            "add float32",
            {
                "outcome": "AssertionError: sample 0: bad; sample 3: bad",
                "compared": 1,
                "only_together": ("sample 1: odd",),
            },
        )
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--items", "FILE"], ["fake:b", "fake:a"]),
        (["fake", "--reversed"], ["fake:c", "fake:b", "fake:a"]),
    ],
)
def test_the_order_is_the_callers(options, expected, tmp_path, monkeypatch):
    """A file's, or the other way round."""
    asked = []
    monkeypatch.setattr(
        sweeping, "PARTS", {"fake": sweeping.Part(lambda: list("abc"), lambda names: iter(()))}
    )
    monkeypatch.setattr(sweeping, "sweep", lambda out, items, *_: asked.extend(items))
    listed = tmp_path / "items"
    listed.write_text("fake:b\nfake:a\n")
    options = [str(listed) if each == "FILE" else each for each in options]
    monkeypatch.setattr(sys, "argv", ["sweep", str(tmp_path / "out.jsonl"), *options])
    sweeping.main()
    assert asked == expected


@pytest.mark.parametrize("form", sorted(steps.FORMS))
def test_each_form_of_a_step_is_right(form):
    """As one engine, for one new token, with heads that share keys."""
    step = steps.Step(form, rotates=True, groups=2, dtype=torch.float32, varies=False)
    with torchtrt.use_tensorrt("reference@8.6.0"):
        step.check({})
