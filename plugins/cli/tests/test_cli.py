"""The ``torchtrt`` command, in this process for its answers and in fresh ones for what it must not import."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from rich.console import Console
from torch.utils._pytree import _deregister_pytree_node, register_pytree_node

import torchtrt
from torchtrt.errors import NoEngineWarning
from torchtrt.packs import ConverterPack, ConverterPriority, LoadedPack, PackInfo, PackSet, Problem
from torchtrt.packs.coverage import share
from torchtrt.packs.state import _state
from torchtrt_cli import main
from torchtrt_cli.coverage import coverages
from torchtrt_runtime.tables import Listing

SILU = share(coverages()["aten_core"].ops["nn.functional.silu"].letters())
"""What the installed pack tells of its coverage."""

LETHAL = "import os\nos._exit(13)"


def convert(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> None:
    """Stands for a converter."""


def fold(graph_module: Any, settings: Any) -> None:
    """Stands for a pass over the graph."""


def accepts(node: Any) -> bool:
    """Stands for a validator."""
    return True


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packs in use, one disabled, one broken, and a conflict."""
    monkeypatch.setenv("COLUMNS", "200")
    high = {"priority": ConverterPriority.HIGH}
    core = ConverterPack("aten_core", summary="ATen [all of it]", tensorrt=">=8.6")
    core.add("aten.gelu", convert, supports_dynamic_shapes=True, tensorrt=">=10")
    core.decomposition("aten.silu")(convert)
    loaded = [
        LoadedPack(
            PackInfo("aten_core", "torchtrt-converters-aten-core", "0.1.0", "/site", 0), core
        )
    ]
    for name in ("vision", "zebra"):
        pack = ConverterPack(name)
        pack.add("aten.gelu", convert, capability_validator=accepts, **high)
        pack.add("nosuch::op", convert)
        pack.decomposition("aten.silu.default", priority=ConverterPriority.HIGH)(convert)
        if name == "vision":
            pack.lowering_pass("fold")(fold)
        loaded.append(
            LoadedPack(PackInfo(name, f"torchtrt-converters-{name}", "1.0", "/site"), pack)
        )
    others = [
        PackInfo(name, f"torchtrt-converters-{name}", "2.0", "/site")
        for name in ("asleep", "broken")
    ]
    found = tuple(sorted((*(entry.info for entry in loaded), *others), key=lambda info: info.order))
    disabled = MappingProxyType({"asleep": "disabled by TORCHTRT_PACKS_DISABLE"})
    problem = Problem("ImportError: libfoo.so.2", "Repair it.", "import-failed").about(others[1])
    monkeypatch.setattr(
        _state, "packs", PackSet(found, tuple(loaded), disabled, others=_state.packs.others)
    )
    monkeypatch.setattr(_state, "problems", [problem])


@pytest.fixture
def ask(example: None, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command in this process: its status, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


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
            "torchtrt-converters-aten-core 0.1.0",
            "1",
            "0",
            "in use",
            "ATen [all of it]",
        ],
        [
            "asleep",
            "torchtrt-converters-asleep 2.0",
            "-",
            "-",
            "disabled by TORCHTRT_PACKS_DISABLE",
            "",
        ],
        [
            "broken",
            "torchtrt-converters-broken 2.0",
            "-",
            "-",
            "not loaded: ImportError: libfoo.so.2",
            "",
        ],
        ["vision", "torchtrt-converters-vision 1.0", "2", "1", "in use", ""],
        ["zebra", "torchtrt-converters-zebra 1.0", "2", "1", "in use", ""],
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
    assert "not in this PyTorch: nosuch.op.default" in output


def test_packs_says_what_a_misspelt_op_may_mean(ask: Callable[..., Any]) -> None:
    """Of a library that is here; what another may bring is only listed."""
    for name in ("aten.relux.default", "aten.add.Tensr"):
        _state.packs.loaded[1].pack.add(name, convert)
    _, output, _ = ask("packs")

    for close in ("no op 'aten.relux.default' in", "no op 'aten.add.Tensr' in"):
        assert re.search(f"{close} PyTorch .* Did you mean 'aten.(relu|add)", output), output
    assert "not in this PyTorch: nosuch.op.default\n" in output


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
        "high": 0,
        "decompositions": 1,
    }
    assert (answer["packs"][1]["status"], answer["packs"][1]["ops"]) == ("disabled", None)
    assert answer["conflicts"] == [
        {"op": f"aten.{op}.default", "kind": kind, "packs": ["zebra", "vision"]}
        for op, kind in (("gelu", "converter"), ("silu", "decomposition"))
    ]
    assert answer["missing_ops"] == ["nosuch.op.default"]
    assert [problem["code"] for problem in answer["problems"]] == ["import-failed"]


def test_converters_lists_all_ops(ask: Callable[..., Any]) -> None:
    """Without an op, the candidates of every op."""
    status, output, _ = ask("converters")

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
    where = f"{__name__}:convert"
    assert answer["decompositions"]["aten.silu.default"][1] == {
        "pack": "vision", **whose, "priority": "HIGH", "function": where, "shadowed_by": 1
    }  # fmt: skip
    assert answer["passes"] == [
        {"pack": "vision", **whose, "pass": "fold", "function": f"{__name__}:fold"}
    ]
    assert [(each["op"], each["kind"]) for each in answer["conflicts"]] == [
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
        "converter": f"{__name__}:convert",
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


def test_explaining_an_op_names_what_else_could_convert_it(ask: Callable[..., Any]) -> None:
    """Its decompositions, and the packs that are not loaded."""
    status, output, _ = ask("explain", "aten.silu")

    assert status == 1
    assert output.splitlines() == [
        "No pack has a converter for aten.silu.",
        "not loaded: Pack 'broken' (torchtrt-converters-broken 2.0, /site): ImportError: libfoo.so.2. Repair it.",
        f"aten.silu.default decomposes by {__name__}:convert of zebra (torchtrt-converters-zebra 1.0)",
        f"aten_core converts {SILU} of PyTorch's samples of nn.functional.silu: see torchtrt coverage "
        "nn.functional.silu",
    ]


def test_samples_that_export_nothing_have_no_share(ask: Callable[..., Any]) -> None:
    """``torch.equal`` returns a Python bool."""
    _, output, _ = ask("explain", "aten.equal")
    assert "aten_core has nothing to convert in any of PyTorch's samples of equal" in output


def test_explaining_an_op_as_json(ask: Callable[..., Any]) -> None:
    """Candidates, decompositions and problems."""
    status, output, _ = ask("explain", "aten.gelu", "--json")

    answer = json.loads(output)
    assert status == 0
    assert [entry["pack"] for entry in answer["converters"]["aten.gelu.default"]] == [
        "zebra",
        "vision",
        "aten_core",
    ]
    assert answer["decompositions"] == {"aten.gelu.default": "by PyTorch's own decomposition"}
    assert set(answer["coverage"]["aten_core"]) == {"nn.functional.gelu"}
    assert [problem["pack"] for problem in answer["problems"]] == ["broken"]


@pytest.mark.parametrize("content", [None, b"not a program"])
def test_a_file_that_is_no_program_is_status_2(
    ask: Callable[..., Any], tmp_path: Path, content: bytes | None
) -> None:
    """The message says how to make one, or that there is none."""
    path = tmp_path / "model.pt2"
    if content is not None:
        path.write_bytes(content)

    status, _, errors = ask("explain", str(path))

    assert status == 2
    assert str(path) in errors
    assert ("torch.export.save" in errors) is (content is not None)


def test_a_file_that_is_named_otherwise_is_not_taken_for_an_op(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    """The message says what a program's file is called."""
    path = tmp_path / "state.pt"
    path.write_bytes(b"")

    status, _, errors = ask("explain", str(path))

    assert status == 2
    assert "is no op" in errors
    assert "end in .pt2" in errors


def test_a_dry_run_counts_no_layers_and_nothing_left_in_pytorch_is_told() -> None:
    """Nothing was built that could have any."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
    shown = io.StringIO()

    Console(file=shown).print(
        torchtrt.compile(model, [torch.rand(2, 4)], min_block_size=1, dryrun=True).report
    )

    assert "Engines, not built" in shown.getvalue()
    assert "layers" not in shown.getvalue()
    assert "In PyTorch: nothing" in shown.getvalue()


def test_explaining_a_model_reports_every_node(ask: Callable[..., Any], tmp_path: Path) -> None:
    """What stays in PyTorch has its reason."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.erfinv(x)

    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Model(), (torch.zeros(2),)), path)

    status, output, _ = ask("explain", str(path), "--json")

    assert status == 0
    (entry,) = json.loads(output)["in_torch"]
    assert entry["op"] == "aten.erfinv.default"
    assert "no pack has a converter" in entry["reason"]


def test_a_command_that_does_not_exist_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The message says which there are."""
    with pytest.raises(SystemExit) as caught:
        main(["plugins"])

    assert caught.value.code == 2
    assert "packs" in capsys.readouterr().err


def test_the_recovery_command_imports_no_pack(
    site: Any, source_of_pack: Callable[..., str]
) -> None:
    """Not even one that would end the process; it is listed all the same."""
    site.unpack(site.wheel("lethal", LETHAL))

    deadly = site.run("-m", "torchtrt", "packs", TORCHTRT_PACKS="lethal")
    recovered = site.run("-m", "torchtrt", "packs", "--no-load", "--json", TORCHTRT_PACKS="lethal")

    assert deadly.returncode == 13
    assert recovered.returncode == 0, recovered.stderr
    (entry,) = [
        entry for entry in json.loads(recovered.stdout)["packs"] if entry["name"] == "lethal"
    ]
    assert (entry["status"], entry["reason"]) == ("disabled", "not loaded, because of --no-load")


def test_the_console_script_recovers_too(site: Any, tmp_path: Path) -> None:
    """As pip writes it."""
    site.unpack(site.wheel("lethal", LETHAL))
    script = tmp_path / "torchtrt"
    script.write_text("import sys\nfrom torchtrt_cli import main\nsys.exit(main())\n")

    done = site.run(str(script), "packs", "--no-load", TORCHTRT_PACKS="lethal")

    assert done.returncode == 0, done.stderr
    assert "torchtrt-converters-lethal 1.0" in done.stdout


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


def test_what_a_pack_prints_is_not_part_of_the_answer(
    site: Any, source_of_pack: Callable[..., str]
) -> None:
    """It goes to standard error, and JSON stays JSON."""
    site.unpack(site.wheel("loud", 'print("loud")\n' + source_of_pack("loud", "print('louder')")))

    done = site.run("-m", "torchtrt", "packs", "--json", TORCHTRT_PACKS="loud")

    assert "in use" in [entry["status"] for entry in json.loads(done.stdout)["packs"]]
    assert ["loud", "louder"] == done.stderr.splitlines()


def test_a_broken_pack_does_not_stop_the_import_where_warnings_are_errors(site: Any) -> None:
    """The import is whole, and the problem is told all the same."""
    site.unpack(site.wheel("broken", "raise ImportError('libfoo.so.2')"))
    program = "import torchtrt, torchtrt; print(len(torchtrt.packs.problems()), torchtrt.compile)"

    done = site.run("-W", "error", "-c", program, TORCHTRT_PACKS="broken")

    assert done.stdout.startswith("1 <function compile"), done.stderr
    assert "PackWarning: Pack 'broken'" in done.stderr


CHECKS = {
    "well": "return ()",
    "silent": "return None",
    "ill": 'yield Problem("libfoo is missing", "Install libfoo.")',
    "crashed": "raise OSError('no such device')",
}


@pytest.mark.parametrize(
    ("pack", "expected"),
    [
        ("well", (0, [])),
        ("silent", (0, [])),
        ("ill", (1, [("check-failed", "libfoo is missing", "Install libfoo.")])),
        (
            "crashed",
            (
                1,
                [
                    (
                        "hook-failed",
                        "torchtrt_check raised OSError: no such device",
                        "Report this to the pack's authors.",
                    )
                ],
            ),
        ),
    ],
)
def test_the_doctor_asks_the_packs(
    site: Any, source_of_pack: Callable[..., str], pack: str, expected: tuple[int, list[Any]]
) -> None:
    """Only the doctor: the check may be slow."""
    check = f"\nfrom torchtrt.packs import Problem\n\n@hookimpl\ndef torchtrt_check(pack):\n    {CHECKS[pack]}\n"
    site.unpack(site.wheel(pack, source_of_pack(pack) + check))
    settings = {"TORCHTRT_PACKS": pack, "TORCHTRT_TENSORRT": "reference@8.6.0"}

    done = site.run("-m", "torchtrt", "doctor", "--json", **settings)
    answer = json.loads(done.stdout)
    found = [(each["code"], each["what"], each["hint"]) for each in answer["problems"]]
    packs = site.run("-m", "torchtrt", "packs", "--json", **settings)

    assert expected == (done.returncode, found)
    assert [pack] * len(found) == [each["pack"] for each in answer["problems"]]
    assert "reference@8.6.0" == answer["versions"]["TensorRT"]
    assert torch.__version__ == answer["versions"]["PyTorch"]
    assert (0, []) == (packs.returncode, json.loads(packs.stdout)["problems"])


def test_the_doctor_says_what_is_wrong(ask: Callable[..., Any]) -> None:
    """Problems and conflicts, and the versions above them."""
    status, output, _ = ask("doctor")

    assert 1 == status
    assert output.startswith("Python: 3.")
    assert "problem: Pack 'broken'" in output
    assert "conflict: aten.gelu.default" in output


def test_the_doctor_finds_a_tensorrt_that_cannot_be_used(site: Any) -> None:
    """Its message says what to install."""
    done = site.run("-m", "torchtrt", "doctor", TORCHTRT_TENSORRT="nosuch")

    assert 1 == done.returncode
    assert "no TensorRT can be used: No TensorRT named 'nosuch' is installed." in done.stdout


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("packs", ["aten_core", "torchtrt-converters-aten-core", "TORCHTRT_PACKS_DISABLE"]),
        ("converters aten.gelu", ["aten.gelu.default", "torchtrt-converters-vision"]),
        ("converters", ["aten.silu.default", "Passes over the graph", "torchtrt-converters-zebra"]),
        ("packs --no-load", ["aten_experimental", "torchtrt-converters-aten-experimental"]),
        ("coverage nn.functional.pad", ["float32", "10.16.1"]),
        ("doctor", ["torchtrt-converters-zebra", "TORCHTRT_PACKS_PREFER"]),
    ],
)
@pytest.mark.parametrize("width", ["60", "80", "200"])
def test_no_name_is_broken_by_a_narrow_terminal(
    ask: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    question: str,
    names: list[str],
    width: str,
) -> None:
    """Where the table would be too wide, each row is lines of whole cells."""
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    _, colored, _ = ask(*question.split())
    output = re.sub(r"\x1b\[[\d;]*m", "", colored)

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

    assert "converters.activation:gelu" in shown.getvalue()
    assert max(map(len, shown.getvalue().splitlines())) <= 60


class Pair(dict):  # type: ignore[type-arg]
    """A container that only who knows its class can read."""


def test_a_program_that_cannot_be_read_is_one_sentence_with_its_cause(
    ask: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch logs the cause, and raises something that names nothing."""
    caplog: list[str] = []
    monkeypatch.setattr("logging.Logger.callHandlers", lambda _, record: caplog.append(record.name))

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Pair:
            return Pair(sine=x.sin())

    with registered():
        torch.export.save(torch.export.export(Model(), (torch.rand(3),)), tmp_path / "model.pt2")

    status, _, said = ask("explain", str(tmp_path / "model.pt2"))

    assert status == 2
    assert "tests.Pair" in said
    assert "--import" in said
    assert not [name for name in caplog if name.startswith("torch.export")]


@contextmanager
def registered() -> Iterator[None]:
    """Lets PyTorch know the class ``Pair`` in a ``with`` block."""
    register_pytree_node(
        Pair,
        lambda pair: (list(pair.values()), list(pair)),
        lambda values, names: Pair(zip(names, values, strict=True)),
        serialized_type_name="tests.Pair",
    )
    try:
        yield
    finally:
        _deregister_pytree_node(Pair)


def test_a_compiled_model_is_sent_to_inspect(ask: Callable[..., Any], tmp_path: Path) -> None:
    """Its engines are no ops that a pack could convert."""
    file = tmp_path / "compiled.pt2"
    model = torch.nn.Linear(4, 4).eval()
    with pytest.warns(NoEngineWarning):  # the packs of these tests convert no such op
        compiled = torchtrt.compile(model, [torch.rand(2, 4)], min_block_size=1)
    torchtrt.save(compiled, file)

    status, _, said = ask("explain", str(file))

    assert status == 2
    assert f"`torchtrt inspect {file}`" in said


def test_a_warning_is_told_without_the_line_of_code_that_it_comes_from(site: Any) -> None:
    """Who asks what is installed has not written that line."""
    site.unpack(site.wheel("broken", "raise ImportError('libfoo.so.2')"))

    done = site.run("-m", "torchtrt", "converters", "aten.gelu", TORCHTRT_PACKS="broken")

    (line,) = (line for line in done.stderr.splitlines() if "libfoo" in line)
    assert line.startswith("Pack 'broken'"), done.stderr
    assert "warnings.warn(" not in done.stderr
