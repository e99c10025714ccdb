"""``load_compiled_pipeline``: the engines of a folder behind a pipeline of diffusers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from diffusers import DiffusionPipeline

from torchtrt.errors import InputError
from torchtrt_converters_diffusers.pipeline import assembled, check_kinds, check_pipeline
from torchtrt_converters_diffusers.saving import read_pipeline

_Pipeline = TypeVar("_Pipeline", bound=DiffusionPipeline)


def load_compiled_pipeline(
    folder: str | os.PathLike[str],
    pipe: _Pipeline,
    *,
    dynamic_shapes: Mapping[str, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> _Pipeline:
    """Returns a pipeline of diffusers that runs on the engines that ``compiled.torchtrt.save(folder)`` saved.

    Nothing is exported or built. If weights differ from those of the engines, the first call refits.

    Args:
        folder: The folder.
        pipe: The pipeline, on the device and in the dtype of the one that was compiled. It goes on as it is, in
            PyTorch. The result is a copy that shares its weights, adapters and scheduler.
        dynamic_shapes: As for ``compile_pipeline``, if it had any.
        **settings: Settings of ``torchtrt.follow`` and ``torchtrt.compile`` for programs that are compiled later.

    Returns:
        A pipeline of the same class, with the ranges that the folder names.

    Raises:
        InputError: The folder has no engines, or they are for other components than the pipeline's; or its weights are
            others, and the engines were built with ``immutable_weights=True``.
        UnreadableFileError, EngineMismatchError: As of ``torchtrt.load``.
    """
    check_pipeline("load_compiled_pipeline", pipe)
    check_kinds(dynamic_shapes=dynamic_shapes)
    saved = read_pipeline(folder)
    compiled: Any
    compiled, parts = assembled(
        pipe,
        saved.sizes,
        components=saved.components,
        dynamic_shapes=dynamic_shapes,
        options={"fallback": saved.fallback, **settings},
    )
    modules = {part.path: part.module for part in parts}
    for path in saved.parts:
        if not hasattr(modules.get(path), "torchtrt"):
            raise InputError(
                f"The engines in {folder} are for {path!r} of a {saved.pipeline}, which {type(pipe).__name__} does not "
                "compile."
            )
        modules[path].torchtrt.load(saved.folder / path)
    return compiled  # type: ignore[no-any-return]
