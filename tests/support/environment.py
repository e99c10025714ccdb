"""An environment with a few of the project's distributions, as a server or a pack author has it."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from tools.import_graph import ROOT


class Environment:
    """An environment with a few of the project's distributions, and everything else that is installed."""

    def __init__(self, folder: Path, distributions: list[str]) -> None:
        self.path = folder
        installed = Path(sysconfig.get_paths()["purelib"])
        for path in installed.iterdir():
            is_ours = re.match(r"_?_?(editable.*)?torchtrt", path.name) or path.suffix == ".pth"
            if not is_ours:
                (folder / path.name).symlink_to(path)
        for name in distributions:
            metadata: Path = importlib.metadata.distribution(name)._path  # type: ignore[attr-defined]
            (folder / metadata.name).symlink_to(metadata)
        sources = {
            "torchtrt-core": "core/src/torchtrt",
            "torchtrt-blocks": "plugins/blocks/src/torchtrt_blocks",
            "torchtrt-converters-aten-core": "plugins/aten_core/src/torchtrt_converters_aten_core",
            "torchtrt-reference": "plugins/reference/src/torchtrt_reference",
            "torchtrt-kernels": "plugins/kernels/src/torchtrt_kernels",
            "torchtrt-compiler": "plugins/compiler/src/torchtrt_compiler",
            "torchtrt-runtime": "plugins/runtime/src/torchtrt_runtime",
        }
        for name in distributions:
            source = ROOT / sources[name]
            (folder / source.name).symlink_to(source)

    def run(self, code: str, *arguments: object) -> str:
        """Returns what a program prints that runs there. Warnings are errors."""
        program = f"import sys; sys.path.append({str(self.path)!r})\n{code}"
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-S",
                "-W",
                "error::UserWarning",
                "-c",
                program,
                *map(str, arguments),
            ],
            capture_output=True,
            text=True,
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout
