"""Whether ``torchtrt/__init__.py`` is the file of torchtrt-core: a placeholder on package indexes has one as well.

The standard library is all that is imported: without that file, it may be all that can be.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import json
import shlex
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

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
    spec = importlib.util.find_spec("torchtrt")
    origin = (
        None if spec is None else spec.origin
    )  # a folder without the file is a namespace package
    if spec is not None and origin is not None and _is_ours(spec):
        return None
    core, placeholder = _installed(CORE), _placeholder()
    uninstall = () if placeholder is None else (f"pip uninstall --yes {PLACEHOLDER}",)
    if core is None:
        what = f"the distribution {CORE} is not installed"
        return Fault(what, (*uninstall, f"pip install {CORE}"))
    if origin is None:
        what = f"the file {_FILE} of {CORE} is missing: pip deletes it with the placeholder {PLACEHOLDER}"
    elif placeholder is None:
        what = f"the file {origin} is not the one of {CORE}"
    elif not _share_the_file(core, placeholder):
        return Fault(f"{_described(placeholder)} hides the file {_FILE} of {CORE}", uninstall)
    else:
        what = f"{_described(placeholder)} has overwritten the file {_FILE} of {CORE}"
    return Fault(what, (*uninstall, _reinstall(core)))


def threat() -> Fault | None:
    """Returns that the placeholder would take the core's file with it; ``None`` where it would not."""
    core, placeholder = _installed(CORE), _placeholder()
    if core is None or placeholder is None or not _share_the_file(core, placeholder):
        return None
    what = (
        f"{_described(placeholder)} lists the file {_FILE} of {CORE}: pip deletes the file with it"
    )
    return Fault(what, (f"pip uninstall --yes {PLACEHOLDER}", _reinstall(core)))


def editable_folder(distribution: Distribution) -> str | None:
    """Returns the folder that a distribution is imported from where pip installed it editable, otherwise ``None``."""
    origin = _origin(distribution)
    is_editable = origin.get("dir_info", {}).get("editable")
    return str(origin.get("url", "")).removeprefix("file://") if is_editable else None


def _is_ours(spec: importlib.machinery.ModuleSpec) -> bool:
    get_source = getattr(spec.loader, "get_source", None)
    source = None if get_source is None else get_source("torchtrt")
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


def _share_the_file(core: Distribution, placeholder: Distribution) -> bool:
    """Returns whether both distributions have one file of this name, which each overwrites and deletes."""
    first, second = (
        Path(str(distribution.locate_file(_FILE))).resolve() for distribution in (core, placeholder)
    )
    return editable_folder(core) is None and first == second


def _described(placeholder: Distribution) -> str:
    named = f"{PLACEHOLDER} {_version(placeholder)}".rstrip()
    return f"the distribution {named}, an empty placeholder,"


def _reinstall(core: Distribution) -> str:
    """Returns the command that writes the core's files again, from where it was installed."""
    version = _version(core)
    from_index = f"{CORE}=={version}" if version else CORE
    everything = _installed("torchtrt-all")
    source = _source(core) or (everything and _source(everything, "core")) or from_index
    return f"pip install --force-reinstall --no-deps {shlex.quote(source)}"


def _source(distribution: Distribution, folder: str = "") -> str:
    """Returns the folder, file or repository that a distribution, or what is in a folder of it, came from.

    The result is empty for a distribution from an index, and for a folder that is gone.
    """
    origin = _origin(distribution)
    url = str(origin.get("url", ""))
    if version_control := origin.get("vcs_info"):
        inner = folder or origin.get("subdirectory")
        where = f"#subdirectory={inner}" if inner else ""
        return f"{version_control.get('vcs')}+{url}@{version_control.get('commit_id')}{where}"
    path = Path(url2pathname(urlsplit(url).path), folder)
    return str(path) if url.startswith("file:") and path.exists() else ""


def _version(distribution: Distribution) -> str:
    try:
        return distribution.version or ""
    except Exception:  # its metadata has none
        return ""


def _origin(distribution: Distribution) -> dict[str, Any]:
    """Returns what pip has written about where a distribution came from; nothing for one from an index."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        return origin if isinstance(origin.get("dir_info", {}), dict) else {}
    except (ValueError, AttributeError):  # not written by pip
        return {}
