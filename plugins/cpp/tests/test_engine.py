"""The op of the C++ library on engines of a stand-in for TensorRT."""

from __future__ import annotations

import json
import re

import pytest

from plugins.cpp.tests import engine_process
from plugins.cpp.tests.plans import DOUBLE, TENSORRT, an_input, an_output, describe
from torchtrt.errors import UnreadableFileError
from torchtrt_runtime.serialization.engine_metadata import load_engine, parse_description

TWO_RANGES = DOUBLE + "profile x 16,2 32,2\n"
RANGES = an_input("x", "float32", ([1, 2], [2, 2], [8, 2]), ([16, 2], [16, 2], [32, 2]))


def rows(count):
    """Returns a float32 input of so many rows."""
    return [[float(row), 0.5] for row in range(count)], "float32"


def doubled(count):
    """Returns ``2 * x + 1`` of it."""
    return [[2.0 * row + 1, 2.0] for row in range(count)], "float32"


@pytest.fixture
def run(process):
    """Runs a plan in the process of the library."""

    def call(plan, *inputs, **changes):
        text = describe(plan, **changes)
        return process.submit(engine_process.run_numbers, plan, text, *inputs).result()

    return call


@pytest.fixture
def refusal(run):
    """Returns the text of the error that a call raises."""

    def call(plan, *inputs, **changes):
        with pytest.raises(RuntimeError) as error:
            run(plan, *inputs, **changes)
        return str(error.value)

    return call


@pytest.mark.parametrize("count", [1, 8, 3])
def test_an_engine_runs_for_each_size_of_its_range(run, count):
    assert [doubled(count)] == run(DOUBLE, rows(count))


@pytest.mark.parametrize("kind", ["", "exclusive\n"])
def test_a_call_takes_the_first_profile_that_fits(run, kind):
    """Sizes of one range follow those of another, and in TensorRT 8.6 a context takes the profile from the others."""
    for count in (16, 2, 32, 8):
        assert [doubled(count)] == run(TWO_RANGES + kind, rows(count), inputs=[RANGES])


def test_a_size_in_no_range_is_refused_with_all_ranges(refusal):
    message = refusal(TWO_RANGES, rows(9), inputs=[RANGES])

    assert message.startswith(
        "The engine of block_0 refused the shape (9, 2) of its input 'x'; it was built for "
        "(1 to 8, 2) or (16 to 32, 2): "
    )


def test_sizes_that_depend_on_data_come_through_an_allocator(run):
    plan = "stand-in plan\ninput x float32\nprofile x 0 9\npositives y float32 x 1 0\n"
    changes = {
        "inputs": [an_input("x", "float32", ([0], [4], [9]))],
        "outputs": [an_output("y", "float32")],
        "requires_output_allocator": True,
    }

    for numbers, positives in (
        ([1.0, -1.0, 2.0], [1.0, 2.0]),
        ([-1.0], []),
        ([], []),
        ([3.0], [3.0]),
    ):
        assert [(positives, "float32")] == run(plan, (numbers, "float32"), **changes)


def test_an_engine_of_32_bits_takes_and_gives_64(run):
    plan = "stand-in plan\ninput x int32\nprofile x 1 9\noutput y int32 x 3 0\n"
    changes = {
        "inputs": [an_input("x", "int64", ([1], [4], [9]))],
        "outputs": [an_output("y", "int64")],
    }

    assert [([3, 6], "int64")] == run(plan, ([1, 2], "int64"), **changes)


def test_fractions_for_an_integer_are_refused(refusal):
    plan = "stand-in plan\ninput x int32\nprofile x 1 9\noutput y int32 x 3 0\n"
    changes = {
        "inputs": [an_input("x", "int64", ([1], [4], [9]))],
        "outputs": [an_output("y", "int64")],
    }

    assert (
        "PyTorch computed torch.float32 for the input 'x' of block_0, and had traced it as an integer. Convert it in "
        "the model, with .to(torch.float32), before it is used."
    ) == refusal(plan, ([0.5], "float32"), **changes)


def test_an_update_of_a_cache_leaves_the_input_as_it_is(run):
    """The engine writes into its input, which is a copy in the output's memory."""
    plan = DOUBLE.replace("output y", "update y")

    for _ in range(2):
        assert [doubled(3)] == run(plan, rows(3))


def test_layouts_other_than_contiguous_are_copied(process):
    text = describe(DOUBLE)

    assert [True] * 4 == process.submit(engine_process.run_layouts, DOUBLE, text).result()


def test_threads_share_an_engine_and_no_context(process):
    """The stand-in fails a call of a context that another thread runs."""
    plan = f"{DOUBLE}\n"
    before = process.submit(engine_process.counts).result()

    wrong = process.submit(engine_process.run_in_threads, plan, describe(plan), 8, 40).result()

    after = process.submit(engine_process.counts).result()
    assert [] == wrong
    assert 1 == after["loads"] - before["loads"]
    assert 1 <= after["contexts"] - before["contexts"] <= 8


def test_an_engine_is_freed_after_its_plan(process, run):
    """The next plan that is loaded frees the engines of plans that are gone."""
    run(DOUBLE, rows(1))
    run(f"{DOUBLE}\n\n", rows(1))
    before = process.submit(engine_process.counts).result()

    process.submit(engine_process.drop_plans).result()
    run(DOUBLE, rows(1))

    after = process.submit(engine_process.counts).result()
    assert 2 <= before["engines"]
    assert [1, 1, 1] == [after[kind] for kind in ("runtimes", "engines", "contexts")]


def test_a_plan_with_another_description_is_loaded_again(process):
    """As the same plan in another model may have another name."""
    texts = [describe(DOUBLE, name=name) for name in ("first", "second")]

    results = process.submit(
        engine_process.same_plan_with_two_descriptions, DOUBLE, *texts
    ).result()

    assert [[([[3.0, 5.0]], "float32")]] * 3 == results


def test_a_failed_call_says_what_tensorrt_logged_and_the_next_call_runs(run, refusal):
    failing = f"{DOUBLE}fail Cuda failure: out of memory\n"

    assert (
        "The engine of block_0 failed: Cuda failure: out of memory The GPU has no memory left for it: free what others "
        "hold (nvidia-smi shows who), or compile for smaller sizes."
    ) == refusal(failing, rows(1))
    assert [doubled(1)] == run(DOUBLE, rows(1))


def test_a_plan_that_tensorrt_refuses_is_an_error_with_its_reason(refusal):
    refused = f"{DOUBLE}refuse Serialization assertion failed\n"

    assert (
        "TensorRT 10.16.1.11 could not load the engine of block_0: Serialization assertion failed"
    ) == refusal(refused, rows(1))


def test_a_wrong_number_of_inputs_is_refused(refusal):
    assert "The engine of block_0 takes 1 inputs, and got 2." == refusal(DOUBLE, rows(1), rows(1))


def test_tensors_on_another_device_are_refused(process):
    text = (
        "block_0 cannot run: TensorRT 10.16.1.11 runs on CPU tensors, and the tensors are on meta."
    )

    with pytest.raises(RuntimeError, match=re.escape(text)):
        process.submit(engine_process.run_elsewhere, DOUBLE, describe(DOUBLE)).result()


def test_engines_compute_no_gradients(process):
    with pytest.raises(
        RuntimeError, match="derivative for torchtrt::execute_engine is not implemented"
    ):
        process.submit(engine_process.run_with_gradients, DOUBLE, describe(DOUBLE)).result()


@pytest.mark.parametrize(
    "built_by", ["TensorRT 10.16.1.11", "TensorRT 10.16.1", "TensorRT 10.16.1.post1"]
)
def test_versions_are_equal_as_far_as_both_are_known(run, built_by):
    assert [doubled(1)] == run(DOUBLE, rows(1), tensorrt=built_by)


@pytest.mark.parametrize(
    ("built_by", "compatible", "rule"),
    [
        ("TensorRT 10.9.0.34", [], "engines load in the version that built them"),
        ("TensorRT 10.17.0", [], "engines load in the version that built them"),
        (
            "TensorRT 10.17.0",
            ["version"],
            "engines that are version compatible load in the version",
        ),
    ],
)
def test_another_version_of_tensorrt_is_refused(refusal, built_by, compatible, rule):
    message = refusal(DOUBLE, rows(1), tensorrt=built_by, compatible=compatible)

    assert message.startswith(
        f"The engine of block_0 was built by {built_by}, and this is {TENSORRT}: {rule}"
    )


def test_a_later_version_runs_what_is_version_compatible(run):
    changes = {"tensorrt": "TensorRT 10.9.0.34", "compatible": ["version"]}

    assert [doubled(1)] == run(DOUBLE, rows(1), **changes)


@pytest.mark.parametrize("built_by", ["reference@11.4.0", "rtx@1.7.1.116"])
def test_engines_of_another_implementation_are_refused(refusal, built_by):
    assert refusal(DOUBLE, rows(1), tensorrt=built_by).startswith(
        f"The engine of block_0 was built by {built_by}, which is not here."
    )


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("stripped", {"attributes": ["w"]}, "compiled with strip_engine_weights"),
        ("plugins", [["vision::box", "vision", "1"]], "runs kernels of a pack"),
        ("plugins", [{"kernel": "box"}, {"name": "vision::box", "kernel": ""}], "(aot=)"),
        ("collectives", [["all_reduce", "0", []]], "exchanges tensors with other processes"),
        ("new_field", {"a": 1}, "the field 'new_field', which this library does not know"),
    ],
)
def test_what_only_python_has_is_refused(refusal, field, value, reason):
    message = refusal(DOUBLE, rows(1), **{field: value})

    assert message.startswith("The engine of block_0 ")
    assert reason in message


def test_kernels_in_the_plan_need_no_python(run):
    assert [doubled(1)] == run(DOUBLE, rows(1), plugins=[{"name": "vision::box", "kernel": "box"}])


def test_an_unknown_field_that_is_empty_changes_nothing(run):
    assert [doubled(1)] == run(DOUBLE, rows(1), new_field=None)


def pythons_refusal(text, plan):
    """Returns the text of the error by which torchtrt refuses a description or a plan."""
    with pytest.raises(UnreadableFileError) as error:
        load_engine(parse_description(text), plan)
    return str(error.value)


DAMAGED = {
    "a checksum": {"plan_crc32": 5},
    "a size": {"plan_bytes": 5},
    "a missing field": {"name": None},
    "an input": {"inputs": [{"name": "x"}]},
    "a dtype": {"outputs": [an_output("y", "float33")]},
}


@pytest.mark.parametrize("changes", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_refused_as_python_refuses_it(refusal, changes):
    expected = pythons_refusal(describe(DOUBLE, **changes), DOUBLE.encode())

    assert expected == refusal(DOUBLE, rows(1), **changes)


@pytest.mark.parametrize(
    "text", ["", "no json", "[1, 2", '{"name": "\\u12"}', "[" * 1000, '{"a": 1}}', "12"]
)
def test_a_description_that_is_no_json_is_refused(process, text):
    with pytest.raises(RuntimeError, match=re.escape(pythons_refusal(text, b""))):
        process.submit(engine_process.run_numbers, DOUBLE, text, rows(1)).result()


@pytest.mark.parametrize("name", ["ä", "\U0001f600", 'a "quoted" name\\', "tab\there"])
def test_names_are_any_text_that_json_holds(refusal, name):
    """Python writes them with escapes."""
    assert json.dumps(name) != f'"{name}"'
    assert f"The engine of {name} takes 1 inputs, and got 0." == refusal(DOUBLE, name=name)
