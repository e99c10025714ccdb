"""Machines that no test runs on: another GPU, and another ``tensorrt`` package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from torchtrt_reference import VERSIONS


class Machine:
    """A machine as torchtrt finds it, until the test ends.

    PyTorch has no setting that names another GPU, so its four functions that describe one are replaced here, for all
    tests. The package ``tensorrt`` is a real one in a folder: the reference of its version, or a version without more.

    Args:
        monkeypatch: Undoes the changes.
        folder: An empty folder, for packages.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self._folder = folder

    def has_gpu(self, capability: tuple[int, int], name: str = "NVIDIA Something") -> None:
        """Gives the machine one GPU of a compute capability."""
        facts = {
            "is_available": True,
            "current_device": 0,
            "get_device_capability": capability,
            "get_device_name": name,
        }
        for function, fact in facts.items():
            self._monkeypatch.setattr(torch.cuda, function, lambda *_, fact=fact: fact)

    def has_no_gpu(self) -> None:
        """Takes the GPU away."""
        self._monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def has_tensorrt(self, version: str) -> None:
        """Installs the package ``tensorrt`` of a version; it builds engines if the reference has that version."""
        folder = self._folder / version
        folder.mkdir()
        source = f"__version__ = {version!r}\n"
        if version in VERSIONS:
            source = f"import torchtrt_reference\nvars().update(vars(torchtrt_reference.load({version!r})))\n"
        (folder / "tensorrt.py").write_text(source)
        self.lacks("tensorrt")  # which the end of the test undoes
        del sys.modules["tensorrt"]
        self._monkeypatch.syspath_prepend(folder)

    def lacks(self, module: str) -> None:
        """Lets Python find no module of this name."""
        self._monkeypatch.setitem(sys.modules, module, None)
