"""The machine of a verification, in words that name no user, no folder and no host."""

from __future__ import annotations

import hashlib
import importlib
import json
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import torchtrt
from torchtrt.packs import PACKS, loaded_packs
from torchtrt.tensorrt.selection import describe, describe_gpu, devices
from torchtrt_testing.verification.items import real_settings, reference_in_comparison

PACKAGES = (
    "torchtrt",
    "torchtrt_blocks",
    "torchtrt_compiler",
    "torchtrt_kernels",
    "torchtrt_reference",
    "torchtrt_runtime",
    "torchtrt_testing",
)
"""The packages, beside those of packs, whose code decides outcomes."""
_PATH = re.compile(
    r"""(?<![\w.\-/\\])(?:file:/{0,2})?(?:…|[A-Za-z]:)?(?:[/\\][^\s/\\"'<>|:()]+)+[/\\]"""
)
"""The folders of an absolute path. Names of layers, ``aten.relu.default/relu``, do not begin with a separator."""


def without_paths(text: str) -> str:
    """Returns a text in which absolute paths are their last part."""
    home = str(Path.home())  # whose name may have a space
    return _PATH.sub("…/", text.replace(home, "…") if len(home) > 1 else text)


def describe_machine(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what outcomes depend on, as plain data: versions, hardware, packs, settings and a digest of the code.

    Args:
        settings: Settings of the compilations.
    """
    return {
        "torchtrt": torchtrt.__version__,
        "tensorrt": describe(),
        "reference": reference_in_comparison(),
        "engines run on": devices(),
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "gpu": describe_gpu(),
        "driver": _driver(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "settings": {name: repr(value) for name, value in sorted(real_settings(settings).items())},
        "packs": {
            pack.info.name: pack.info.version for pack in loaded_packs() if pack.info.version
        },
        "code": _digest_of_code(),
    }


def digest(machine: Mapping[str, Any]) -> str:
    """Returns a short text that differs for machines that may have other outcomes."""
    return hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:12]


def _driver() -> str:
    """Returns the version of NVIDIA's driver; ``""`` if no tool reports it."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.strip().partition("\n")[0]


def _digest_of_code() -> str:
    code_hash = hashlib.sha256()
    packs = (PACKS.package_name(pack.info.name) for pack in loaded_packs())
    for name in (*PACKAGES, *packs):
        for folder in _folders(name):
            for path in sorted(folder.rglob("*.py")):
                code_hash.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return code_hash.hexdigest()[:12]


def _folders(package: str) -> Sequence[Path]:
    try:
        module = importlib.import_module(package)
    except ImportError:  # a pack that a program registers itself has no package
        return ()
    return [Path(folder) for folder in getattr(module, "__path__", ())]
