"""Folders of files that belong together: a description beside them notices one that is damaged, or of other files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torchtrt.errors import InputError, UnreadableFileError, UnwritableFileError, kind_of
from torchtrt_runtime.serialization.files import check_path, complete_file

_CHUNK = 1 << 20


def folder_of(folder: str | os.PathLike[str]) -> Path:
    """Returns the path of a folder.

    Raises:
        InputError: It is something else than a path.
    """
    if not isinstance(folder, (str, os.PathLike)) or isinstance(os.fspath(folder), bytes):
        raise InputError(f"The folder comes as a path, and not as {kind_of(folder)}.")
    return Path(folder)


def make_folder(folder: Path) -> None:
    """Creates a folder if it does not exist.

    Raises:
        UnwritableFileError: The folder cannot be created.
    """
    check_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableFileError(
            f"The folder {folder} cannot be created: {error.strerror or error}. Give another folder."
        ) from error


def write_description(
    file: Path, content: Mapping[str, Any], form: int, parts: Iterable[Path]
) -> None:
    """Writes what describes the files of a folder, with a checksum of each and of itself.

    Args:
        file: The description.
        content: What it says, as JSON has it.
        form: The number of its form.
        parts: The files that it belongs to.

    Raises:
        UnwritableFileError: There can be no such file.
    """
    files = {part.relative_to(file.parent).as_posix(): _checksum(part) for part in parts}
    whole = json.loads(json.dumps({**content, "format": form, "files": files}))
    text = json.dumps({**whole, "checksum": _checksum_of(whole)}, indent=2)
    with complete_file(file) as path:
        path.write_text(text, encoding="utf-8")


def read_description(file: Path, form: int, advice: str) -> dict[str, Any]:
    """Returns what ``write_description`` wrote, after a check of the files.

    Args:
        file: The description.
        form: The number of the form that the reader takes.
        advice: How to write the folder again: ``"Save the model again"``.

    Raises:
        UnreadableFileError: Another version of torchtrt wrote it, or it or a file is damaged, missing, or another.
    """
    try:
        content = json.loads(file.read_text("utf-8"))
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror or error}."
        raise UnreadableFileError(message) from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFileError(f"{file} is damaged: {error}. {advice}.") from error
    if not isinstance(content, dict) or content.pop("format", None) != form:
        message = f"{file} has another format than {form}, which this torchtrt reads. {advice}."
        raise UnreadableFileError(message)
    checksum = content.pop("checksum", None)
    if checksum != _checksum_of({**content, "format": form}):
        message = f"{file} is damaged: its checksum is another. Copy the folder again. {advice} if that does not help."
        raise UnreadableFileError(message)
    for name, wanted in content.pop("files").items():
        _check_part(file, file.parent / name, wanted)
    return content


def _check_part(file: Path, part: Path, wanted: str) -> None:
    """Checks that a file is the one that a description was written for.

    Raises:
        UnreadableFileError: It is not.
    """
    try:
        found = _checksum(part)
    except OSError as error:
        raise UnreadableFileError(
            f"{part}, which {file.name} names, cannot be read: {error.strerror or error}. Copy the whole folder again."
        ) from error
    if found != wanted:
        raise UnreadableFileError(
            f"{part} is not the file that was saved with {file.name}: it is damaged, or of another folder. Copy the "
            "whole folder again."
        )


def _checksum(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _checksum_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
