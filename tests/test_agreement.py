"""The reference does what TensorRT 8.6.0 did, case by case; the table covers what a converter can call."""

from __future__ import annotations

import contextlib
import functools
import json
import re

import pytest

from tools.agreement import comparison, recording
from tools.agreement.case import Case, Network, NotAdded, outputs_of
from tools.agreement.cases import table
from tools.agreement.disagreements import REASONS
from tools.agreement.outcome import Outcome, decode, difference, encode
from tools.agreement.runner import run_case

CASES = [case for cases in table().values() for case in cases]
# Plugins need creators, which NVIDIA's libraries or a program bring; inputs are added for every case.
NOT_LAYERS = {"add_input", "add_plugin_v2", "add_plugin_v3"}
KINDS = (
    *("ActivationType", "ElementWiseOperation", "FillOperation", "GatherMode", "InterpolationMode"),
    *("LoopOutput", "MatrixOperation", "PaddingMode", "PoolingType", "ReduceOperation"),
    *("ResizeCoordinateTransformation", "ResizeRoundMode", "ResizeSelector", "SampleMode"),
    *("ScaleMode", "ScatterMode", "TopKOperation", "TripLimit", "UnaryOperation"),
)


@functools.cache
def recorded() -> dict[str, Outcome]:
    """The recording of TensorRT 8.6.0."""
    return recording.read(comparison.RECORDING)


@functools.cache
def used() -> tuple[set[str], set[str]]:
    """What the table calls, and the enum members that it names."""
    trt = recording.tensorrt(on_reference=True)
    members: set[str] = set()

    class Watched(Network):
        def resolve(self, value: object) -> object:
            if isinstance(value, str) and re.fullmatch(r"[A-Z]\w+\.[A-Z][A-Z0-9_]*", value):
                members.add(value)
            return super().resolve(value)

    builder = trt.Builder(trt.Logger(trt.Logger.INTERNAL_ERROR))
    calls: set[str] = set()
    for case in CASES:
        network = Watched(trt, builder.create_network(1), case.inputs)
        # Refusing is an answer; what was called counts.
        with contextlib.suppress(NotAdded, AttributeError, RuntimeError, TypeError, ValueError):
            outputs_of(case.build(network))
        calls.update(network.calls)
    return calls, members


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_reference_does_what_tensorrt_did(case: Case) -> None:
    """Acceptance, stage of refusal, types, shapes and values agree; a known disagreement still disagrees."""
    got = run_case(recording.tensorrt(on_reference=True), case)
    want = recorded().get(case.name)
    if want is None:
        assert got.refused_at not in ("error", "run"), got.reason  # not recorded yet
        return
    how = difference(case, got, want)
    if case.name in REASONS:
        assert how is not None, "It agrees now: remove it from the known disagreements."
    else:
        assert how is None, f"The reference {how}."


def test_the_table_has_at_least_600_cases() -> None:
    """The table is as large as documented."""
    assert len(CASES) >= 600


def test_the_recording_is_of_this_table() -> None:
    """Nothing was recorded that is no case, and most of the table was recorded."""
    assert set(recorded()) <= {case.name for case in CASES}
    assert len(recorded()) >= 0.8 * len(CASES)


def test_known_disagreements_are_cases_with_a_reason() -> None:
    """The list of known disagreements names cases and explains each."""
    assert set(REASONS) <= {case.name for case in CASES}
    assert all(reason.endswith(".") for reason in REASONS.values())


def test_every_layer_is_in_the_table() -> None:
    """Every ``add_*`` of the network, loops and conditionals is called by a case."""
    trt = recording.tensorrt(on_reference=True)
    owners = (trt.INetworkDefinition, trt.ILoop, trt.IIfConditional)
    there = {name for owner in owners for name in dir(owner) if name.startswith("add_")}
    assert there - NOT_LAYERS <= used()[0]


@pytest.mark.parametrize("kind", KINDS)
def test_every_mode_and_operation_is_in_the_table(kind: str) -> None:
    """Every member of the enums that layers take is used by a case."""
    trt = recording.tensorrt(on_reference=True)
    values = {int(member) for member in getattr(trt, kind).__members__.values()}
    named = {text.partition(".")[2] for text in used()[1] if text.startswith(f"{kind}.")}
    assert {int(getattr(getattr(trt, kind), name)) for name in named} == values


@pytest.mark.parametrize(
    "name",
    [
        "unary/LOG/float32 edges",
        "reduce/SUM/nothing float32",
        "cast/float32 to HALF",
        "reduce/SUM/bool",
    ],
)
def test_an_outcome_survives_being_written(name: str) -> None:
    """What was written and read back does not differ from what was seen: NaN, nothing, halves, refusals."""
    case = next(case for case in CASES if case.name == name)
    outcome = run_case(recording.tensorrt(on_reference=True), case)
    written = json.loads(json.dumps(encode(outcome), allow_nan=False))
    assert difference(case, decode(written), outcome) is None
    assert encode(decode(written)) == written
