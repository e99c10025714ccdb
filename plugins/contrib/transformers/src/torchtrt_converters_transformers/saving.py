"""Compiled models of a class of transformers in a folder."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, GenerationConfig, PreTrainedConfig, PreTrainedModel

import torchtrt
from torchtrt.errors import InputError, UnreadableFileError
from torchtrt_converters_transformers.cache import CacheLayout
from torchtrt_converters_transformers.engine_model import EngineModel
from torchtrt_runtime.modules.supplying import Weights, state_dict_of
from torchtrt_runtime.serialization.folders import (
    NewFolder,
    SavedFolder,
    folder_of,
)
from torchtrt_runtime.serialization.folders import read_description as read_folder
from torchtrt_runtime.weights.forms import is_same
from torchtrt_runtime.weights.model_weights import unfit

FORMAT = 4
"""The form of the folder. A reader takes its own only."""
DESCRIPTION = "torchtrt_generation.json"
_TENSORS = "torchtrt_tensors.pt"
_CONFIG, _GENERATION = "config.json", "generation_config.json"
_ADVICE = "Compile and save the model again"


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
    inner: Mapping[str, Callable[[Path], Mapping[str, Any]]] | None = None,
) -> Mapping[str, Any]:
    """Writes engines, configurations and the tensors that PyTorch reads. Returns the checksums of the description.

    Args:
        folder: The folder; it is made if there is none.
        model: The compiled model.
        kind: The name of the class that loads it.
        engines: The compiled modules by the names of their files.
        description: What the loading class needs besides.
        tensors: The parameters and buffers that PyTorch reads, by name.
        inner: What writes the folders inside of it, by their names, and returns what this function does.

    Raises:
        UnwritableFileError, UnsupportedProgramError: As of ``torchtrt.save``.
    """
    new = NewFolder(folder_of(folder) / DESCRIPTION)
    for file, module in engines.items():
        with new.part(f"{file}.pt2") as path:
            torchtrt.save(module, path)
    for file, config in ((_CONFIG, model.config), (_GENERATION, model.generation_config)):
        with new.part(file) as path:
            config.save_pretrained(path.parent)
    if tensors:
        with new.part(_TENSORS) as path:
            torch.save({key: tensor.contiguous().cpu() for key, tensor in tensors.items()}, path)
    for name, write in (inner or {}).items():
        new.add(f"{name}/{DESCRIPTION}", write(new.path / name))
    content = {
        "kind": kind,
        "engines": list(engines),
        **describe_layout(model.layout, model.dtype, model.device),
        **description,
    }
    return new.describe(content, FORMAT)


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
        f"{inner}{name.removeprefix(outer)}": tensor
        for name, tensor in state_dict_of(weights).items()
        for outer, inner in prefixes.items()
        if name.startswith(outer)
    }


def prefix_of(model: torch.nn.Module, part: torch.nn.Module) -> str:
    """Returns what the names of the weights of a part begin with in a model: ``"model.encoder."``."""
    return next(
        f"{name}." if name else "" for name, module in model.named_modules() if module is part
    )


def class_of(model: object) -> str:
    """Returns the name of the class of transformers that a compiled model has, by which it is found again.

    Raises:
        InputError: It is no class of transformers.
    """
    kind = next(
        base
        for base in type(model).__mro__
        if issubclass(base, PreTrainedModel) and not issubclass(base, EngineModel)
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
    saved = read_folder(file, FORMAT, _ADVICE)
    if (saved_kind := saved.content["kind"]) != kind:
        raise InputError(
            f"{folder} has a model for {saved_kind}.from_pretrained, and not for {kind}."
        )
    return saved


def inner_folder(saved: SavedFolder, name: str) -> SavedFolder:
    """Returns the files of a folder that ``write_folder`` wrote inside of another.

    Raises:
        UnreadableFileError: It is damaged, or of another folder.
    """
    return saved.folder(f"{name}/{DESCRIPTION}", FORMAT, _ADVICE)


def read_config(saved: SavedFolder) -> PreTrainedConfig:
    """Returns the configuration of a model in a folder.

    Raises:
        UnreadableFileError: It is damaged, or no class is registered for it.
    """
    content = saved.json(_CONFIG)
    if (name := content.get("model_type")) not in CONFIG_MAPPING:
        raise UnreadableFileError(
            f"transformers {transformers.__version__} has no configuration for the model_type {name!r}. If a library "
            "registers it with AutoConfig.register, import the library before loading."
        )
    config: PreTrainedConfig = CONFIG_MAPPING[name].from_dict(content)
    return config


def read_generation_config(saved: SavedFolder) -> GenerationConfig:
    """Returns the defaults of ``generate`` in a folder.

    Raises:
        UnreadableFileError: They are damaged.
    """
    config: GenerationConfig = GenerationConfig.from_dict(saved.json(_GENERATION))
    return config


def empty_model(saved: SavedFolder) -> PreTrainedModel:
    """Returns a model of the class that a folder names, with its configurations and without memory for weights.

    Raises:
        UnreadableFileError: This version of transformers has no such class, or a configuration is damaged.
    """
    name = saved.content["class"]
    kind: Any = getattr(transformers, name, None)
    if not isinstance(kind, type) or not issubclass(kind, PreTrainedModel):
        raise UnreadableFileError(
            f"transformers {transformers.__version__} has no {name}, which the folder needs. Install the version that "
            "saved it."
        )
    with torch.device("meta"):
        config: Any = kind.config_class
        model: PreTrainedModel = kind(config.from_dict(saved.json(_CONFIG)))
    model.generation_config = read_generation_config(saved)
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


def fill(
    model: torch.nn.Module,
    saved: SavedFolder,
    device: torch.device,
    weights: Weights | None,
    *,
    takes_others: bool,
) -> None:
    """Gives a model the tensors that PyTorch reads.

    Args:
        model: The model.
        saved: The folder, which has them.
        device: The device of the model.
        weights: The weights that its engines got, None for those of the folder.
        takes_others: Whether the engines take other weights than those that they were compiled with.

    Raises:
        UnreadableFileError: As of ``torchtrt.load``.
        RefitError: The engines got weights that do not fit the tensors of the folder.
    """
    with saved.open(_TENSORS) as file:
        tensors = torch.load(file, weights_only=True, map_location=device)
    if weights is not None:
        learned = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        tensors = _replaced(tensors, state_dict_of(weights), learned if takes_others else None)
    for name, tensor in tensors.items():
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        if leaf in module._buffers:
            module._buffers[leaf] = tensor
        else:
            module._parameters[leaf] = torch.nn.Parameter(tensor, requires_grad=False)


def _replaced(
    tensors: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    learned: Collection[str] | None,
) -> dict[str, torch.Tensor]:
    """Returns the tensors of a folder, those with given values replaced.

    Args:
        tensors: The tensors.
        weights: The weights of a model.
        learned: The names of parameters, which have to be given; None where each value has to be that of the folder.

    Raises:
        RefitError: A given weight does not fit, or is missing.
    """
    wrong, replaced = [], dict(tensors)
    for name, own in tensors.items():
        new = weights.get(name)
        if new is None:
            wrong += [f"{name!r} is missing"] if name in (learned or ()) else []
        elif (new.shape, new.dtype) != (own.shape, own.dtype):
            wrong.append(
                f"{name!r} is {new.dtype}{list(new.shape)}, not {own.dtype}{list(own.shape)}"
            )
        elif learned is None and not is_same(own, new.to(own.device)):
            wrong.append(f"{name!r} has other values than those that the model was compiled with")
        else:
            replaced[name] = new.detach().to(own.device)
    if wrong:
        raise unfit(wrong)
    return replaced
