"""What authors and users can rely on is documented, and nothing else is."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from torchtrt.packs import ConverterPack, environment, hooks, local_pack, use_packs
from torchtrt.registry import ConverterRegistry
from torchtrt_cli.parser import make_parser

ROOT = Path(__file__).parents[3]
SOURCES = sorted(
    path
    for part in ("packs", "registry")
    for path in (ROOT / "core/src/torchtrt" / part).glob("*.py")
)


def page(name: str) -> str:
    """Returns the text of a page of the documentation."""
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def first_cells(text: str, heading: str) -> set[str]:
    """Returns the names in the first column of the table under a heading."""
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def test_every_hook_is_documented_with_its_parameters() -> None:
    """And no hook that does not exist."""
    documented = {
        f"{name}({', '.join(hook.__code__.co_varnames[: hook.__code__.co_argcount])})"
        for name, hook in vars(hooks).items()
        if name.startswith("torchtrt_")
    }

    assert first_cells(page("packs"), "Hooks") == documented


def test_every_environment_variable_is_documented() -> None:
    """And none that has no effect."""
    variables = {
        value
        for name, value in vars(environment).items()
        if name.isupper() and not name.startswith("_") and str(value).startswith("TORCHTRT_")
    }

    assert first_cells(page("packs"), "Environment variables") == variables


def test_every_problem_code_is_documented() -> None:
    """And none that never occurs."""
    codes = re.compile(
        r'"((?:bad|unknown|import|hook|scan|contract|torch|validator|check)-[a-z]+|shadowed)"'
    )
    used = {code for path in SOURCES for code in codes.findall(path.read_text(encoding="utf-8"))}

    assert first_cells(page("packs"), "Problems") == used


def test_every_registration_of_a_pack_is_documented() -> None:
    """Its public methods are what an author can register."""
    methods = {name for name in vars(ConverterPack) if not name.startswith("_")}
    methods = {name for name in methods if callable(getattr(ConverterPack, name))} - {"seal"}

    documented = {
        cell.removeprefix("@").removeprefix("pack.").split("(")[0]
        for cell in first_cells(page("packs"), "ConverterPack")
    }
    assert documented >= methods


def test_every_question_to_the_registry_is_documented() -> None:
    """Its public methods are the questions."""
    text = page("registry")

    for name in vars(ConverterRegistry):
        if not name.startswith("_") and name != "resolve":
            assert f"registry.{name}" in text or f"`{name}(" in text, name


def test_the_example_of_registering_runs() -> None:
    """As it stands on the page; the registration is gone afterwards."""
    example, *_ = re.findall(r"^```python\n(.*?)^```$", page("registry"), re.MULTILINE | re.DOTALL)

    with use_packs():
        before = len(local_pack.converters)
        exec(compile(example, "registry.md", "exec"), {"__name__": "example"})
        registered = local_pack.converters[before:]

    assert [str(registration.target) for registration in registered] == ["aten.relu.default"]


COMMANDS = (
    "packs",
    "catalogue",
    "doctor",
    "converters",
    "coverage",
    "compile",
    "explain",
    "inspect",
    "cache",
    "catalogue",
    "lock",
    "triton",
    "new-pack",
    "profile",
    "verify",
)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_flag_is_documented(name: str) -> None:
    """Each command has a section that mentions its flags."""
    parser = make_parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    assert set(commands.choices) == set(COMMANDS)
    general = page("cli").split("\n## ")[0]
    assert all(flag in general for flag in ("--version", "--json", "--import"))
    section = page("cli").split(f"## `torchtrt {name}")[1].split("\n## ")[0]

    for action in commands.choices[name]._actions:
        for flag in action.option_strings:
            assert flag in ("-h", "--help") or flag in section or f"`{flag}" in general
