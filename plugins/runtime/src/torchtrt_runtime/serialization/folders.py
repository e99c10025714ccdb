"""Folders of files that belong together: a description beside them notices one that is damaged, or of other files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from torchtrt.errors import InputError, UnreadableFileError, UnwritableFileError, kind_of
from torchtrt_runtime.serialization.checked_file import CheckedFile, checksums_of
from torchtrt_runtime.serialization.files import check_path, complete_file


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
    """Writes what describes the files of a folder, with checksums of each and of itself.

    Args:
        file: The description.
        content: What it says, as JSON has it.
        form: The number of its form.
        parts: The files that it belongs to.

    Raises:
        UnwritableFileError: There can be no such file.
    """
    files = {part.relative_to(file.parent).as_posix(): checksums_of(part) for part in parts}
    whole = json.loads(json.dumps({**content, "format": form, "files": files}))
    text = json.dumps({**whole, "checksum": _checksum_of(whole)}, indent=2)
    with complete_file(file) as path:
        path.write_text(text, encoding="utf-8")


class SavedFolder:
    """The files of a folder that ``write_description`` described. Each is checked while it is read.

    Args:
        file: The description.
        content: What it says.
        files: The checksums of each file, by its name.

    Attributes:
        content: What the description says.
    """

    def __init__(
        self, file: Path, content: dict[str, Any], files: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.content = content
        self._file, self._files = file, files

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Opens a file of the folder for one reading; at the end of the ``with`` block, all of it was checked.

        Raises:
            UnreadableFileError: The file is damaged or missing, or another than the one that was described.
        """
        part = self._file.parent / name
        try:
            opened = part.open("rb", buffering=0)
        except OSError as error:
            raise self._error(part, error) from error
        with opened, CheckedFile(opened, self._files[name]) as stream:
            try:
                yield stream  # type: ignore[misc]  # a raw stream reads all that it is asked for
                stream.check_rest()
            finally:
                if stream.failure is not None:
                    raise self._error(part, stream.failure) from stream.failure

    def check_sizes(self) -> None:
        """Checks that each file is there and has its size, without reading it.

        Raises:
            UnreadableFileError: One is missing, or has another size.
        """
        for name, wanted in self._files.items():
            part = self._file.parent / name
            try:
                size = part.stat().st_size
            except OSError as error:
                raise self._error(part, error) from error
            if size != wanted["bytes"]:
                raise self._error(part)

    def check(self, names: Iterable[str]) -> None:
        """Checks files that others read.

        Raises:
            UnreadableFileError: As of ``open``.
        """
        for name in names:
            with self.open(name):
                pass

    def _error(self, part: Path, reason: Exception | None = None) -> UnreadableFileError:
        if isinstance(reason, OSError):
            return UnreadableFileError(
                f"{part}, which {self._file.name} names, cannot be read: {reason.strerror or reason}. Copy the whole "
                "folder again."
            )
        return UnreadableFileError(
            f"{part} is not the file that was saved with {self._file.name}: it is damaged, or of another folder. Copy "
            "the whole folder again."
        )


def read_description(file: Path, form: int, advice: str) -> SavedFolder:
    """Returns what ``write_description`` wrote.

    Args:
        file: The description.
        form: The number of the form that the reader takes.
        advice: How to write the folder again: ``"Save the model again"``.

    Raises:
        UnreadableFileError: Another version of torchtrt wrote it, or it is damaged, or one of its files is missing.
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
    saved = SavedFolder(file, content, content.pop("files"))
    saved.check_sizes()
    return saved


def _checksum_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
