"""Gives weights to engines by TensorRT's refitter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchtrt.errors import ConversionError, RefitError, UnsupportedDtypeError
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import ErrorLog, logger
from torchtrt.tensorrt.shims import weights_of
from torchtrt_runtime.weights.recipe import Recipe
from torchtrt_runtime.weights.stripped import StrippedWeights


def restore(engine: Any, name: str, recipe: Recipe, stripped: StrippedWeights) -> None:
    """Gives an engine the weights that its plan leaves out.

    Args:
        engine: The engine, as TensorRT has loaded it.
        name: The name of its block, for messages.
        recipe: How its weights follow from the attributes of the graph.
        stripped: These attributes.

    Raises:
        EngineError: There are no attributes, or one has changed.
        RefitError: Something that is compiled in would be another, or TensorRT refused the weights.
    """
    values = recipe.run(lambda source: stripped.read(source, name), f"the engine of {name}")
    with ErrorLog() as log:
        refitter = trt.Refitter(engine, logger())
        owners = set_weights(refitter, name, values, log)
        refit(refitter, name, log)
        del owners  # TensorRT reads their memory until here


def set_weights(
    refitter: Any, engine: str, values: Mapping[str, torch.Tensor], log: Any
) -> list[Any]:
    """Gives weights to a refitter, and returns what their memory belongs to.

    Args:
        refitter: TensorRT's refitter of an engine.
        engine: The name of the engine's block, for messages.
        values: The weights, by their names in the engine.
        log: What TensorRT has logged.

    Raises:
        RefitError: TensorRT does not take such weights.
    """
    owners = []
    for name, value in values.items():
        try:
            weights, owner = weights_of(value)
        except (ConversionError, UnsupportedDtypeError) as error:
            raise RefitError(
                f"The weights {name!r} of {engine} cannot have these values: {error}"
            ) from error
        owners.append(owner)
        if not refitter.set_named_weights(name, weights):
            raise RefitError(f"TensorRT refused the weights {name!r} of {engine}: {log.text()}")
    return owners


def refit(refitter: Any, engine: str, log: Any) -> None:
    """Lets an engine compute with the weights that its refitter was given.

    Raises:
        RefitError: TensorRT could not do it.
    """
    if not refitter.refit_cuda_engine():
        missing = ", ".join(refitter.get_missing_weights())
        raise RefitError(
            f"TensorRT could not refit {engine}: {log.text()} (missing: {missing or 'none'})"
        )
