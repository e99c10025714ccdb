"""Compiled models of a class of transformers in a folder."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from transformers import GenerationConfig, PreTrainedModel

import torchtrt
from torchtrt.errors import InputError, UnreadableFileError
from torchtrt_converters_transformers.cache import CacheLayout
from torchtrt_converters_transformers.engine_model import EngineModel
from torchtrt_runtime.serialization.files import complete_file
from torchtrt_runtime.serialization.folders import (
    SavedFolder,
    folder_of,
    make_folder,
    write_description,
)
from torchtrt_runtime.serialization.folders import read_description as read_folder
from torchtrt_runtime.weights.supplying import Weights, state_dict_of

FORMAT = 3
"""The form of the folder. A reader takes its own only."""
DESCRIPTION = "torchtrt_generation.json"
_TENSORS = "torchtrt_tensors.pt"


def describe_layout(
    layout: CacheLayout, dtype: torch.dtype, device: torch.device
) -> dict[str, Any]:
    """Returns data on a cache, and on the dtype and the device of its model."""
    return {
        "layout": {**dataclasses.asdict(layout), "dtype": _name_of(layout.dtype)},
        "dtype": _name_of(dtype),
        "device": str(device),
    }


def read_layout(
    description: Mapping[str, Any],
) -> tuple[CacheLayout, torch.dtype, torch.device]:
    """Returns what ``describe_layout`` described."""
    layout = description["layout"]
    shapes, held = tuple(map(tuple, layout["shapes"])), layout["dtype"]
    held = None if held is None else getattr(torch, held)
    return (
        CacheLayout(**{**layout, "shapes": shapes, "dtype": held}),
        getattr(torch, description["dtype"]),
        torch.device(description["device"]),
    )


def _name_of(dtype: torch.dtype | None) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


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
    path = folder_of(folder)
    make_folder(path)
    (path / DESCRIPTION).unlink(missing_ok=True)  # first, so that no description is of other files
    parts = [path / f"{file}.pt2" for file in engines]
    for file, module in engines.items():
        torchtrt.save(module, path / f"{file}.pt2")
    model.config.save_pretrained(path)
    model.generation_config.save_pretrained(path)
    if tensors:
        parts.append(path / _TENSORS)
        with complete_file(parts[-1]) as written:
            torch.save({key: each.contiguous().cpu() for key, each in tensors.items()}, written)
    content = {
        "kind": kind,
        "engines": list(engines),
        **describe_layout(model.layout, model.dtype, model.device),
        **description,
    }
    write_description(path / DESCRIPTION, content, FORMAT, parts)


def check_saved_whole(others: Mapping[str, Any]) -> None:
    """Checks that ``save_pretrained`` is given a folder alone.

    Raises:
        InputError: It is given options.
    """
    if others:
        raise InputError(f"save_pretrained takes a folder here, and not {', '.join(others)}.")


def renamed(weights: Weights, prefixes: Mapping[str, str]) -> dict[str, torch.Tensor]:
    """Returns the weights of a model by their names in a module that is compiled.

    Args:
        weights: As ``torchtrt.load`` takes them.
        prefixes: What the names of parts of the model begin with, and what they begin with in the module. A weight of
            several parts has several names.
    """
    return {
        f"{inner}{name.removeprefix(outer)}": each
        for name, each in state_dict_of(weights).items()
        for outer, inner in prefixes.items()
        if name.startswith(outer)
    }


def prefix_of(model: torch.nn.Module, part: torch.nn.Module) -> str:
    """Returns what the names of the weights of a part begin with in a model: ``"model.encoder."``."""
    return next(f"{name}." if name else "" for name, each in model.named_modules() if each is part)


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


def read_description(
    folder: str | os.PathLike[str], kind: str, others: Mapping[str, Any]
) -> SavedFolder:
    """Returns the files of a folder, with their description.

    Args:
        folder: The folder.
        kind: The name of the class that loads it.
        others: Options; each is an error.

    Raises:
        InputError: The folder has no compiled model, or one of another class; or there are options.
        UnreadableFileError: Another version of torchtrt wrote it, or it is damaged.
    """
    file = folder_of(folder) / DESCRIPTION
    if others or not file.is_file():
        raise InputError(
            f"from_pretrained takes a folder with {DESCRIPTION}, and no options; got {folder}."
        )
    saved = read_folder(file, FORMAT, "Compile and save the model again")
    if (found := saved.content["kind"]) != kind:
        raise InputError(f"{folder} has a model for {found}.from_pretrained, and not for {kind}.")
    return saved


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
    saved: SavedFolder, weights: Mapping[str, Mapping[str, torch.Tensor] | None]
) -> Callable[[str], Any]:
    """Returns a function of a name that returns an engine, or None where there is none.

    Args:
        saved: The folder.
        weights: For each name the weights of an engine without any, by their names in the compiled module.

    Raises:
        UnreadableFileError, EngineMismatchError, RefitError: As of ``torchtrt.load``.
    """
    engines = {}
    for name in saved.content["engines"]:
        with saved.open(f"{name}.pt2") as stream:
            engines[name] = torchtrt.load(stream, weights=weights.get(name))
    return engines.get


def fill(model: torch.nn.Module, saved: SavedFolder, device: torch.device) -> None:
    """Gives a model the tensors of a folder that PyTorch reads.

    Raises:
        UnreadableFileError: As of ``torchtrt.load``.
    """
    with saved.open(_TENSORS) as file:
        tensors = torch.load(file, weights_only=True, map_location=device)
    for name, tensor in tensors.items():
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        if leaf in module._buffers:
            module._buffers[leaf] = tensor
        else:
            module._parameters[leaf] = torch.nn.Parameter(tensor, requires_grad=False)
