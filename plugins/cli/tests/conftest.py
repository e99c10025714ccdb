"""The command is tested on sites of its own, as the core is, and on an example of packs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

import pytest

from core.tests.conftest import session_site, site, source_of_pack
from plugins.cli.tests.example import accepts, convert, decompose, fold
from torchtrt.packs import (
    ConverterPack,
    ConverterPriority,
    LoadedPack,
    PackInfo,
    PackSet,
    Problem,
    current_packs,
    use_packs,
)
from torchtrt_cli import main

__all__ = ["session_site", "site", "source_of_pack"]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two packs in use, one disabled, one broken, and a conflict."""
    monkeypatch.setenv("COLUMNS", "200")
    high = {"priority": ConverterPriority.HIGH}
    core = ConverterPack("aten_core", summary="ATen [all of it]", tensorrt=">=8.6")
    core.add("aten.gelu", convert, supports_dynamic_shapes=True, tensorrt=">=10")
    core.decomposition("aten.silu")(decompose)
    loaded = [
        LoadedPack(
            PackInfo("aten_core", "torchtrt-converters-aten-core", "0.1.0", "/site", 0), core
        )
    ]
    for name in ("vision", "zebra"):
        pack = ConverterPack(name)
        pack.add("aten.gelu", convert, capability_validator=accepts, **high)
        pack.add("nosuch::op", convert)
        pack.decomposition("aten.silu.default", priority=ConverterPriority.HIGH)(decompose)
        if name == "vision":
            pack.lowering_pass("fold")(fold)
        loaded.append(
            LoadedPack(PackInfo(name, f"torchtrt-converters-{name}", "1.0", "/site"), pack)
        )
    others = [
        PackInfo(name, f"torchtrt-converters-{name}", "2.0", "/site")
        for name in ("asleep", "broken")
    ]
    infos = tuple(sorted((*(entry.info for entry in loaded), *others), key=lambda info: info.order))
    disabled = MappingProxyType({"asleep": "disabled by TORCHTRT_PACKS_DISABLE"})
    problem = Problem("ImportError: libfoo.so.2", "Repair it.", "import-failed").about(others[1])
    packs = PackSet(infos, tuple(loaded), disabled, others=current_packs().others)
    with use_packs(packs, [problem]):
        yield


@pytest.fixture
def ask(example: None, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command in this process: its status, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
