"""`torchtrt doctor`, and the commands that help where a pack is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

LETHAL = "import os\nos._exit(13)"


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


def test_what_a_pack_prints_is_not_part_of_the_answer(
    site: Any, source_of_pack: Callable[..., str]
) -> None:
    """It goes to standard error, and JSON stays JSON."""
    site.unpack(site.wheel("loud", 'print("loud")\n' + source_of_pack("loud", "print('louder')")))

    done = site.run("-m", "torchtrt", "packs", "--json", TORCHTRT_PACKS="loud")

    assert "in use" in [entry["status"] for entry in json.loads(done.stdout)["packs"]]
    assert ["loud", "louder"] == done.stderr.splitlines()


def test_a_broken_pack_does_not_stop_the_import_where_warnings_are_errors(site: Any) -> None:
    """The import is whole, and the problem is printed all the same."""
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
    problems = [
        (problem["code"], problem["what"], problem["hint"]) for problem in answer["problems"]
    ]
    packs = site.run("-m", "torchtrt", "packs", "--json", **settings)

    assert expected == (done.returncode, problems)
    assert [pack] * len(problems) == [problem["pack"] for problem in answer["problems"]]
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
