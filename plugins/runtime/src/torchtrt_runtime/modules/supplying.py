"""Gives a loaded model the weights that its plans leave out."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from operator import attrgetter
from pathlib import Path

import torch
from torch.export import ExportedProgram

from torchtrt.errors import InputError, MissingDistributionError, RefitError, UnreadableFileError
from torchtrt_runtime.checks.usage import UsageChecks
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.weights.forms import inner_tensors, is_same, named_weights
from torchtrt_runtime.weights.graph_attributes import copied_attributes, written_attributes
from torchtrt_runtime.weights.model_weights import NewAttributes, NewWeights, unfit
from torchtrt_runtime.weights.recipe import Recipe
from torchtrt_runtime.weights.stripped import StrippedWeights

Weights = Mapping[str, torch.Tensor] | torch.nn.Module | ExportedProgram | str | os.PathLike[str]
"""The forms of weights: a state dict, a model, its exported program, or the path of a safetensors file."""


def supply(compiled: CompiledModule, weights: Weights | None) -> None:
    """Gives the engines of a loaded model the weights that its file leaves out.

    Args:
        compiled: The model.
        weights: The weights; None where the file has all.

    Raises:
        InputError: The engines have their weights.
        RefitError: There are no weights, or they do not fit: one is missing, has another shape or dtype, or other
            values than those that the engines must have.
        UnreadableFileError: There is no such file of weights, or it is damaged.
    """
    engines = {
        name: module
        for name, module in compiled.graph_module.named_modules()
        if isinstance(module, EngineModule) and module.stripped is not None
    }
    if not engines:
        if weights is not None:
            raise InputError(
                "The engines in the file have their weights, so load() takes none: weights=... is for models that were "
                "compiled with strip_engine_weights. torchtrt.refit_module_weights gives an engine other weights."
            )
        return
    if weights is None:
        raise RefitError(
            "The file has no weights for its engines: the model was compiled with strip_engine_weights. Pass them: "
            "torchtrt.load(path, weights=...) takes a state dict, the model, or the path of a safetensors file."
        )
    model = compiled.weights
    assert model is not None, "a model with stripped engines has a recipe of its weights"
    tensors = inner_tensors(state_dict_of(weights, model.weights))
    new = NewWeights(model.with_tied_names(tensors), model, {})
    read = {attribute for engine in engines.values() for attribute in engine.followed_attributes}
    new.check_present(model.recipe.part((), read).sources.values())
    values = NewAttributes(model.recipe, new)
    for engine in engines.values():
        attributes = {name: values[name] for name in engine.followed_attributes}
        stripped = engine.stripped.with_values(attributes)  # type: ignore[union-attr]
        _check_identical(engine, stripped, model.recipe)
        engine.stripped = stripped
    written = _supply_graph(compiled, values)
    watched = {name: tensor for name, tensor in new.new.items() if name not in written}
    checks = compiled.usage_checks
    module = weights if isinstance(weights, torch.nn.Module) else None
    compiled.usage_checks = UsageChecks(watched, checks.trains, checks.autocast, module)


def state_dict_of(weights: Weights, attributes: Collection[str] = ()) -> dict[str, torch.Tensor]:
    """Returns weights by the model's names for them.

    Args:
        weights: What they come as.
        attributes: The names of weights that may be plain attributes of a model.
    """
    read = read_safetensors(weights) if isinstance(weights, (str, os.PathLike)) else weights
    return named_weights(read, attributes)


def _check_identical(engine: EngineModule, stripped: StrippedWeights, recipe: Recipe) -> None:
    """Checks that an engine gets the weights that it was built with, if it takes no others.

    Raises:
        RefitError: Some are others.
    """
    assert engine.stripped is not None
    if wrong := engine.stripped.unlike(stripped):
        names = sorted(map(repr, recipe.part((), wrong).sources.values()))
        raise RefitError(
            f"The weights {', '.join(names)} are not those that the engine of {engine.name} was built with, and "
            "TensorRT has optimized it for their values. Pass these weights, or compile the model with "
            "immutable_weights=False, whose engines take others."
        )


def _supply_graph(compiled: CompiledModule, values: NewAttributes) -> frozenset[str]:
    """Gives the weights to what PyTorch runs between the engines too; returns the names that the model writes to.

    Raises:
        RefitError: Its weights are others, and the model takes no others.
    """
    module = compiled.graph_module
    written = written_attributes(module.graph)
    new = copied_attributes(module, values.changed, values.__getitem__)
    if compiled.settings.immutable_weights:  # the file has them, and what the model has written
        wrong = [
            f"{name!r} has other values than those that the model was compiled with"
            for name, value in new.items()
            if name not in written and not is_same(attrgetter(name)(module), value)
        ]
        if wrong:
            raise unfit(wrong)
        return written
    for name, tensor in new.items():
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, tensor)
    return written


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Returns the tensors in a safetensors file, or in those that an index names, as views of the mapped files.

    Args:
        path: The file, or a ``.safetensors.index.json`` beside the files of a sharded checkpoint.

    Raises:
        MissingDistributionError: The distribution safetensors is not installed.
        UnreadableFileError: There is no such file, or it has no weights.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise MissingDistributionError(
            "Weights in a safetensors file need the distribution safetensors. Run `pip install safetensors`."
        ) from error
    file = Path(path)
    try:
        if file.suffix != ".json":
            return dict(load_file(file))
        shards: dict[str, list[str]] = {}
        for name, shard in json.loads(file.read_text("utf-8"))["weight_map"].items():
            shards.setdefault(str(shard), []).append(name)
        tensors: dict[str, torch.Tensor] = {}
        for shard, names in sorted(shards.items()):  # a shard may have more, which are no weights
            held = load_file(file.with_name(shard))
            tensors |= {name: held[name] for name in names if name in held}
        return tensors
    except OSError as error:
        reason = error.strerror or error
        raise UnreadableFileError(f"The weights {file} cannot be read: {reason}.") from error
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableFileError(
            f"{file} is no safetensors file, nor an index of such files: {error}. For weights in another file, load "
            "them, and pass the state dict."
        ) from error
