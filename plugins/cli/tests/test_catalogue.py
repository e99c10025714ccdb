"""The commands about packs that are not installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchtrt.errors import CatalogueWarning
from torchtrt_compiler.catalogue import Catalogue

ACME = {
    "distribution": "torchtrt-converters-acme",
    "summary": "soft clipping",
    "ops": ["aten.igamma.default", *(f"acme.clip{n}.default" for n in range(8))],
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue of one pack; the user's own is empty."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = tmp_path / "acme.json"
    path.write_text(json.dumps({"packs": [ACME]}), encoding="utf-8")
    return path


def test_packs_that_are_not_installed_are_listed(
    ask: Callable[..., Any], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JSON is a catalogue."""
    assert (1, "Every pack of the catalogue is installed.\n", "") == ask("packs", "--available")
    monkeypatch.setenv("TORCHTRT_CATALOGUE", str(file))

    status, text, _ = ask("packs", "--available")
    _, data, _ = ask("packs", "--available", "--json")

    assert status == 0
    assert "torchtrt-converters-acme" in text
    assert "not installed" in text
    (pack,) = Catalogue.from_json(data).packs
    assert len(pack.ops) == 9


def test_a_search_shows_the_ops_that_it_found(
    ask: Callable[..., Any], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many, the first; installed packs are marked."""
    monkeypatch.setenv("TORCHTRT_CATALOGUE", str(file))

    _, nms, _ = ask("packs", "--search", "nms")
    _, clips, _ = ask("packs", "--search", "acme::clip")
    _, data, _ = ask("packs", "--search", "aten.igamma", "--json")
    status, _, _ = ask("packs", "--search", "no such thing")

    assert "torchvision.nms.default" in nms
    assert "acme.clip0.default" in clips
    assert "and 2 more" in clips
    (pack,) = json.loads(data)["packs"]
    assert {**ACME, "ops": ["aten.igamma.default"], "installed": False} == pack
    assert status == 1


def test_a_pack_is_added_and_removed(ask: Callable[..., Any], file: Path) -> None:
    """To the user's own catalogue, which the other commands read."""
    assert (0, "Added torchtrt-converters-acme: 9 ops.\n", "") == ask("catalogue", "add", str(file))
    assert ask("packs", "--available")[0] == 0

    status, data, _ = ask("catalogue", "remove", "acme", "--json")

    assert status == 0
    assert ["torchtrt-converters-acme"] == json.loads(data)["distributions"]
    status, _, said = ask("catalogue", "remove", "acme")
    assert status == 2
    assert "cannot be removed from your catalogue" in said


def test_explain_names_the_pack_of_an_op(
    ask: Callable[..., Any], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of an op whose library is not imported."""
    monkeypatch.setenv("TORCHTRT_CATALOGUE", str(file))

    status, text, _ = ask("explain", "aten.igamma")
    _, data, _ = ask("explain", "aten.igamma", "--json")
    unknown, _, said = ask("explain", "acme::clip3")

    assert status == 1
    assert "aten.igamma.default: install torchtrt-converters-acme" in text
    available = {"aten.igamma.default": ["torchtrt-converters-acme"]}
    assert available == json.loads(data)["available"]
    assert unknown == 2
    assert "acme.clip3.default: install torchtrt-converters-acme" in said


def test_an_unusable_catalogue_is_told(
    ask: Callable[..., Any], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command goes on."""
    file.write_text("{")
    monkeypatch.setenv("TORCHTRT_CATALOGUE", str(file))

    with pytest.warns(CatalogueWarning, match=f"left out: {file}"):
        status, text, _ = ask("packs", "--search", "nms")

    assert status == 0
    assert "torchvision.nms.default" in text


def test_only_a_pack_in_use_is_written(ask: Callable[..., Any]) -> None:
    """The list is that of its registrations."""
    status, _, said = ask("catalogue", "write", "asleep")

    assert status == 2
    assert "No pack 'asleep' from a distribution is in use." in said
