"""Packs come, go, break and hide each other on a real site; the registry is that of a model of ten lines."""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import importlib_metadata
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from core.tests.conftest import pack_source
from torchtrt.packs import ConverterPack
from torchtrt.packs.environment import read_selection
from torchtrt.packs.load import load
from torchtrt.packs.scan import scan
from torchtrt.registry import ConverterRegistry

NAMES = st.sampled_from(["audio", "vision", "zebra"])
FOLDERS = st.integers(0, 1)
OPS = {
    "relu": torch.ops.aten.relu.default,
    "gelu": torch.ops.aten.gelu.default,
}
ENDS = {
    "works": ("pass", None),
    "raises": ("raise RuntimeError('half way')", "hook-failed"),
    "exits": ("raise SystemExit(3)", "hook-failed"),
    "returns": ("return 3", "bad-hook"),
    "is for another PyTorch": ("pass", "torch-version"),
    "is for another contract": ("pass", "contract-version"),
}
"""How a pack's registration ends, and the code of the problem that it is."""


@dataclass(frozen=True)
class Release:
    """What is installed in one folder under one name."""

    version: str
    end: str
    priorities: tuple[tuple[str, str], ...]

    def source(self, name: str) -> str:
        """Returns the text of its module."""
        adds = [
            f"pack.add(torch.ops.aten.{op}.default, convert, priority=ConverterPriority.{priority})"
            for op, priority in self.priorities
        ]
        arguments = {
            "is for another PyTorch": ", torch='<2'",
            "is for another contract": ", api=(2, 0)",
        }
        body = "\n".join(["import torch", *adds, ENDS[self.end][0]])
        return pack_source(name, body, arguments.get(self.end, ""))


RELEASES = st.builds(
    Release,
    st.sampled_from(["1.0", "2.0", "2.0rc1"]),
    st.sampled_from([*["works"] * 5, *ENDS]),
    st.lists(
        st.tuples(st.sampled_from(sorted(OPS)), st.sampled_from(["STANDARD", "HIGH"])),
        max_size=3,
    ).map(tuple),
)


class Site(RuleBasedStateMachine):
    """Two folders on the import path, what a person does to them, and what should come of it."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.folders = [self.root / "first", self.root / "second"]
        for folder in self.folders:
            folder.mkdir()
        self.installed: dict[tuple[int, str], Release] = {}
        self.unreadable: set[tuple[int, str]] = set()
        self.environment: dict[str, str] = {}

    def teardown(self) -> None:
        """Removes the folders."""
        shutil.rmtree(self.root)

    @rule(folder=FOLDERS, name=NAMES, release=RELEASES)
    def install(self, folder: int, name: str, release: Release) -> None:
        """Installs, upgrades or downgrades."""
        if any((other, name) in self.unreadable for other in (0, 1)):
            return
        self.uninstall(folder, name)
        package = self.folders[folder] / f"torchtrt_converters_{name}"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "_pack.py").write_text(release.source(name))
        metadata = self.folders[folder] / f"torchtrt_converters_{name}-{release.version}.dist-info"
        metadata.mkdir()
        headers = (
            f"Metadata-Version: 2.1\nName: torchtrt-converters-{name}\nVersion: {release.version}\n"
        )
        (metadata / "METADATA").write_text(headers)
        entry = f"[torchtrt.converters]\n{name} = torchtrt_converters_{name}._pack\n"
        (metadata / "entry_points.txt").write_text(entry)
        self.installed[folder, name] = release

    @rule(folder=FOLDERS, name=NAMES)
    def uninstall(self, folder: int, name: str) -> None:
        """Removes a distribution, if it is there."""
        for path in self.folders[folder].glob(f"torchtrt_converters_{name}*"):
            shutil.rmtree(path)
        self.installed.pop((folder, name), None)
        self.unreadable.discard((folder, name))

    @precondition(lambda self: self.installed)
    @rule(data=st.data(), garbage=st.sampled_from([b"\xff\xfe\x00", b"\x80pack = x", b"\x93"]))
    def damage(self, data: st.DataObject, garbage: bytes) -> None:
        """Overwrites the entry points of a pack that is installed once."""
        folder, name = data.draw(st.sampled_from(sorted(self.installed)))
        if (1 - folder, name) in self.installed:
            return
        (metadata,) = self.folders[folder].glob(f"torchtrt_converters_{name}-*.dist-info")
        (metadata / "entry_points.txt").write_bytes(garbage)
        del self.installed[folder, name]
        self.unreadable.add((folder, name))

    @rule(names=st.lists(NAMES, max_size=2))
    def disable(self, names: list[str]) -> None:
        """Sets the variable; none to forget it."""
        self.environment["TORCHTRT_PACKS_DISABLE"] = ",".join(names)

    @rule(names=st.lists(NAMES, max_size=2, unique=True))
    def prefer(self, names: list[str]) -> None:
        """Sets the variable; none to forget it."""
        self.environment["TORCHTRT_PACKS_PREFER"] = " ".join(names)

    def named(self, variable: str) -> list[str]:
        """Returns the names in a variable."""
        return self.environment.get(variable, "").replace(",", " ").split()

    @invariant()
    def what_is_in_use_is_what_the_model_has(self) -> None:
        """Packs in use, problems, and which is tried first for each op."""
        visible = {}
        disabled = self.named("TORCHTRT_PACKS_DISABLE")
        damaged = [name for _, name in self.unreadable]
        expected: Counter[str] = Counter("bad-metadata" for name in damaged if name not in disabled)
        for (folder, name), release in sorted(self.installed.items()):
            first = visible.setdefault(name, release)
            is_hidden = folder == 1 and first.version != release.version
            expected["shadowed"] += is_hidden and name not in disabled
        for variable in ("TORCHTRT_PACKS_DISABLE", "TORCHTRT_PACKS_PREFER"):
            expected["unknown-name"] += len({*self.named(variable)} - {*visible, *damaged})
        in_use = {}
        for name, release in sorted(visible.items()):
            code = ENDS[release.end][1]
            if name in disabled:
                continue
            if code is None:
                in_use[name] = release
            else:
                expected[code] += 1
        orders: dict[str, list[str]] = {op: [] for op in OPS}
        for name, release in in_use.items():
            for op, priority in release.priorities:
                order = orders[op]
                order.insert(0 if priority == "HIGH" else len(order), name)
        for order in orders.values():
            ranks = {name: rank for rank, name in enumerate(self.named("TORCHTRT_PACKS_PREFER"))}
            order.sort(key=lambda name: ranks.get(name, len(ranks)))

        with imports_from(self.folders):
            scanned = scan(importlib_metadata.distributions(path=list(map(str, self.folders))))
            packs, problems = load(
                scanned, read_selection(self.environment), ConverterPack("local")
            )
        registry = ConverterRegistry(lambda: packs)

        assert [*in_use, "local"] == [loaded.info.name for loaded in packs.loaded]
        assert {loaded.info.name: loaded.info.version for loaded in packs.loaded[:-1]} == {
            name: release.version for name, release in in_use.items()
        }
        assert +expected == Counter(problem.code for problem in problems)
        for op, order in orders.items():
            assert order == [candidate.pack.name for candidate in registry.candidates(OPS[op])]


@contextmanager
def imports_from(folders: list[Path]) -> Iterator[None]:
    """Puts folders first on the import path, and forgets afterwards what came from them."""
    writes = sys.dont_write_bytecode
    sys.dont_write_bytecode = (
        True  # two releases may be written within the resolution of a time stamp
    )
    sys.path[:0] = map(str, folders)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        del sys.path[: len(folders)]
        sys.dont_write_bytecode = writes
        for name in [name for name in sys.modules if name.startswith("torchtrt_converters_")]:
            file = str(getattr(sys.modules[name], "__file__", None) or "")
            if file.startswith(tuple(map(str, folders))):
                del sys.modules[name]


def test_whatever_is_installed_upgraded_broken_hidden_and_removed() -> None:
    """After every step, from any state."""
    run_state_machine_as_test(
        Site,
        settings=settings(
            max_examples=60,
            stateful_step_count=20,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
