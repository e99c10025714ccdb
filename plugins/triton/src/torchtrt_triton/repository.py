"""Model repositories: a folder for each model, with its configuration and a folder for each version."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from torchtrt.errors import SettingsError, UnwritableFileError
from torchtrt_runtime.serialization.archive import Archive
from torchtrt_runtime.serialization.files import check_path
from torchtrt_runtime.serialization.saving import read_metadata, reading
from torchtrt_triton.config import ServingOptions, interface_text, option_texts
from torchtrt_triton.interface import ModelInterface, read_interface
from torchtrt_triton.platforms import Platform, platform_of

CONFIG = "config.pbtxt"
BACKENDS = ("auto", "tensorrt", "python")

_HEADER = "# Written by torchtrt triton. Adding a version keeps this file.\n"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_LONGEST_NAME = 255
"""The longest name of a folder on common file systems."""
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class AddedModel:
    """A version of a model in a repository.

    Attributes:
        folder: The folder of the version, such as ``repository/classifier/1``.
        config: The file of the configuration.
        backend: ``"tensorrt"`` or ``"python"``.
        needs_python: Why the TensorRT backend cannot run the model; an empty string if it can.
        interface: The inputs and outputs that clients see.
    """

    folder: Path
    config: Path
    backend: str
    needs_python: str
    interface: ModelInterface


def add_model(
    model: str | os.PathLike[str],
    repository: str | os.PathLike[str],
    name: str | None = None,
    *,
    version: int | None = None,
    options: ServingOptions | None = None,
) -> AddedModel:
    """Adds a saved model to a repository of the Triton Inference Server, as a new model or a new version.

    It loads no engine and needs no GPU. The version appears in the repository when it is complete.

    Args:
        model: A file that ``torchtrt.save`` wrote.
        repository: The repository's folder, which is made if it does not exist.
        name: The model's name in Triton; the name of the file without its ending if omitted.
        version: The version's number; the next one if omitted.
        options: How Triton runs the model.

    Raises:
        ImportError: A library cannot be imported.
        MissingOperatorError: The model calls an operator of a library that is not in ``options.imports``.
        SettingsError: An argument is unusable: the name, the version, the backend, or an option.
        UnreadableFileError: The file is no saved model, or is damaged.
        UnsupportedProgramError: Triton has no type for an input or output.
        UnwritableFileError: The repository cannot be written, has this version already, or has another model of this
            name: one that torchtrt did not write, or with other inputs or outputs.
    """
    source, options = Path(model), options or ServingOptions()
    name = _checked_name(source.stem if name is None else name)
    _check_arguments(version, options)
    archive = Archive(source)
    metadata = read_metadata(archive)
    if metadata["settings"].get("strip_engine_weights"):
        raise SettingsError(
            f"{source} has no weights for its engines (strip_engine_weights), and Triton has none to give to them. "
            "Compile the model without that setting."
        )
    for library in options.imports:
        importlib.import_module(library)
    with reading(archive, metadata) as program:
        interface = read_interface(program, metadata)
        platform = platform_of(program, metadata, interface)
    if options.gpus is not None and not platform.on_gpu:
        raise SettingsError(
            f"gpus={list(options.gpus)} names GPUs, and {name} has engines that run on the CPU. Leave it out."
        )
    backend = _chosen(options.backend, platform)
    if backend == "tensorrt":
        interface = interface.with_input_names(platform.input_names)
    if options.dynamic_batching and interface.unbatched:
        raise SettingsError(
            f"Triton cannot batch requests for {name}: {interface.unbatched}. Compile the model for dynamic sizes "
            "in the first dimension of each input, or leave dynamic batching out."
        )
    wanted = interface_text(interface, backend)
    target = _Target(Path(repository), name)
    is_new = target.check(wanted, option_texts(options, platform.on_gpu))
    number = target.next_version() if version is None else version
    with target.writing(number) as folder:
        if is_new:
            defaults = replace(options, instances=options.instances or 1)
            parts = (_HEADER, wanted, *option_texts(defaults, platform.on_gpu))
            (folder / CONFIG).write_text("".join(parts), encoding="utf-8", newline="\n")
        content = folder / str(number)
        content.mkdir()
        if backend == "tensorrt":
            archive.plans()[platform.plan].tofile(content / "model.plan")
        else:
            shutil.copyfile(source, content / "model.pt2")
            (content / "model.py").write_text(
                _backend_model(options.imports), "utf-8", newline="\n"
            )
    version_folder = target.folder / str(number)
    return AddedModel(
        version_folder, target.folder / CONFIG, backend, platform.needs_python, interface
    )


def _chosen(backend: str, platform: Platform) -> str:
    """Returns the backend that runs a model.

    Raises:
        SettingsError: The TensorRT backend was asked for, and cannot run it.
    """
    if backend == "tensorrt" and platform.needs_python:
        raise SettingsError(
            f"Triton's TensorRT backend cannot run this model: {platform.needs_python}. Use the Python backend."
        )
    if backend == "auto":
        return "python" if platform.needs_python else "tensorrt"
    return backend


def _checked_name(name: str) -> str:
    """Returns a name that Triton takes and that no file of the repository has.

    Raises:
        SettingsError: The name is unusable.
    """
    if name == CONFIG or len(name) > _LONGEST_NAME:
        raise SettingsError(
            f"{name!r} cannot be the name of a model in Triton: it is longer than {_LONGEST_NAME} characters, or the "
            "name of its configuration file. Give another name."
        )
    if not _NAME.fullmatch(name):
        proposal = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).lstrip("_.-") or "model"
        raise SettingsError(
            f"{name!r} cannot be the name of a model in Triton. Name it with letters, digits, '_', '-' and '.', such "
            f"as {proposal!r}."
        )
    return name


def _check_arguments(version: int | None, options: ServingOptions) -> None:
    """Raises an error for options that the Triton server does not accept."""
    if version is not None and version < 1:
        raise SettingsError(f"The version of a model is 1 or more, not {version}.")
    if options.backend not in BACKENDS:
        raise SettingsError(f"There is no backend {options.backend!r}. Use {', '.join(BACKENDS)}.")
    if options.instances is not None and options.instances < 1:
        raise SettingsError(f"A model has 1 or more instances, not {options.instances}.")
    gpus = options.gpus
    if gpus is not None and not (gpus and len(set(gpus)) == len(gpus) and min(gpus) >= 0):
        raise SettingsError(
            f"gpus={list(gpus)} is unusable: it is one number or several different ones, 0 or more."
        )
    delay = options.max_queue_delay
    if delay is not None and (delay < 0 or not options.dynamic_batching):
        raise SettingsError(
            f"max_queue_delay={delay} is unusable: it is 0 or more microseconds, and needs dynamic batching."
        )
    for library in options.imports:
        if not _MODULE.fullmatch(library):
            raise SettingsError(f"{library!r} cannot be imported: it is no name of a module.")


def _backend_model(imports: Sequence[str]) -> str:
    """Returns the Python file that runs the model."""
    text = resources.files("torchtrt_triton").joinpath("backend_model.py").read_text("utf-8")
    lines = "".join(f"import {library}\n" for library in imports)
    return text.replace("import torchtrt\n", f"{lines}import torchtrt\n", 1)


class _Target:
    """A model's folder in a repository.

    Args:
        repository: The repository.
        name: The model's name.
    """

    def __init__(self, repository: Path, name: str) -> None:
        self.repository = repository
        self.folder = repository / name

    def check(self, interface: str, options: Sequence[str]) -> bool:
        """Returns whether the model is new there.

        Args:
            interface: The part of the configuration that all versions share.
            options: Parts of the configuration that were asked for.

        Raises:
            UnwritableFileError: Something else is there.
        """
        check_path(self.folder)
        if (self.repository / CONFIG).is_file():
            raise UnwritableFileError(
                f"{self.repository} is the folder of a model, not a repository. Name the folder around it."
            )
        config = self.folder / CONFIG
        if not config.is_file():
            if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
                raise UnwritableFileError(
                    f"{self.folder} exists, and torchtrt did not write it. Give the model another name."
                )
            return True
        text = config.read_text(encoding="utf-8")
        if interface not in text:
            raise UnwritableFileError(
                f"The versions of a model share {config}, and this model has other inputs, outputs or sizes, or "
                f"another backend. Give it another name. (-: the file, +: this model)\n{_changes(text, interface)}"
            )
        for option in options:
            if option not in text:
                raise UnwritableFileError(
                    f"{config} exists without this option. Edit the file, or leave the option out:\n{option}"
                )
        return False

    def next_version(self) -> int:
        """Returns the number after the last version."""
        return max(self._versions(), default=0) + 1

    def _versions(self) -> Iterator[int]:
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if re.fullmatch(r"[1-9][0-9]*", path.name):
                    yield int(path.name)

    @contextlib.contextmanager
    def writing(self, version: int) -> Iterator[Path]:
        """Gives a folder to write a version into, and the configuration; they appear in the model's when complete.

        Raises:
            UnwritableFileError: The version exists, or the repository cannot be written.
        """
        version_folder = self.folder / str(version)
        if version_folder.exists():
            raise UnwritableFileError(
                f"{self.folder.name} has a version {version} already. Name another, or none for the next one."
            )
        try:
            is_new = not self.folder.exists()
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                # Triton takes no folder for a version whose name is no number.
                with tempfile.TemporaryDirectory(dir=self.folder, prefix=".writing-") as temporary:
                    folder = Path(temporary)
                    yield folder
                    if (folder / CONFIG).exists():
                        os.replace(folder / CONFIG, self.folder / CONFIG)
                    os.replace(folder / str(version), version_folder)
            except BaseException:
                if is_new:
                    with contextlib.suppress(OSError):
                        self.folder.rmdir()
                raise
        except OSError as error:
            raise UnwritableFileError(
                f"{version_folder} cannot be written: {error.strerror or error}. Make room, or use another folder."
            ) from error


def _changes(text: str, interface: str) -> str:
    """Returns the lines of a configuration that differ from an interface, without the options around them."""
    there, wanted = text.splitlines(), interface.splitlines()
    changes: list[str] = []
    codes = difflib.SequenceMatcher(None, there, wanted, autojunk=False).get_opcodes()
    for code, first, last, start, end in codes:
        is_around = code == "delete" and (start == 0 or start == len(wanted))
        if code != "equal" and not is_around:
            changes += [f"- {line}" for line in there[first:last]]
            changes += [f"+ {line}" for line in wanted[start:end]]
    return "\n".join(changes)
