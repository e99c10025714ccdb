"""Which distribution provides which op, whether it is installed or not. ``docs/catalogue.md`` describes the file."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import urllib.request
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from torchtrt.callers import warn_caller
from torchtrt.errors import CatalogueError, CatalogueWarning, UnwritableFileError
from torchtrt.packs.info import PACKS, is_pack_name, normalize
from torchtrt_runtime.serialization.files import complete_file

if TYPE_CHECKING:
    from torchtrt.packs import LoadedPack
    from torchtrt.targets import Target

FILE = "catalogue.json"
"""The file in the package of a pack, and of the first-party packs in this package."""
VARIABLE = "TORCHTRT_CATALOGUE"
SECONDS = 10
"""How long a server may take to answer."""

_URL = re.compile(r"https?://")
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_OP = re.compile(r"[\w.]+")


@dataclass(frozen=True)
class CataloguedPack:
    """A pack in a catalogue.

    Attributes:
        distribution: The distribution to install.
        summary: What the pack is for, in its author's words.
        ops: The qualified names of the ops that it converts or decomposes, in alphabetical order.
    """

    distribution: str
    summary: str = ""
    ops: tuple[str, ...] = ()

    @classmethod
    def of(cls, loaded: LoadedPack) -> CataloguedPack:
        """Returns the entry of a pack in use."""
        from torchtrt.targets import qualified_name  # which imports PyTorch

        pack = loaded.pack
        targets: set[Target | str] = {converter.target for converter in pack.converters}
        targets.update(decomposition.target for decomposition in pack.decompositions)
        targets.update(op for step in pack.lowering_passes for op in step.ops)
        names = map(qualified_name, targets)
        return cls(PACKS.distribution_name(loaded.info.name), pack.summary, tuple(sorted(names)))

    @property
    def name(self) -> str:
        """The name of the pack."""
        return normalize(self.distribution)


@dataclass(frozen=True)
class Catalogue:
    """A list of packs.

    Attributes:
        packs: The packs, one for each distribution.
    """

    packs: tuple[CataloguedPack, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> Catalogue:
        """Returns the catalogue that a file contains.

        Raises:
            CatalogueError: The text is no catalogue.
        """
        try:
            return cls(tuple(map(_checked, json.loads(text)["packs"])))
        except CatalogueError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            what = f"this is no catalogue of packs: {type(error).__name__}: {error}."
            raise CatalogueError(what) from error

    def to_json(self) -> str:
        """Returns the text of a file, one op a line."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, source: str | os.PathLike[str]) -> Catalogue:
        """Returns the catalogue of a file, of a wheel, or of the URL of either. Nothing is imported.

        Raises:
            CatalogueError: It cannot be read, or it is no catalogue.
        """
        name = os.fspath(source)
        try:
            data = _download(name) if _URL.match(name) else Path(name).expanduser().read_bytes()
            if zipfile.is_zipfile(io.BytesIO(data)):
                return _of_wheel(data)
            return cls.from_json(data.decode("utf-8-sig"))
        except CatalogueError as error:
            raise CatalogueError(f"{name}: {error}") from error
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise CatalogueError(f"{name} cannot be read: {error}.") from error

    def providers(self, op: str) -> tuple[CataloguedPack, ...]:
        """Returns the packs that provide an op, by its qualified name."""
        return tuple(pack for pack in self.packs if op in pack.ops)

    def search(self, words: str) -> Catalogue:
        """Returns the packs with a text in their names, summaries or ops, and of their ops those with the text."""
        wanted = words.strip().lower().replace("::", ".")
        matches = []
        for pack in self.packs:
            ops = tuple(op for op in pack.ops if wanted in op.lower())
            if ops or any(wanted in text.lower() for text in (pack.distribution, pack.summary)):
                matches.append(replace(pack, ops=ops))
        return Catalogue(tuple(matches))

    def without(self, names: Iterable[str]) -> Catalogue:
        """Returns the packs with other names than these."""
        left_out = {*names}
        return Catalogue(tuple(pack for pack in self.packs if pack.name not in left_out))

    def updated(self, other: Catalogue) -> Catalogue:
        """Returns the packs of both. Where both have one, the other's counts."""
        packs = {pack.distribution: pack for pack in (*self.packs, *other.packs)}
        return Catalogue(tuple(packs[name] for name in sorted(packs)))


def current_catalogue() -> Catalogue:
    """Returns the first-party packs, those of the user's folder, and those of ``TORCHTRT_CATALOGUE``.

    A source that cannot be read is left out, with a ``CatalogueWarning``.
    """
    catalogue = first_party_catalogue()
    own = map(str, sorted(own_folder().glob("*.json")))
    for source in (*own, *_named_sources(os.environ)):
        try:
            catalogue = catalogue.updated(Catalogue.read(source))
        except CatalogueError as error:
            hint = f"Correct {VARIABLE}, or the file."
            warn_caller(f"A catalogue of packs is left out: {error} {hint}", CatalogueWarning)
    return catalogue


def available_packs() -> Catalogue:
    """Returns the packs of the current catalogue that are not installed, whatever else is wrong with a pack."""
    from torchtrt.packs import current_packs, problems  # which load packs

    installed = {info.name for info in current_packs().installed}
    broken = {normalize(problem.distribution) for problem in problems()}
    return current_catalogue().without(installed | broken)


@functools.cache
def first_party_catalogue() -> Catalogue:
    """Returns the packs of this project."""
    file = resources.files("torchtrt_compiler") / FILE
    return Catalogue.from_json(file.read_text(encoding="utf-8"))


def own_folder() -> Path:
    """Returns the folder of the user's catalogue, which may not exist."""
    return platformdirs.user_data_path("torchtrt") / "catalogue"


def add(source: str | os.PathLike[str]) -> Catalogue:
    """Takes the packs of a file, a wheel or a URL into the user's catalogue, and returns them.

    Raises:
        CatalogueError: It cannot be read, or it is no catalogue.
        UnwritableFileError: The user's catalogue cannot be written.
    """
    catalogue = Catalogue.read(source)
    for pack in catalogue.packs:
        write(Catalogue((pack,)), own_folder() / f"{pack.distribution}.json")
    return catalogue


def remove(name: str) -> str:
    """Removes a pack from the user's catalogue, and returns the name of its distribution.

    Args:
        name: The name of the pack or of its distribution, in any spelling.

    Raises:
        CatalogueError: It is not there, or cannot be removed.
    """
    path = own_folder() / f"{_distribution(PACKS.distribution_name(normalize(name)))}.json"
    try:
        path.unlink()
    except OSError as error:
        what = f"{path.stem} cannot be removed from your catalogue: {error}."
        raise CatalogueError(what) from error
    return path.stem


def write(catalogue: Catalogue, path: Path) -> None:
    """Writes a catalogue to a file, and makes its folder.

    Raises:
        UnwritableFileError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableFileError(f"{path} cannot be written: {error}.") from error
    with complete_file(path) as file:
        file.write_text(catalogue.to_json(), encoding="utf-8", newline="\n")


def _named_sources(environ: Mapping[str, str]) -> list[str]:
    return [name for name in map(str.strip, environ.get(VARIABLE, "").split(",")) if name]


@functools.cache
def _download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=SECONDS) as response:
        return bytes(response.read())


def _of_wheel(data: bytes) -> Catalogue:
    """Returns the catalogue of a wheel: its own pack.

    Raises:
        CatalogueError: It is no wheel of a pack, or has no catalogue, or one of other packs.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as wheel:
        metadata = [name for name in wheel.namelist() if _METADATA.fullmatch(name)]
        header = re.search(
            r"(?m)^Name:\s*(\S+)", "".join(wheel.read(name).decode() for name in metadata)
        )
        if header is None:
            raise CatalogueError("this is no wheel, because it has no metadata.")
        distribution = _distribution(header[1])
        path = f"{PACKS.package_name(normalize(distribution))}/{FILE}"
        if path not in wheel.namelist():
            hint = "Its authors write it with `torchtrt catalogue write`."
            raise CatalogueError(f"{distribution} has no list of its ops, {path}. {hint}")
        catalogue = Catalogue.from_json(wheel.read(path).decode("utf-8"))
    if [pack.distribution for pack in catalogue.packs] != [distribution]:
        raise CatalogueError(f"{path} lists other packs than {distribution}.")
    return catalogue


def _checked(entry: Mapping[str, Any]) -> CataloguedPack:
    """Returns an entry of a file. A user is told to install what it names, so names are those of packs alone."""
    summary, ops = entry.get("summary", ""), entry["ops"]
    if not isinstance(summary, str) or not summary.isprintable():
        raise ValueError(f"{summary!r} is no summary of one line")
    if not isinstance(ops, list) or not all(
        isinstance(op, str) and _OP.fullmatch(op) for op in ops
    ):
        raise ValueError("ops is no list of the names of ops")
    return CataloguedPack(_distribution(entry["distribution"]), summary, tuple(sorted({*ops})))


def _distribution(name: str) -> str:
    """Returns the name of a pack's distribution in its one spelling.

    Raises:
        CatalogueError: It is no name of a pack.
    """
    pack = normalize(name)
    distribution = PACKS.distribution_name(pack)
    if not is_pack_name(pack) or re.sub(r"[-_.]+", "-", name).lower() != distribution:
        raise CatalogueError(
            f"{name!r} is no distribution of a pack, such as {PACKS.prefix}vision."
        )
    return distribution
