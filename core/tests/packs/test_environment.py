"""What the environment variables and the recovery flag mean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtrt.packs.environment import read_selection
from torchtrt.packs.info import normalize


def test_without_variables_every_pack_is_loaded() -> None:
    """The default is to use what is installed."""
    selection = read_selection({})

    assert selection.why_not("vision") is None
    assert selection.preferred == ()
    assert not selection.strict


def test_an_empty_allow_list_means_none() -> None:
    """Set to nothing is not the same as unset."""
    assert (
        read_selection({"TORCHTRT_PACKS": ""}).why_not("vision") == "not listed in TORCHTRT_PACKS"
    )


@pytest.mark.parametrize(
    "text",
    [
        "my_ops",
        "my-ops",
        "My.Ops",
        "torchtrt-converters-my-ops",
        "torchtrt_converters_my_ops",
        " other , my_ops ,",
    ],
)
def test_a_pack_may_be_called_by_its_name_or_its_distribution_in_any_spelling(text: str) -> None:
    """People copy names from pip, from imports and from listings."""
    assert read_selection({"TORCHTRT_PACKS": text}).why_not("my_ops") is None


def test_disabling_outranks_the_allow_list() -> None:
    """The safer wish wins."""
    selection = read_selection({"TORCHTRT_PACKS": "vision", "TORCHTRT_PACKS_DISABLE": "vision"})

    assert selection.why_not("vision") == "disabled by TORCHTRT_PACKS_DISABLE"


@pytest.mark.parametrize(
    ("variable", "closest"),
    [
        ("TORCHTRT_DISABLED_PACKS", "TORCHTRT_PACKS_DISABLE"),
        ("TORCHTRT_TENSORT", "TORCHTRT_TENSORRT"),
        ("TORCHTRT_CACHESIZE", "TORCHTRT_CACHE_SIZE"),
        ("TORCHTRT_XYZZY_PLUGH_QUUX", "The variables are TORCHTRT_CACHE, "),
        ("TORCHTRT_X", "The variables are TORCHTRT_CACHE, "),
    ],
)
def test_a_variable_that_does_not_exist_is_a_problem(variable: str, closest: str) -> None:
    """A misspelled one would have no effect, and no warning."""
    (problem,) = read_selection({variable: "1", "PATH": "", "MY_TORCHTRT_X": ""}).problems

    assert problem.code == "unknown-variable"
    assert variable in problem.what
    assert closest in str(problem.hint)


def test_a_name_that_a_terminal_would_interpret_is_shown_as_text() -> None:
    """A variable's name can have any bytes."""
    (problem,) = read_selection({"TORCHTRT_\x1b[31m\udcff\n": "1"}).problems

    assert r"'TORCHTRT_\x1b[31m\udcff\n'" in problem.what


def test_every_variable_that_a_module_reads_is_known() -> None:
    """Those of all distributions, by the constants that hold their names."""
    root = Path(__file__).parents[3]
    sources = [*root.glob("core/src/**/*.py"), *root.glob("plugins/**/src/**/*.py")]
    named = {
        name
        for source in sources
        for name in re.findall(
            r'^[A-Z_]+ = "(TORCHTRT_[A-Z_]+[A-Z])"$', source.read_text(), re.MULTILINE
        )
    }

    assert len(named) >= 7
    assert read_selection(dict.fromkeys(named, "0")).problems == ()


def test_preferred_packs_keep_their_order_and_are_listed_once() -> None:
    """The first named is tried first."""
    selection = read_selection({"TORCHTRT_PACKS_PREFER": "b a,b"})

    assert selection.preferred == ("b", "a")


def test_a_pack_may_be_preferred_for_one_op() -> None:
    """Beside packs that are preferred for all; the last word on an op counts."""
    text = "b aten.gelu=My-Ops,aten::relu.default=a a aten::relu.default=c"
    selection = read_selection({"TORCHTRT_PACKS_PREFER": text})

    assert selection.preferred == ("b", "a")
    assert selection.preferred_for == (("aten.gelu", "my_ops"), ("aten::relu.default", "c"))
    (problem,) = selection.unknown_names(["a", "b", "c", "myops"])
    assert "TORCHTRT_PACKS_PREFER names 'my_ops'" in problem.what


@pytest.mark.parametrize("text", ["=a", "aten.gelu=", "="])
def test_half_a_preference_is_a_problem(text: str) -> None:
    """With the form that is meant."""
    (problem,) = read_selection({"TORCHTRT_PACKS_PREFER": text}).problems

    assert ("unknown-value", repr(text) in problem.what) == (problem.code, True)
    assert "aten.gelu=my_ops" in problem.hint


@pytest.mark.parametrize(
    ("text", "strict"),
    [("1", True), ("true", True), ("True", True), ("0", False), ("false", False), ("", False)],
)
def test_strict_is_on_or_off(text: str, strict: bool) -> None:
    """0 means off."""
    selection = read_selection({"TORCHTRT_PACKS_STRICT": text})

    assert selection.strict is strict
    assert selection.problems == ()


def test_a_strict_that_is_neither_on_nor_off_is_a_problem() -> None:
    """A value that was meant to do something does not silently do nothing."""
    selection = read_selection({"TORCHTRT_PACKS_STRICT": "yess"})

    assert not selection.strict
    assert [problem.code for problem in selection.problems] == ["unknown-value"]


@pytest.mark.parametrize(
    "variable", ["TORCHTRT_PACKS", "TORCHTRT_PACKS_DISABLE", "TORCHTRT_PACKS_PREFER"]
)
def test_a_name_that_matches_nothing_is_a_problem_with_the_closest_one(variable: str) -> None:
    """A misspelt name would otherwise cost hours."""
    (problem,) = read_selection({variable: "visoin"}).unknown_names(["aten_core", "vision"])

    assert f"{variable} names 'visoin'" in problem.what
    assert problem.hint == "Did you mean 'vision'?"


def test_a_name_like_no_other_lists_what_is_installed() -> None:
    """Without a close match the person needs the whole list."""
    (problem,) = read_selection({"TORCHTRT_PACKS": "qqqqqq"}).unknown_names(["vision"])

    assert problem.hint == "Installed packs: local, vision."


def test_local_can_be_preferred() -> None:
    """The program's own converters are a pack too."""
    assert list(read_selection({"TORCHTRT_PACKS_PREFER": "local"}).unknown_names([])) == []


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_normalising_twice_is_normalising_once(text: str) -> None:
    """Names that have been through it compare equal."""
    once = normalize(text)

    assert normalize(once) == once


@given(st.dictionaries(st.sampled_from(["", "_DISABLE", "_PREFER", "_STRICT"]), st.text()))
def test_no_value_of_a_variable_raises(values: dict[str, str]) -> None:
    """Whatever is in the environment, torchtrt can be imported."""
    selection = read_selection({f"TORCHTRT_PACKS{name}": value for name, value in values.items()})

    list(selection.unknown_names(["vision"]))
    assert selection.why_not("vision") in {
        None,
        "not listed in TORCHTRT_PACKS",
        "disabled by TORCHTRT_PACKS_DISABLE",
    }
