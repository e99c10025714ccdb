"""What ``tools.rtx_builds --check`` finds in the outcomes of builds with TensorRT for RTX."""

import json

import pytest

from tools import rtx_builds
from torchtrt_testing.building import BUILT
from torchtrt_testing.verification.findings import CRASHED, LATE

ITEM = "cases:float16 varying 7 aten.relu.default"
UNTRACED = {"outcome": "not exported: a guard", "reference": "not exported"}
WAV2VEC2 = "architectures:float16 varying wav2vec2"
BOTH = {"item": ITEM, "outcome": BUILT, "reference": BUILT, "differences": []}
ALL_BUILT = {**BOTH, "item": "cases:float16 varying 8 aten.tanh.default"}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"differences": ["layer 3 is float32, not float16"]}, "layer 3 is float32, not float16"),
        ({"outcome": "Error 2", "reference": BUILT}, "TensorRT for RTX: Error 2; the reference: built"),
        ({"reference": "no converter"}, "TensorRT for RTX: built; the reference: no converter"),
        ({"outcome": CRASHED, "reference": None}, CRASHED),
        ({"item": "architectures:float16 varying gpt2", **UNTRACED},
         "every architecture should be built; this one is not: not exported: a guard"),
    ],
    ids=["network", "refused", "reference", "crashed", "architecture"],
)  # fmt: skip
def test_a_difference_is_a_fault(changes, fault):
    """A worker that ends early leaves a row without the reference's outcome."""
    row = {key: value for key, value in (BOTH | changes).items() if value is not None}

    (fault_,) = rtx_builds.faults([row, ALL_BUILT], [row["item"], ALL_BUILT["item"]])[:1]

    assert fault_.startswith(f"{row['item']}: ")
    assert fault in fault_


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"outcome": "not exported: PyTorch has no kernel", "reference": "not exported"},
        {"outcome": "nonzero has outputs whose sizes depend on data"},
        {"outcome": LATE, "reference": None},
        {"item": WAV2VEC2, **UNTRACED},
    ],
    ids=["built", "not-exported", "no-layer", "late", "not-traced"],
)
def test_what_the_page_describes_is_no_fault(changes):
    """``docs/rtx.md`` says what is not built."""
    row = {key: value for key, value in (BOTH | changes).items() if value is not None}
    built = {**BOTH, "item": f"{row['item']} again"}

    assert [] == rtx_builds.faults([row, built], [row["item"], built["item"]])


def test_an_item_without_outcome_is_a_fault():
    """The file may be of a run that was interrupted."""
    faults = rtx_builds.faults([ALL_BUILT], [ALL_BUILT["item"], ITEM])

    assert [f"{ITEM}: TensorRT for RTX: it has no outcome; the reference: not asked"] == faults


def test_a_part_without_any_build_is_a_fault():
    """Nothing is compared where PyTorch exports nothing."""
    row = {**BOTH, "outcome": "not exported: an error", "reference": "not exported"}

    assert ["cases:float16 varying: nothing was built"] == rtx_builds.faults([row], [ITEM])


def test_the_check_ends_with_the_faults(tmp_path):
    """Make sees the exit status."""
    out = tmp_path / "rows.jsonl"
    faulty = {**BOTH, "differences": ["layer 3 is float32, not float16"]}
    out.write_text("".join(json.dumps(row) + "\n" for row in (ALL_BUILT, faulty)))

    with pytest.raises(SystemExit, match=r"1 faults in the builds of 2 items:\n.*relu.*layer 3"):
        rtx_builds.check(out, [ALL_BUILT["item"], ITEM])


def test_the_check_counts_what_was_built(tmp_path, capsys):
    """It names the reasons of the others."""
    out = tmp_path / "rows.jsonl"
    late = {"item": ITEM, "outcome": LATE}
    out.write_text("".join(json.dumps(row) + "\n" for row in (ALL_BUILT, late)))

    rtx_builds.check(out, [ALL_BUILT["item"], ITEM])

    assert capsys.readouterr().out.splitlines() == [
        "Of 2 items, 1 were built, with the networks of reference@11.4.0.",
        "1 were not built: its builder takes longer than the time limit.",
    ]
