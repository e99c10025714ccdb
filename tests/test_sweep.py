"""The sweep, which goes on behind the outcomes of a file, and the forms of a step that it tries."""

import json
import sys

import pytest
import torch

import torchtrt
from tools.sweep import steps, sweeping
from torchtrt_testing.verification.findings import AGREES, DIFFERS, NOT_APPLICABLE
from torchtrt_testing.verification.workers import Part

WORKER = """
from torchtrt_testing.verification.workers import Part, work

def check(names):
    for name in names:
        yield name, {"outcome": "differs" if name == "wrong" else "agrees", "message": ""}

work({"fake": Part(list, check)})
"""


def test_what_has_an_outcome_is_not_run_again(tmp_path):
    """A table reads the file."""
    out = tmp_path / "out.jsonl"
    out.write_text(json.dumps({"item": "fake:a", "outcome": AGREES, "seconds": 8.1}) + "\n")
    parts = {"fake": Part(list, lambda names: iter(()))}
    items = [f"fake:{name}" for name in ("a", "b", "wrong")]

    sweeping.sweep(out, items, parts, 1, 60.0, (sys.executable, "-c", WORKER))

    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["item"]: row["outcome"] for row in rows} == {
        "fake:a": AGREES, "fake:b": AGREES, "fake:wrong": DIFFERS,
    }  # fmt: skip
    assert len(rows) == 3
    assert "| fake | 3 | 2 | 1 differs |" in sweeping.table(out)


def test_a_case_is_tried_at_sizes_that_it_does_not_name():
    """Where eager PyTorch takes them."""
    extremes = sweeping.PARTS["extremes"]
    names = [name for name in extremes.names() if " aten.logaddexp.default" in name]
    with torchtrt.use_tensorrt("reference@8.6.0"):
        rows = dict(extremes.check(names))

    assert {name.split()[-1] for name in rows} == {"one", "maximum", "from-one"}
    assert {row["outcome"] for row in rows.values()} <= {AGREES, NOT_APPLICABLE}
    assert AGREES in {row["outcome"] for row in rows.values()}


@pytest.mark.parametrize("form", sorted(steps.FORMS))
def test_each_form_of_a_step_is_right(form):
    """As one engine, for one new token, with heads that share keys."""
    step = steps.Step(form, rotates=True, groups=2, dtype=torch.float32, varies=False)
    with torchtrt.use_tensorrt("reference@8.6.0"):
        step.check({})
