"""Folders of files that belong together: a description beside them notices one that is damaged, or of other files."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from torchtrt.errors import InputError, UnreadableFileError, UnwritableFileError, kind_of
from torchtrt_runtime.serialization.checked_file import BLOCK, CheckedFile, checksums_of
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


def remove_file(file: Path) -> None:
    """Removes a file if it exists.

    Raises:
        UnwritableFileError: It cannot be removed.
    """
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise UnwritableFileError(
            f"{file} cannot be replaced: {error.strerror or error}. Give another folder."
        ) from error


class NewFolder:
    """A folder whose files are being written. Their description goes first, and comes back when all are there.

    The checksums are those of what is written here. If two writers share a folder, at the end the description of one
    of them is there, and a file of the other is an error to a reader.

    Args:
        file: The description. Its folder is made if there is none.
        block: The bytes of a block that has a checksum.

    Raises:
        UnwritableFileError: The folder cannot be created, or an older description cannot be removed.
    """

    def __init__(self, file: Path, block: int = BLOCK) -> None:
        make_folder(file.parent)
        remove_file(file)
        self.path = file.parent
        self._file, self._block = file, block
        self._files: dict[str, Mapping[str, Any]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[Path]:
        """Yields a path to write a file to, of the same name; the file gets its place at the end of the block.

        Raises:
            UnwritableFileError: There can be no such file.
        """
        with complete_file(self.path / name) as path:
            yield path
            self._files[name] = checksums_of(path, self._block)

    def add(self, name: str, checksums: Mapping[str, Any] | None = None) -> None:
        """Adds a file that is there, perhaps in a folder inside of this one.

        Args:
            name: Its name.
            checksums: What ``describe`` returned, if the file is the description of a folder.
        """
        own = checksums_of(self.path / name, self._block) if checksums is None else checksums
        self._files[name] = own

    def describe(self, content: Mapping[str, Any], form: int) -> Mapping[str, Any]:
        """Writes the description, with checksums of each file and of itself, and returns its own.

        Args:
            content: Its content, as JSON has it.
            form: The number of its form.

        Raises:
            UnwritableFileError: There can be no such file.
        """
        whole = json.loads(json.dumps({**content, "format": form, "files": self._files}))
        text = json.dumps({**whole, "checksum": _checksum_of(whole)}, indent=2)
        with complete_file(self._file) as path:
            path.write_text(text, encoding="utf-8")
            return checksums_of(path, self._block)


class SavedFolder:
    """The files of a folder that a ``NewFolder`` described. Each is checked while it is read.

    Args:
        file: The description.
        content: Its content.
        files: The checksums of each file, by its name.

    Attributes:
        content: The description's content.
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
                yield stream  # type: ignore[misc]  # a raw stream reads all that is requested
                stream.check_rest()
            finally:
                if stream.failure is not None:
                    raise self._error(part, stream.failure) from stream.failure

    def json(self, name: str) -> Any:
        """Returns the content of a file in JSON.

        Raises:
            UnreadableFileError: As of ``open``.
        """
        with self.open(name) as stream:
            return json.loads(stream.read())

    def folder(self, name: str, form: int, advice: str) -> SavedFolder:
        """Returns the files of a folder inside of this one, by the name of their description.

        Raises:
            UnreadableFileError: As of ``open`` and ``read_description``.
        """
        with self.open(name) as stream:
            text = stream.read()
        return _described(self._file.parent / name, text, form, advice)

    def check_sizes(self) -> None:
        """Checks that each file is there and has its size, without reading it.

        Raises:
            UnreadableFileError: One is missing, or has another size.
        """
        for name, wanted in self._files.items():
            part = self._file.parent / name
            try:
                status = part.stat()
            except OSError as error:
                raise self._error(part, error) from error
            if status.st_size != wanted["bytes"] or not stat.S_ISREG(status.st_mode):
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
    """Returns what a ``NewFolder`` described.

    Args:
        file: The description.
        form: The number of the form that the reader takes.
        advice: How to write the folder again: ``"Save the model again"``.

    Raises:
        UnreadableFileError: Another version of torchtrt wrote it, or it is damaged, or one of its files is missing.
    """
    try:
        text = file.read_bytes()
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror or error}. {advice}."
        raise UnreadableFileError(message) from error
    return _described(file, text, form, advice)


def _described(file: Path, text: bytes, form: int, advice: str) -> SavedFolder:
    """Returns the files of a folder, from the text of their description.

    Raises:
        UnreadableFileError: As of ``read_description``.
    """
    try:
        content = json.loads(text)
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
