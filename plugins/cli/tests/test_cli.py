"""The ``torchtrt`` command, in this process for its answers and in fresh ones for what it must not import."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import torchtrt
from plugins.cli.tests.example import convert
from torchtrt.packs import current_packs, loaded_packs, use_packs
from torchtrt_cli import main
from torchtrt_runtime.reports.text_tables import Listing


def rows(output: str) -> list[list[str]]:
    """Returns the cells of a printed table, row by row."""
    lines = [line for line in output.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_packs_shows_every_pack_in_pack_order_with_its_status(ask: Callable[..., Any]) -> None:
    """In use, disabled or not loaded, and why."""
    status, output, _ = ask("packs")

    assert status == 0
    assert rows(output) == [
        [
            "aten_core",
            "0.1.0",
            *("1", "-", "1", "-"),
            "in use",
            "ATen [all of it]",
        ],
        [
            "asleep",
            "torchtrt-converters-asleep 2.0",
            *("-", "-", "-", "-"),
            "disabled by TORCHTRT_PACKS_DISABLE",
            "",
        ],
        [
            "broken",
            "torchtrt-converters-broken 2.0",
            *("-", "-", "-", "-"),
            "not loaded: ImportError: libfoo.so.2",
            "",
        ],
        ["vision", "1.0", "2", "1", "1", "1", "in use", ""],
        ["zebra", "1.0", "2", "1", "1", "-", "in use", ""],
    ]


def test_packs_shows_problems_conflicts_and_missing_ops(ask: Callable[..., Any]) -> None:
    """Everything that a person might wonder about later."""
    _, output, _ = ask("packs")

    assert (
        "problem: Pack 'broken' (torchtrt-converters-broken 2.0, /site): ImportError: libfoo.so.2."
        in output
    )
    assert (
        "conflict: aten.gelu.default is claimed with a HIGH converter by zebra and vision; zebra comes first."
        in output
    )
    assert "not in this PyTorch: nosuch.op.default of vision" in output


def test_packs_counts_the_ops_of_a_library_that_is_not_imported(ask: Callable[..., Any]) -> None:
    """A line for each of many would hide the problems."""
    for letter in "abc":
        loaded_packs()[1].pack.add(f"nosuch.{letter}.default", convert)
    _, output, _ = ask("packs")

    assert re.search(r"not in this PyTorch: .*\b4 ops of vision", output), output


def test_packs_says_what_a_misspelt_op_may_mean(ask: Callable[..., Any]) -> None:
    """Of a library that is here; what another may bring is only listed."""
    for name in ("aten.relux.default", "aten.add.Tensr"):
        loaded_packs()[1].pack.add(name, convert)
    _, output, _ = ask("packs")

    for close in ("no op 'aten.relux.default' in", "no op 'aten.add.Tensr' in"):
        assert re.search(f"{close} PyTorch .* Did you mean 'aten.(relu|add)", output), output
    assert (
        "not in this PyTorch: nosuch.op.default of vision; nosuch.op.default of zebra\n" in output
    )


def test_packs_as_json_is_complete_and_in_pack_order(ask: Callable[..., Any]) -> None:
    """The stable form, which diffs line by line."""
    _, output, _ = ask("packs", "--json")

    answer = json.loads(output)
    assert answer["contract"] == "1.0"
    assert [entry["name"] for entry in answer["packs"]] == [
        "aten_core",
        "asleep",
        "broken",
        "vision",
        "zebra",
    ]
    assert answer["packs"][0] == {
        "name": "aten_core",
        "distribution": "torchtrt-converters-aten-core",
        "version": "0.1.0",
        "location": "/site",
        "tier": 0,
        "status": "in use",
        "reason": "",
        "summary": "ATen [all of it]",
        "ops": 1,
        "converters": 1,
        "high": 0,
        "decompositions": 1,
        "passes": 0,
    }
    assert (answer["packs"][1]["status"], answer["packs"][1]["ops"]) == ("disabled", None)
    assert answer["conflicts"] == [
        {"op": f"aten.{op}.default", "kind": kind, "packs": ["zebra", "vision"]}
        for op, kind in (("gelu", "converter"), ("silu", "decomposition"))
    ]
    assert list(answer["missing_ops"]) == ["nosuch.op.default"]
    assert [problem["code"] for problem in answer["problems"]] == ["import-failed"]


def test_converters_lists_one_op_in_a_line(ask: Callable[..., Any]) -> None:
    """With its packs in their order: a search in a pipe finds an op, a pack, a conflict."""
    status, output, _ = ask("converters")

    assert status == 0
    assert output.splitlines()[:3] == [
        "aten.gelu.default  zebra HIGH, vision HIGH, aten_core  (conflict)",
        "aten.silu.default  zebra HIGH decomposition, vision HIGH decomposition, aten_core decomposition  (conflict)",
        "pass fold  vision",
    ]
    assert [line.split()[0] for line in output.splitlines()[3:]] == ["conflict:", "conflict:"]


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


def shown_by_terminal(*arguments: str) -> str:
    """Returns what the command prints to a terminal."""
    with contextlib.redirect_stdout(Terminal()) as terminal:
        main(arguments)
    return terminal.getvalue()


@pytest.mark.parametrize("width", ["20", "80"])
@pytest.mark.usefixtures("example")
def test_no_terminal_breaks_the_line_of_an_op(monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    """Terminals wrap long lines themselves, and search in the whole of them."""
    monkeypatch.setenv("COLUMNS", width)

    assert "zebra HIGH, vision HIGH, aten_core  (conflict)\n" in shown_by_terminal("converters")


def test_converters_takes_a_pattern(ask: Callable[..., Any]) -> None:
    """The list of what matches; in the dispatcher's spelling, too."""
    for pattern in ("aten.s*", "aten::si?u*"):
        status, output, _ = ask("converters", pattern)
        assert status == 0
        assert ["aten.silu.default", "conflict:"] == [
            line.split()[0] for line in output.splitlines()
        ]
    _, output, _ = ask("converters", "*", "--json")
    assert ["aten.gelu.default"] == [*json.loads(output)["converters"]]

    status, output, errors = ask("converters", "nosuch*")

    assert (status, output) == (1, "")
    assert errors == "torchtrt: No op that a pack provides matches nosuch*.\n"


def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines of some ops, of the packs that are installed here."""
    page = (Path(__file__).parents[3] / "docs/cli.md").read_text(encoding="utf-8")

    main(["converters", "aten.index*"])

    assert f"```\n{capsys.readouterr().out}```\n" in page


def test_a_preference_for_an_op_is_marked_and_comes_first(ask: Callable[..., Any]) -> None:
    """In the line, in the details and as JSON."""
    packs = dataclasses.replace(current_packs(), preferred_for=(("aten.gelu", "aten_core"),))

    with use_packs(packs):
        lines = ask("converters")[1].splitlines()
        details = rows(ask("converters", "aten.gelu")[1])
        candidates = json.loads(ask("converters", "--json")[1])["converters"]["aten.gelu.default"]

    assert lines[0].startswith("aten.gelu.default  aten_core preferred, zebra HIGH, vision HIGH")
    assert ["STANDARD, preferred", "HIGH", "HIGH"] == [row[2] for row in details]
    assert [("aten_core", True), ("zebra", False), ("vision", False)] == [
        (candidate["pack"], candidate["preferred"]) for candidate in candidates
    ]


def test_converters_lists_the_details_of_all_ops(ask: Callable[..., Any]) -> None:
    """Without an op, the candidates of every op."""
    status, output, _ = ask("converters", "--verbose")

    assert status == 0
    assert [row[:4] for row in rows(output)] == [
        ["aten.gelu.default", "1", "HIGH", "zebra"],
        ["", "2", "HIGH", "vision"],
        ["", "3", "STANDARD", "aten_core"],
        ["aten.silu.default", "1", "HIGH", "zebra"],
        ["", "2", "HIGH", "vision"],
        ["", "3", "STANDARD", "aten_core"],
        ["1", "fold", "vision", "torchtrt-converters-vision 1.0"],
    ]
    assert "shadowed by 1." in output
    for op, kind in (("gelu", "converter"), ("silu", "decomposition")):
        assert (
            f"conflict: aten.{op}.default is claimed with a HIGH {kind} by zebra and vision"
            in output
        )


def test_converters_as_json_has_decompositions_passes_and_conflicts(
    ask: Callable[..., Any],
) -> None:
    """Each with its pack and version, in order, and what is never used."""
    _, output, _ = ask("converters", "--json")

    answer = json.loads(output)
    whose = {"distribution": "torchtrt-converters-vision", "version": "1.0"}
    where = f"{convert.__module__}:decompose"
    assert answer["decompositions"]["aten.silu.default"][1] == {
        "pack": "vision", **whose, "priority": "HIGH", "function": where, "shadowed_by": 1
    }  # fmt: skip
    assert answer["passes"] == [
        {"pack": "vision", **whose, "pass": "fold", "function": f"{convert.__module__}:fold"}
    ]
    assert [(conflict["op"], conflict["kind"]) for conflict in answer["conflicts"]] == [
        ("aten.gelu.default", "converter"),
        ("aten.silu.default", "decomposition"),
    ]
    assert answer["converters"]["aten.gelu.default"][2]["tensorrt"] == ">=8.6,>=10"


def test_an_op_that_is_only_decomposed_has_an_answer(ask: Callable[..., Any]) -> None:
    """Who decomposes it."""
    status, output, _ = ask("converters", "aten.silu")

    assert (status, [row[3] for row in rows(output)]) == (0, ["zebra", "vision", "aten_core"])


@pytest.mark.parametrize("spelling", ["aten.gelu", "aten::gelu", "aten.gelu.default"])
def test_converters_of_an_op_as_json(ask: Callable[..., Any], spelling: str) -> None:
    """Any spelling of the op; every candidate with its provenance."""
    status, output, _ = ask("converters", spelling, "--json")

    assert status == 0
    (candidates,) = json.loads(output)["converters"].values()
    assert [candidate["pack"] for candidate in candidates] == ["zebra", "vision", "aten_core"]
    assert candidates[0] == {
        "pack": "zebra",
        "distribution": "torchtrt-converters-zebra",
        "version": "1.0",
        "priority": "HIGH",
        "preferred": False,
        "converter": f"{convert.__module__}:convert",
        "tensorrt": "",
        "requires": [],
        "dtypes": [],
        "supports_dynamic_shapes": False,
        "requires_output_allocator": False,
        "checks": ["accepts"],
        "shadowed_by": None,
    }


def test_an_op_without_converters_is_status_1(ask: Callable[..., Any]) -> None:
    """A script can ask."""
    status, output, errors = ask("converters", "aten.relu")

    assert (status, output) == (1, "")
    assert errors == "torchtrt: No pack has a converter for aten.relu.\n"


@pytest.mark.parametrize("command", ["converters", "explain"])
def test_an_unknown_op_is_status_2_with_the_closest_name(
    ask: Callable[..., Any], command: str
) -> None:
    """A misspelling is not the same as an op without converters."""
    status, _, errors = ask(command, "aten.gelo")

    assert status == 2
    assert "Did you mean 'aten.gelu'?" in errors


def test_a_command_that_does_not_exist_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The message says which there are."""
    with pytest.raises(SystemExit) as caught:
        main(["plugins"])

    assert caught.value.code == 2
    assert "packs" in capsys.readouterr().err


def test_the_packs_are_listed_the_same_every_time(
    site: Any, source_of_pack: Callable[..., str]
) -> None:
    """The JSON can be kept and compared."""
    for name in ("zebra", "abacus"):
        site.unpack(site.wheel(name, source_of_pack(name, "pack.add('aten.relu', convert)")))

    first, second = (
        site.run(
            "-m", "torchtrt", "packs", "--json", TORCHTRT_PACKS="abacus zebra", PYTHONHASHSEED=seed
        )
        for seed in ("1", "2")
    )

    assert first.stdout == second.stdout
    assert [e["name"] for e in json.loads(first.stdout)["packs"] if e["status"] == "in use"] == [
        "abacus",
        "zebra",
    ]


LIBRARY = """
import torch

print("hello")


@torch.library.custom_op("probe_library::f", mutates_args=())
def f(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
"""


@pytest.mark.parametrize(
    ("command", "op"), [("explain", "probe_library::f"), ("converters", "probe_library::f")]
)
def test_ops_of_a_library_are_known_once_it_is_imported(site: Any, command: str, op: str) -> None:
    """And what it prints is not part of the answer."""
    (site.path / "probe_library.py").write_text(LIBRARY)

    done = site.run("-m", "torchtrt", command, op, "--import", "probe_library", "--json")
    without = site.run("-m", "torchtrt", command, op)

    assert (1, 2) == (done.returncode, without.returncode)
    assert isinstance(json.loads(done.stdout), dict)
    assert "hello" in done.stderr


def test_a_library_that_cannot_be_imported_is_status_2(ask: Callable[..., Any]) -> None:
    """The message says why."""
    status, output, errors = ask("packs", "--import", "no_such_library")

    assert (2, "") == (status, output)
    assert "--import no_such_library: ModuleNotFoundError" in errors


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As the distribution has it."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])

    assert (0, f"torchtrt {torchtrt.__version__}\n") == (caught.value.code, capsys.readouterr().out)


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("packs", ["aten_core", "decompositions", "TORCHTRT_PACKS_DISABLE"]),
        ("converters aten.gelu", ["aten.gelu.default", "torchtrt-converters-vision"]),
        (
            "converters --verbose",
            ["aten.silu.default", "Passes over the graph", "torchtrt-converters-zebra"],
        ),
        ("packs --no-load", ["aten_core", "aten_experimental"]),
        ("coverage nn.functional.pad", ["float32", "10.16.1"]),
        ("doctor", ["zebra", "TORCHTRT_PACKS_PREFER"]),
    ],
)
@pytest.mark.parametrize("width", ["60", "80", "200"])
@pytest.mark.usefixtures("example")
def test_no_name_is_broken_by_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, question: str, names: list[str], width: str
) -> None:
    """Where the table would be too wide, each row is lines of whole cells."""
    monkeypatch.setenv("COLUMNS", width)

    output = re.sub(r"\x1b\[[\d;]*m", "", shown_by_terminal(*question.split()))

    assert names == [name for name in names if name in output]
    assert int(width) >= max(map(len, output.splitlines()))


def test_a_row_that_becomes_lines_fills_them() -> None:
    """Short cells share a line, and a long one goes on under itself, so that a wide table stays a page or two."""
    headings = ("op", "turn", "reason", "share")
    row = ("aten.gelu.default", 1, "the shift must be fixed, and this one is not", "80.0 %")
    shown = io.StringIO()

    Console(file=shown, width=40).print(Listing("Title", headings, [row]))

    assert [
        "Title",
        "",
        "  op: aten.gelu.default   turn: 1",
        "  reason: the shift must be fixed, and",
        "      this one is not",
        "  share: 80.0 %",
    ] == shown.getvalue().rstrip().splitlines()


def test_a_report_breaks_no_name_either() -> None:
    """Printed in a terminal of 80 columns, as from a program."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
    report = torchtrt.compile(model, [torch.rand(2, 4)], min_block_size=1).report
    shown = io.StringIO()

    Console(file=shown, width=60).print(report)

    assert "activation:gelu" in shown.getvalue()
    assert max(map(len, shown.getvalue().splitlines())) <= 60


def test_a_warning_is_told_without_the_line_of_code_that_it_comes_from(site: Any) -> None:
    """Who asks what is installed has not written that line."""
    site.unpack(site.wheel("broken", "raise ImportError('libfoo.so.2')"))

    done = site.run("-m", "torchtrt", "converters", "aten.gelu", TORCHTRT_PACKS="broken")

    (line,) = (line for line in done.stderr.splitlines() if "libfoo" in line)
    assert line.startswith("Pack 'broken'"), done.stderr
    assert "warnings.warn(" not in done.stderr
