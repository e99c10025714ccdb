"""What ``tools.prose`` finds in messages, comments and names; textlint has the pages and docstrings."""

import pytest

from tools import prose


@pytest.fixture
def module(tmp_path):
    """Returns a function that writes a module and returns what is found in it."""

    def complaints(source, check=prose.of_messages):
        (tmp_path / "module.py").write_text(source, encoding="utf-8")
        lines = check([str(tmp_path / "module.py"), "page.md"])
        return [line.removeprefix(f"{tmp_path}/") for line in lines]

    return complaints


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""Text."""\nraise ValueError(f"{x} is a size that varies.")\n', 2),
        ('raise ValueError(\n    "One "\n    "size that varies."\n)\n', 2),
        ("x = 1\n# The validator declines it.\n", 2),
        ('"""Text."""\nprint("TensorRT rejects the layer.")  # why\n', 2),
        ('print("Model.forward: the model\'s results differ.")\n', 1),
        ("x = 1  # nothing tells the size\n", 1),
        ('raise ValueError("The converter knows no such op.")\n', 1),
        ("# Nobody reads it.\n", 1),
    ],
)
def test_a_word_that_has_a_better_one_is_found_in_messages_and_comments(module, source, line):
    """With the line at which the text begins."""
    (finding,) = module(source)

    assert finding.startswith(f"module.py:{line}: ")
    assert "write" in finding or "name" in finding


def test_docstrings_and_names_are_left_to_textlint_and_ruff(module):
    """A check rejects a node, and ops have results."""
    assert [] == module('"""A size that varies."""\ndef declines():\n    """Declines."""\n')
    assert [] == module('print("The validator rejects the node.", "the result of an op")\n')


@pytest.mark.parametrize(
    "source",
    [
        "known = 1\n",
        "for each in ():\n    pass\n",
        "x = [place for place in ()]\n",
        "def f(given): ...\n",
        "def places(): ...\n",
        "self.found = 1\n",
        "_known = 1\n",
    ],
)
def test_a_name_that_names_nothing_is_found(module, source):
    """Wherever it is given to something."""
    (finding,) = module(source, prose.of_names)

    assert finding.startswith("module.py:1: ")
    assert "names nothing" in finding


def test_other_names_and_uses_of_names_are_not_found(module):
    """A library's attribute is not ours."""
    assert [] == module("known_sizes = library.known\nf(each=1)\n", prose.of_names)
