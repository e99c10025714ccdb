"""``torchtrt coverage``: the coverage that packs declare, in tables and in JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from torchtrt.packs import ConverterPack, LoadedPack, PackInfo, PackSet, use_packs
from torchtrt_cli import main
from torchtrt_cli.coverage import coverages
from torchtrt_compiler.coverage import FILE, Coverage, OpCoverage, share

FILE_OF_VISION = {
    "torch": "2.13.0",
    "versions": ["8.6.0", "11.4.0"],
    "ops": {
        "nn.functional.relu": {
            "float32": ["..", ".."],
            "bool": ["aX", ".X"],
            "reasons": ["why"],
        },
        "linalg.norm": {"float32": ["ab-", "ab-"], "reasons": ["[this]", "that"]},
    },
}
VISION = Coverage(
    "2.13.0",
    ("8.6.0", "11.4.0"),
    {
        "nn.functional.relu": OpCoverage({"float32": ("..", ".."), "bool": ("aX", ".X")}, ("why",)),
        "linalg.norm": OpCoverage({"float32": ("ab-", "ab-")}, ("[this]", "that")),
    },
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package of a pack ``vision`` that declares its coverage; ``quiet`` declares none, ``bare`` has no package."""
    for name in ("vision", "quiet"):
        folder = tmp_path / f"torchtrt_converters_{name}"
        folder.mkdir()
        (folder / "__init__.py").touch()
        monkeypatch.setitem(sys.modules, folder.name, ModuleType(folder.name))  # undone afterwards
        del sys.modules[folder.name]
    (tmp_path / "torchtrt_converters_vision" / FILE).write_text(json.dumps(FILE_OF_VISION))
    monkeypatch.syspath_prepend(tmp_path)
    loaded = tuple(
        LoadedPack(PackInfo(name, f"torchtrt-converters-{name}", "1.0"), ConverterPack(name))
        for name in ("vision", "quiet", "bare")
    )
    with use_packs(PackSet(tuple(entry.info for entry in loaded), loaded)):
        yield tmp_path


@pytest.fixture
def ask(site: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command in this process: its status, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(("coverage", *arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_a_packs_file_is_found_in_its_package(site: Path) -> None:
    """Packs without a file declare nothing, and that is no problem."""
    assert coverages() == {"vision": VISION}


def test_all_ops_are_shown_with_their_shares(ask: Callable[..., Any]) -> None:
    """Each version's share of correct samples, and the reason that holds back most."""
    status, output, _ = ask()
    cells = [line.split("│")[1:-1] for line in output.splitlines() if line.startswith("│")]
    rows = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells}

    assert status == 0
    assert rows["nn.functional.relu"] == ["4", "66.7 %", "100.0 %", "why"]
    assert rows["linalg.norm"] == ["3", "0.0 %", "0.0 %", "[this]"]
    assert rows["8.6.0"] == ["40.0 %", "2", "3", "0", "0", "1", "1"]


@pytest.mark.parametrize("op", ["nn.functional.relu", "torch.nn.functional.relu", "aten.relu"])
def test_an_op_is_found_by_the_names_that_people_use(ask: Callable[..., Any], op: str) -> None:
    """PyTorch's path, with or without its beginning."""
    status, output, _ = ask(op)

    assert status == 0
    assert "Coverage of nn.functional.relu by vision" in output
    assert "1 × why" in output
    assert "linalg" not in output


def test_an_op_that_nobody_tells_of_is_no_answer(ask: Callable[..., Any]) -> None:
    """The exit status says so, and the error output."""
    assert ask("nosuch") == (
        1,
        "",
        "torchtrt: No pack in use declares its coverage of nosuch. "
        "PyTorch's tests have names such as softmax and nn.functional.relu.\n",
    )


def test_json_has_counts(ask: Callable[..., Any]) -> None:
    """For programs: every outcome by its name."""
    status, output, _ = ask("linalg.norm", "--json")
    op = json.loads(output)["vision"]["ops"]["linalg.norm"]

    assert status == 0
    assert op["reasons"] == {"[this]": 2, "that": 2}
    assert op["samples"]["float32"]["8.6.0"] == {
        "correct": 0,
        "rejected": 2,
        "wrong": 0,
        "crashed": 0,
        "not exportable": 0,
        "nothing to do": 1,
    }


@pytest.mark.parametrize("text", ["{", "[]", '{"ops": {"a": 1}}', '{"ops": {}}'])
def test_a_broken_file_is_an_error_that_names_the_pack(
    site: Path, ask: Callable[..., Any], text: str
) -> None:
    """With the distribution of the pack."""
    (site / "torchtrt_converters_vision" / FILE).write_text(text)
    status, output, errors = ask()

    assert (status, output) == (2, "")
    assert f"{FILE} of vision (torchtrt-converters-vision 1.0) cannot be read" in errors


def test_a_broken_file_does_not_hide_the_other_packs(site: Path, ask: Callable[..., Any]) -> None:
    """The broken one is named all the same."""
    (site / "torchtrt_converters_quiet" / FILE).write_text("{")

    status, output, errors = ask("linalg.norm", "--json")

    assert (0, {"vision"}) == (status, set(json.loads(output)))
    assert f"{FILE} of quiet (torchtrt-converters-quiet 1.0) cannot be read" in errors


def test_what_computes_nothing_does_not_count() -> None:
    """Neither does what torch.export refuses; without anything else there is no share."""
    assert [share("-X"), share("-.a"), share("W."), share("C")] == [
        "-",
        "50.0 %",
        "50.0 %",
        "0.0 %",
    ]
