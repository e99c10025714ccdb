"""Compiled models of a class of transformers in a folder."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig, PreTrainedModel

import torchtrt
from torchtrt.errors import InputError, UnreadableFileError
from torchtrt_converters_transformers.cache import CacheLayout
from torchtrt_converters_transformers.engine_model import EngineModel

FORMAT = 2
"""The form of the folder. A reader takes its own only."""
DESCRIPTION = "torchtrt_generation.json"
_TENSORS = "torchtrt_tensors.safetensors"


def describe_layout(
    layout: CacheLayout, dtype: torch.dtype, device: torch.device
) -> dict[str, Any]:
    """Returns data on a cache, and on the dtype and the device of its model."""
    return {
        "layout": dataclasses.asdict(layout),
        "dtype": str(dtype).removeprefix("torch."),
        "device": str(device),
    }


def read_layout(
    description: Mapping[str, Any],
) -> tuple[CacheLayout, torch.dtype, torch.device]:
    """Returns what ``describe_layout`` described."""
    layout = description["layout"]
    return (
        CacheLayout(**{**layout, "shapes": tuple(map(tuple, layout["shapes"]))}),
        getattr(torch, description["dtype"]),
        torch.device(description["device"]),
    )


def write_folder(
    folder: str | os.PathLike[str],
    model: Any,
    kind: str,
    engines: Mapping[str, Any],
    description: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Writes engines, configurations and the tensors that PyTorch reads.

    Args:
        folder: The folder; it is made if there is none.
        model: The compiled model.
        kind: The name of the class that loads it.
        engines: The compiled modules by the names of their files.
        description: What the loading class needs besides.
        tensors: The parameters and buffers that PyTorch reads, by name.

    Raises:
        UnwritableFileError, UnsupportedProgramError: As of ``torchtrt.save``.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    for file, module in engines.items():
        torchtrt.save(module, path / f"{file}.pt2")
    model.config.save_pretrained(path)
    model.generation_config.save_pretrained(path)
    if tensors:
        save_file({key: each.contiguous().cpu() for key, each in tensors.items()}, path / _TENSORS)
    content = {
        "format": FORMAT,
        "kind": kind,
        "engines": list(engines),
        **describe_layout(model.layout, model.dtype, model.device),
        **description,
    }
    (path / DESCRIPTION).write_text(json.dumps(content, indent=2), encoding="utf-8")


def check_saved_whole(others: Mapping[str, Any]) -> None:
    """Checks that ``save_pretrained`` is given a folder alone.

    Raises:
        InputError: It is given options.
    """
    if others:
        raise InputError(f"save_pretrained takes a folder here, and not {', '.join(others)}.")


def check_has_weights(*engines: Any) -> None:
    """Checks that no engine is without its weights, which the loading class would have to be given.

    Raises:
        InputError: One was compiled with ``strip_engine_weights``.
    """
    if any(each is not None and each.settings.strip_engine_weights for each in engines):
        raise InputError(
            "save_pretrained of this class writes engines with their weights, and these were compiled with "
            "strip_engine_weights=True. Compile the model without it to save it."
        )


def class_of(model: object) -> str:
    """Returns the name of the class of transformers that a compiled model has, by which it is found again.

    Raises:
        InputError: It is none of transformers.
    """
    kind = next(
        each
        for each in type(model).__mro__
        if issubclass(each, PreTrainedModel) and not issubclass(each, EngineModel)
    )
    if getattr(transformers, kind.__name__, None) is not kind:
        raise InputError(
            f"{kind.__name__} is no class of transformers, where loading looks for it. Keep its engines with "
            "engine_cache=True."
        )
    return str(kind.__name__)


def read_description(folder: str | os.PathLike[str], kind: str, others: Mapping[str, Any]) -> Any:
    """Returns the description in a folder.

    Args:
        folder: The folder.
        kind: The name of the class that loads it.
        others: Options; each is an error.

    Raises:
        InputError: The folder has no compiled model, or one of another class; or there are options.
        UnreadableFileError: Another version of torchtrt wrote it, or it is damaged.
    """
    file = Path(folder) / DESCRIPTION
    if others or not file.is_file():
        raise InputError(
            f"from_pretrained takes a folder with {DESCRIPTION}, and no options; got {folder}."
        )
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise UnreadableFileError(f"{file} is damaged: {error}.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UnreadableFileError(
            f"{file} has another format than {FORMAT}, which this torchtrt reads. Compile and save the model again."
        )
    if content["kind"] != kind:
        raise InputError(
            f"{folder} has a model for {content['kind']}.from_pretrained, and not for {kind}."
        )
    return content


def empty_model(folder: str | os.PathLike[str], description: Mapping[str, Any]) -> PreTrainedModel:
    """Returns a model of the class that a folder names, with its configurations and without memory for weights.

    Raises:
        UnreadableFileError: This version of transformers has no such class.
    """
    kind: Any = getattr(transformers, description["class"], None)
    if not isinstance(kind, type) or not issubclass(kind, PreTrainedModel):
        raise UnreadableFileError(
            f"transformers {transformers.__version__} has no {description['class']}, which {folder} needs."
        )
    with torch.device("meta"):
        config: Any = kind.config_class
        model: PreTrainedModel = kind(config.from_pretrained(folder))
    model.generation_config = GenerationConfig.from_pretrained(folder)
    return model


def load_engines(
    folder: str | os.PathLike[str],
    description: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor] | None = None,
) -> Callable[[str], Any]:
    """Returns a function of a name that returns an engine, or None where there is none.

    Raises:
        UnreadableFileError, EngineMismatchError, RefitError: As of ``torchtrt.load``.
    """
    engines = {
        name: torchtrt.load(Path(folder) / f"{name}.pt2", weights=weights)
        for name in description["engines"]
    }
    return engines.get


def fill(model: torch.nn.Module, folder: str | os.PathLike[str], device: torch.device) -> None:
    """Gives a model the tensors of a folder that PyTorch reads."""
    for name, tensor in load_file(Path(folder) / _TENSORS, device=str(device)).items():
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        if leaf in module._buffers:
            module._buffers[leaf] = tensor
        else:
            module._parameters[leaf] = torch.nn.Parameter(tensor, requires_grad=False)
