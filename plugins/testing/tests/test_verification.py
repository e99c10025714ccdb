"""The items of a verification, its disagreements, and the paths that a report does not show."""

from pathlib import Path

import pytest

import torchtrt
from torchtrt_testing.verification.environment import without_paths
from torchtrt_testing.verification.findings import (
    AGREES,
    BUILT,
    CRASHED,
    DIFFERS,
    FAILED,
    IN_PYTORCH,
    LATE,
    NOT_APPLICABLE,
    REFUSED,
    Finding,
    disagrees,
)
from torchtrt_testing.verification.items import (
    ARCHITECTURES,
    CASES,
    SAMPLES,
    chosen,
    items_of,
    parts_with,
    reference_in_comparison,
)
from torchtrt_testing.verification.report import VerificationReport, described


@pytest.mark.parametrize(
    ("own", "reference", "is_reported"),
    [
        (AGREES, AGREES, False),
        (BUILT, AGREES, False),
        (IN_PYTORCH, IN_PYTORCH, False),
        (NOT_APPLICABLE, NOT_APPLICABLE, False),
        (AGREES, None, False),
        (IN_PYTORCH, None, False),
        (IN_PYTORCH, AGREES, True),
        (AGREES, IN_PYTORCH, True),
        (AGREES, REFUSED, True),
        (NOT_APPLICABLE, AGREES, True),
        *((kind, AGREES, True) for kind in (DIFFERS, REFUSED, FAILED, CRASHED, LATE)),
        (DIFFERS, DIFFERS, True),
        (DIFFERS, None, True),
    ],
)
def test_a_wrong_outcome_and_another_one_than_the_references_are_reported(
    own, reference, is_reported
):
    """A rejection that the reference shares is none of TensorRT's faults."""
    theirs = None if reference is None else Finding(reference)

    assert disagrees(Finding(own), theirs) is is_reported


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/models/net.py", "…/net.py"),
        ('File "/home/ada/my-net_2.py", line 3', 'File "…/my-net_2.py", line 3'),
        ("in (/opt/x/y.so: no symbol)", "in (…/y.so: no symbol)"),
        (r"C:\Users\Ada\net.py", "…/net.py"),
        ("aten.relu.default/relu/unary", "aten.relu.default/relu/unary"),
        ("1/2 of a/b", "1/2 of a/b"),
        ("file:///home/ada/x", "…/x"),
        (f"{Path.home()}/a b/x.py", "…/a b/x.py"),
    ],
)
def test_absolute_paths_are_their_last_part(text, shown):
    """Names of layers and fractions are no paths."""
    assert without_paths(text) == shown


def test_ops_are_chosen_by_patterns_in_any_spelling():
    """Of cases and of PyTorch's samples."""
    spellings = ("aten.logaddexp", "aten::logaddexp", "logaddexp", "aten.logaddexp.default")
    choices = [set(chosen([CASES], patterns=[spelling])) for spelling in spellings]

    assert choices[0]
    assert choices == [choices[0]] * 4
    assert all("aten.logaddexp.default" in item for item in choices[0])
    (first, *_) = chosen([SAMPLES], patterns=["aten.logaddexp"])
    assert first == "samples:logaddexp float32"
    assert set(chosen([SAMPLES], patterns=["nn.functional.gelu"])) == set(
        chosen([SAMPLES], patterns=["gelu"])
    )


def test_every_first_party_case_is_an_item_in_each_dtype_and_with_both_kinds_of_sizes():
    """With an ID of its own."""
    cases = torchtrt.testing.first_party_cases()
    expected = sum((1 + case.varies) * len(case.dtypes) for case in cases)

    assert len(chosen([CASES])) == expected


def rows(part, name):
    """Returns the rows of a part for some items, on another TensorRT than the reference in comparison."""
    return dict(parts_with({})[part].check([name]))


def test_the_reference_of_the_closest_version_is_asked_too(monkeypatch):
    """Here 8.6 for 10.16, which has exact integers."""
    monkeypatch.setattr(
        "torchtrt_testing.verification.items.reference_in_comparison", lambda: "reference@8.6.0"
    )
    name = "bitwise_and int64"
    with torchtrt.use_tensorrt("reference@10.16.1"):
        row = rows(SAMPLES, name)[name]

    assert row["outcome"] == AGREES
    assert row["reference"]["outcome"] == IN_PYTORCH
    assert "loses bits" in row["reference"]["message"]


@pytest.mark.slow
def test_an_architecture_is_compared_in_each_dtype_that_tensorrt_has():
    """8.6 has no bfloat16."""
    names = [name for name in items_of(ARCHITECTURES) if " vit " in name]
    with torchtrt.use_tensorrt("reference@8.6.0"):
        outcomes = {name.split()[2]: rows(ARCHITECTURES, name)[name]["outcome"] for name in names}

    assert outcomes == {"float32": AGREES, "float16": AGREES, "bfloat16": NOT_APPLICABLE}


def test_an_op_that_vanishes_at_fixed_sizes_is_no_disagreement():
    """The engine must agree; it need not have the op."""
    name = "aten_core aten.sym_size.int fixed"
    with torchtrt.use_tensorrt("reference@8.6.0"):
        assert rows(CASES, name)[name]["outcome"] == AGREES


def test_the_reference_is_not_compared_with_itself():
    """It is compared with eager PyTorch alone."""
    with torchtrt.use_tensorrt("reference@8.6.0"):
        assert reference_in_comparison() == ""


def test_a_page_has_no_row_that_its_text_breaks():
    """Messages of TensorRT have pipes, lines and angle brackets."""
    (item, chosen_item), *_ = chosen([CASES], patterns=["aten.relu"]).items()
    row = {"item": item, "outcome": REFUSED, "message": "a | <b>\nc", "seconds": 1.0}
    machine = {
        "tensorrt": "TensorRT 10.3.0",
        "settings": {},
        "packs": {},
        "reference": "",
        "gpu": "",
    }
    report = VerificationReport(
        machine, [described(row, chosen_item)], [], {}, "", "torchtrt verify", ""
    )

    page = report.to_markdown()

    assert "1 of 1 cases ran, and 1 of them disagree." in page
    assert r"refused: a \| &lt;b> c" in page
    assert f"`torchtrt verify --case '{item}'`" in page
    assert not report.is_right
