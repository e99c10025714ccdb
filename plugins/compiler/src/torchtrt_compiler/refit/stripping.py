"""Engines that get weights after they are built: which ones TensorRT takes."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torchtrt.errors import BuildError
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import ErrorLog, logger
from torchtrt.tensorrt.selection import describe
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.modules.loaded_engines import read_plan
from torchtrt_runtime.weights.recipe import Recipe
from torchtrt_runtime.weights.stripped import StrippedWeights


def strip(
    engine: EngineModule, followed: Mapping[str, torch.Tensor], *, takes_others: bool
) -> None:
    """Notes which weights the engine of a stripped plan needs, and gives them to it.

    Args:
        engine: The engine, with the recipe by which its weights follow from the attributes of the graph.
        followed: These attributes, by name.
        takes_others: Whether it takes other weights than these.

    Raises:
        BuildError: TensorRT left out weights that the recipe does not have.
    """
    recipe = engine.recipe or Recipe()
    replaceable, needed = _names(engine)
    if missing := [name for name in needed if name not in recipe.results]:
        raise BuildError(
            f"{describe()} left weights out of the plan of {engine.name} that follow neither from the model's nor "
            f"from a constant that a converter has added: {', '.join(missing)}. Compile the model without "
            "strip_engine_weights."
        )
    if kept := [name for name in recipe.results if name not in replaceable]:
        values = recipe.run(followed.__getitem__, engine.name) if takes_others else {}
        for name in kept:
            if takes_others:
                recipe.must_stay(name, values[name])
            else:
                del recipe.results[name]
    engine.recipe = recipe
    attributes = {name: followed[name] for name in engine.followed_attributes}
    engine.stripped = StrippedWeights(takes_others=takes_others, values=attributes)


def check_replaceable(engine: EngineModule) -> None:
    """Checks that TensorRT takes other values of each weight that an engine with plugins has from the model.

    A weight that only a plugin reads may be none to TensorRT. A refit would then fail, after the model is compiled.

    Raises:
        BuildError: It does not take some.
    """
    if not engine.plugins:
        return
    replaceable, _ = _names(engine)
    if fixed := sorted((engine.recipe or Recipe()).results.keys() - replaceable):
        ops = ", ".join(sorted({key.name for key in engine.plugins}))
        raise BuildError(
            f"{describe()} cannot replace the weights {', '.join(map(repr, fixed))} of {engine.name}, which has "
            f"plugins ({ops}). Name the op in torch_executed_ops, or compile the model with immutable_weights=True."
        )


def _names(engine: EngineModule) -> tuple[set[str], list[str]]:
    """Returns the weights that TensorRT can replace in an engine, and those that it lacks.

    Raises:
        BuildError: TensorRT cannot load the plan.
    """
    with ErrorLog() as log:
        loaded = read_plan(engine, torch.device("cpu"))
        if loaded.engine is None:
            message = f"{describe()} cannot load the plan of {engine.name}: {log.text()}"
            raise BuildError(message)
        refitter = trt.Refitter(loaded.engine, logger())
        return set(refitter.get_all_weights()), list(refitter.get_missing_weights())
