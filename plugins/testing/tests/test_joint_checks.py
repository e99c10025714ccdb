"""Cases that are compiled as one program pass only if each would pass alone."""

import sys

import pytest
import torch

import torchtrt
from torchtrt.testing import decomposition_case, op_case
from torchtrt_testing.joint_checks import AT_ONCE, agreeing


def without_faults(nodes):
    """Validators that answer rightly."""
    return []


@pytest.fixture(autouse=True)
def current():
    with torchtrt.use_tensorrt("reference@11.4.0"):
        yield


GOOD = [
    op_case("aten.relu.default", "batch length"),
    op_case("aten.tanh.default", "batch 4"),
    op_case("aten.add.Tensor", "batch length", "length"),
    op_case("aten.exp.default", "batch rows", dimensions={"batch": (1, 2, 9), "rows": (1, 2, 3)}),
    decomposition_case("aten.hardshrink.default", "batch length"),
]


def raises(x):
    """What PyTorch does not export."""
    return x[: int(x.sum())]


def skips(x):
    """What ``pytest.importorskip`` raises is not an ``Exception``."""
    return pytest.importorskip("a_library_that_is_not_there").function(x)


def ends(x):
    """What some libraries do where they miss something."""
    return sys.exit("no such device")


def wrong():
    """A case whose engine computes something else than eager PyTorch."""
    return op_case(
        "aten.add.Tensor", "3", function=lambda x: x + (1 if torch.compiler.is_exporting() else 2)
    )


BAD = {
    "wrong values": wrong(),
    "an op of another case": op_case("aten.tanh.default", "3", function=torch.relu),
    "an op without a converter": op_case("aten.igamma.default", "3", "3"),
    "rejected": op_case("aten.igamma.default", "3", "3", rejected="no pack has a converter"),
    "no program": op_case((), "3", function=raises, label="raises"),
    "skipped": op_case((), "3", function=skips, label="skips"),
    "exits": op_case((), "3", function=ends, label="exits"),
    "other code for one": op_case(
        (), "batch 2", function=lambda x: x + 1 if x.shape[0] == 1 else x * 2, label="one"
    ),
    "no input": op_case("aten.ones.default", [3]),
}
"""Cases that need a check of their own, and why."""


def test_cases_that_agree_pass_together():
    """Dimensions of one name may have other sizes in each case."""
    assert {*GOOD} == agreeing(GOOD, True, {}, without_faults)
    assert {*GOOD} == agreeing(GOOD, False, {}, without_faults)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_case_that_does_not_agree_leaves_the_others(bad):
    """Those that are not next to it pass without a check of their own, even if PyTorch cannot export it."""
    agreeing_cases = agreeing([bad, *GOOD], True, {}, without_faults)

    assert {*GOOD[2:]} <= agreeing_cases <= {*GOOD}


def test_an_interrupted_run_ends():
    """The user who interrupts it waits for no half of the cases."""

    def interrupts(x):
        raise KeyboardInterrupt

    bad = op_case((), "3", function=interrupts, label="interrupts")
    with pytest.raises(KeyboardInterrupt):
        agreeing([bad, *GOOD], True, {}, without_faults)


def test_no_case_passes_where_a_validator_fails():
    """The answers about each case are checked with the case alone."""
    assert not agreeing(GOOD, True, {}, lambda nodes: ["raises"])


def test_one_case_is_not_together():
    """So that a test that is run by its name shows what goes wrong."""
    assert not agreeing(GOOD[:1], True, {}, without_faults)
    assert AT_ONCE > 1
