"""The option ``--tensorrt`` leaves out versions of tests that run on several, and never a test."""

import functools
import re

import pytest

from tests.support.processes import TESTING, run_python
from torchtrt_reference import VERSIONS
from torchtrt_testing.marks import chosen

SUITE = """
import pytest
from torchtrt.testing import tensorrts

MODERN = ["reference@10.16.1", "reference@11.4.0"]


@pytest.mark.parametrize("tensorrt", tensorrts())
@pytest.mark.parametrize("op", range(12))
def test_op(op, tensorrt): ...


@pytest.fixture(params=[each.removeprefix("reference@") for each in tensorrts()])
def version(request):
    return request.param


def test_fixture(version): ...


@pytest.mark.each_tensorrt
def test_difference(version): ...


@pytest.mark.parametrize("tensorrt", MODERN)
def test_modern(tensorrt): ...


@pytest.mark.parametrize(("tensorrt", "layers"), [("reference@8.6.0", 3), ("reference@11.4.0", 2)])
def test_table(tensorrt, layers): ...


def test_plain(): ...
"""


@pytest.fixture(scope="module")
def run_again(tmp_path_factory):
    """Runs the suite with options and returns, for each test, the versions that it ran on."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_suite.py").write_text(SUITE)

    def run(*options):
        done = run_python(
            *("-m", "pytest", "-rA", "-q", "--strict-markers", "-p", "no:cacheprovider"),
            *(*options, str(folder)),
            cwd=folder,
            libraries=TESTING,
        )
        versions_of = {}
        for name, parameters in re.findall(r"^PASSED .*::test_(\w+)(.*)$", done.stdout, re.M):
            version = re.search(r"\d+\.\d+\.\d+", parameters)
            test = name + parameters.replace(version[0] if version else "", "")
            versions_of.setdefault(test, []).append(version and version[0])
        return versions_of, done

    return run


@pytest.fixture(scope="module")
def ran(run_again):
    """Does the same, once for each choice of options."""
    return functools.cache(run_again)


def test_every_version_is_the_default(ran):
    """Authors of packs test on all of them."""
    versions, _ = ran()

    assert ran("--tensorrt=all")[0] == versions
    assert all(versions[f"op[{op}-reference@]"] == list(VERSIONS) for op in range(12))
    assert len(versions["modern[reference@]"]) == 2


def test_one_is_another_version_for_each_test(ran, run_again):
    """So that together the tests run on all of them, and each time on the same ones."""
    everything, _ = ran()
    by_test, done = ran("--tensorrt=one")

    assert set(everything) == set(by_test)
    assert {len(versions) for test, versions in by_test.items() if "difference" not in test} == {1}
    assert set(VERSIONS) == {by_test[f"op[{op}-reference@]"][0] for op in range(12)}
    assert list(VERSIONS) == by_test["difference[]"]
    assert "deselected" in done.stdout
    assert run_again("--tensorrt=one")[0] == by_test


def test_some_are_the_weakly_typed_version_and_one_of_the_others(ran):
    """TensorRT 8 differs from the others in most converters."""
    everything, _ = ran()
    versions, _ = ran("--tensorrt=some")

    assert set(everything) == set(versions)
    for op in range(12):
        first, *others = versions[f"op[{op}-reference@]"]
        assert (first, len(others)) == (VERSIONS[0], 1)
    assert len(versions["modern[reference@]"]) == 1


def test_rows_that_differ_in_more_than_the_version_are_tests_of_their_own(ran):
    """A table of expectations for each version stays whole."""
    versions, _ = ran("--tensorrt=one")

    assert {"table[reference@-3]", "table[reference@-2]"} <= set(versions)


def test_a_version_is_chosen_by_its_number(ran):
    """Tests without versions run too."""
    versions, _ = ran("--tensorrt=11.4.0")

    assert {"11.4.0", None} == {
        version for test in set(versions) - {"difference[]"} for version in versions[test]
    }
    assert [None] == versions["plain"]


def test_a_misspelt_choice_is_an_error_that_lists_the_choices(ran):
    """It never runs something else."""
    _, done = ran("--tensorrt=newest")

    assert done.returncode
    assert "write all, some, one, or versions such as 11.4.0" in done.stderr


def test_a_test_on_one_version_alone_always_runs_on_it():
    """Nothing is chosen where there is no choice."""
    assert ["8.6.0"] == chosen("some", "test", ["8.6.0"]) == chosen("one", "test", ["8.6.0"])
