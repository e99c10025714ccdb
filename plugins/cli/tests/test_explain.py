"""`torchtrt explain`: ops, files and models."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch.utils._pytree import _deregister_pytree_node, register_pytree_node

import torchtrt
from plugins.cli.tests.example import convert
from torchtrt.errors import NoEngineWarning
from torchtrt_cli.coverage import coverages
from torchtrt_compiler.coverage import share

SILU = share(coverages()["aten_core"].ops["nn.functional.silu"].letters())
"""The coverage that the installed pack declares."""


def test_explaining_an_op_names_what_else_could_convert_it(ask: Callable[..., Any]) -> None:
    """Its decompositions, and the packs that are not loaded."""
    status, output, _ = ask("explain", "aten.silu")

    assert status == 1
    assert output.splitlines() == [
        "No pack has a converter for aten.silu.",
        "A converter or decomposition of it has the parameters of aten::silu(Tensor self) -> Tensor",
        "not loaded: Pack 'broken' (torchtrt-converters-broken 2.0, /site): ImportError: libfoo.so.2. Repair it.",
        f"aten.silu.default is decomposed by {convert.__module__}:decompose of zebra (torchtrt-converters-zebra 1.0)",
        f"aten_core converts {SILU} of PyTorch's samples of nn.functional.silu: see torchtrt coverage "
        "nn.functional.silu",
    ]


def test_a_function_is_explained_by_its_op(ask: Callable[..., Any]) -> None:
    """No graph of an exported program calls the function."""
    _, output, _ = ask("explain", "torch.relu")
    assert "torch.relu calls aten.relu, which graphs have in its place" in output


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


class Pair(dict):  # type: ignore[type-arg]
    """A container that can be read only with its class."""


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
    """Registers the class ``Pair`` with PyTorch in a ``with`` block."""
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
