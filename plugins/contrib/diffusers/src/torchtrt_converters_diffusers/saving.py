"""The engines of a compiled pipeline in a folder."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torchtrt.errors import InputError
from torchtrt_converters_diffusers.sizes import PipelineSizes, Range
from torchtrt_runtime.serialization.folders import (
    NewFolder,
    folder_of,
    read_description,
)

FORMAT = 3
"""The form of the folder. A reader takes its own only."""
_FOLDER = "torchtrt"
"""The folder inside of the user's, which may have the weights as well."""
_FILE = "pipeline.json"


@dataclasses.dataclass(frozen=True)
class SavedPipeline:
    """The description of the engines in a folder.

    Attributes:
        folder: The folder of the user on writing, and that of the engines on reading.
        pipeline: The name of the pipeline's class.
        sizes: The sizes that it was compiled for.
        components: The names of the components to compile.
        parts: The places of those that have engines in the folder.
        fallback: Whether calls outside of the ranges are compiled when they come.
    """

    folder: Path
    pipeline: str
    sizes: PipelineSizes
    components: Collection[str]
    parts: Collection[str]
    fallback: bool


def write_pipeline(saved: SavedPipeline, modules: Mapping[str, Any]) -> None:
    """Writes a description and the engines of followed modules.

    Raises:
        InputError, UnsupportedProgramError, UnwritableFileError: As of the ``save`` of a followed module.
    """
    folder = NewFolder(saved.folder / _FOLDER / _FILE)
    for path in saved.parts:
        modules[path].torchtrt.save(folder.path / path)
        folder.add(f"{path}/followed.json")
    content = dataclasses.asdict(saved)
    del content["folder"]
    folder.describe(content, FORMAT)


def read_pipeline(folder: str | os.PathLike[str]) -> SavedPipeline:
    """Returns the description of the engines in a folder.

    Raises:
        InputError: The folder has no engines of a pipeline.
        UnreadableFileError: Another version of torchtrt wrote it, or it is damaged.
    """
    file = folder_of(folder) / _FOLDER / _FILE
    if not file.is_file():
        raise InputError(
            f"{folder} has no {_FOLDER}/{_FILE}, which compiled.torchtrt.save(folder) of a compiled pipeline writes."
        )
    saved = read_description(file, FORMAT, "Compile and save the pipeline again")
    content = saved.content
    saved.check(f"{path}/followed.json" for path in content["parts"])
    sizes: dict[str, Any] = {
        name: Range(*size) if isinstance(size, list) else size
        for name, size in content.pop("sizes").items()
    }
    return SavedPipeline(file.parent, sizes=PipelineSizes(**sizes), **content)
