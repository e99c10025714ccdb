"""Whether ``torchtrt/__init__.py`` is the file of torchtrt-core: a placeholder on package indexes has one as well.

The standard library is all that is imported: without that file, it may be all that can be.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

CODE = "overwritten"
"""The code of the problem."""
CORE = "torchtrt-core"
PLACEHOLDER = "torchtrt"
_FILE = "torchtrt/__init__.py"
_LINE = "from torchtrt.lazy import"
"""A line of the core's file that no other file of this name has."""


@dataclass(frozen=True)
class Fault:
    """A fault of the file, or a danger to it.

    Attributes:
        what: What happened, as a clause.
        commands: The commands that repair it, in order.
    """

    what: str
    commands: tuple[str, ...]

    @property
    def hint(self) -> str:
        """The advice, as a sentence."""
        return f"Run {', then '.join(f'`{command}`' for command in self.commands)}."


def fault() -> Fault | None:
    """Returns why ``import torchtrt`` does not import the core; ``None`` where it does."""
    core, placeholder = _installed(CORE), _placeholder()
    spec = importlib.util.find_spec("torchtrt")
    has_file = (
        spec is not None and spec.origin is not None
    )  # a folder without it is a namespace package
    if spec is not None and has_file and _is_ours(spec):
        return None
    if core is None:
        what = f"the distribution {CORE} is not installed"
    elif spec is None or not has_file:
        what = f"the file {_FILE} of {CORE} is missing: pip deletes it with the placeholder {PLACEHOLDER}"
    elif placeholder is None:
        what = f"the file {spec.origin} is not the one of {CORE}"
    else:
        verb = "hides" if _is_editable(core) else "has overwritten"
        what = f"{_described(placeholder)} {verb} the file {_FILE} of {CORE}"
    return Fault(what, tuple(_repair(core, placeholder)))


def threat() -> Fault | None:
    """Returns that the placeholder is installed, though the core's file is in place; ``None`` where it is not."""
    placeholder = _placeholder()
    if placeholder is None:
        return None
    what = (
        f"{_described(placeholder)} lists the file {_FILE} of {CORE}: pip deletes the file with it"
    )
    return Fault(what, tuple(_repair(_installed(CORE), placeholder)))


def editable_folder(distribution: Distribution) -> str | None:
    """Returns the folder that a distribution is imported from where pip installed it editable, otherwise ``None``."""
    if not _is_editable(distribution):
        return None
    return str(_origin(distribution).get("url", "")).removeprefix("file://")


def _is_ours(spec: importlib.machinery.ModuleSpec) -> bool:
    source = spec.loader.get_source("torchtrt") if hasattr(spec.loader, "get_source") else None
    return source is None or _LINE in source  # an installation may have compiled files only


def _installed(name: str) -> Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except PackageNotFoundError:
        return None


def _placeholder() -> Distribution | None:
    """Returns the distribution on indexes that has a file of the core's name, where it is installed."""
    placeholder = _installed(PLACEHOLDER)
    files = () if placeholder is None else placeholder.files or ()
    return placeholder if _FILE in {file.as_posix() for file in files} else None


def _described(placeholder: Distribution) -> str:
    return f"the distribution {PLACEHOLDER} {placeholder.version}, an empty placeholder,"


def _repair(core: Distribution | None, placeholder: Distribution | None) -> Iterator[str]:
    """Yields the commands that remove the placeholder and write the core's file again."""
    if placeholder is not None:
        yield f"pip uninstall --yes {PLACEHOLDER}"
    if core is None:
        yield f"pip install {CORE}"
    elif placeholder is None or not _is_editable(core):
        yield f"pip install --force-reinstall --no-deps {shlex.quote(_source(core))}"


def _source(core: Distribution) -> str:
    """Returns what pip installs the core from again: the folder or file that it came from, if it is still there."""
    url = urlsplit(str(_origin(core).get("url", "")))
    path = unquote(url.path)
    is_there = url.scheme == "file" and Path(path).exists()
    return path if is_there else f"{CORE}=={core.version}"


def _is_editable(distribution: Distribution | None) -> bool:
    origin = {} if distribution is None else _origin(distribution)
    return bool(origin.get("dir_info", {}).get("editable"))


def _origin(distribution: Distribution) -> dict[str, Any]:
    """Returns what pip has written about where a distribution came from; nothing for one from an index."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        return origin if isinstance(origin.get("dir_info", {}), dict) else {}
    except (ValueError, AttributeError):  # not written by pip
        return {}
