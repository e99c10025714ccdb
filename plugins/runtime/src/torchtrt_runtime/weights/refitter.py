"""Gives weights to engines by TensorRT's refitter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torchtrt.errors import ConversionError, EngineError, RefitError, UnsupportedDtypeError
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import ErrorLog, logger
from torchtrt.tensorrt.shims import weights_of
from torchtrt_runtime.weights.marks import version_of
from torchtrt_runtime.weights.recipe import Recipe, digest


@dataclass(frozen=True)
class Stripped:
    """Facts about the weights that a plan leaves out.

    Attributes:
        takes_others: Whether they may be others than those that the engine was built with.
        digests: For each attribute of the graph that they follow from, the digest of the values that it must have.
            Empty while the engine has its attributes, and where it takes others.
    """

    takes_others: bool
    digests: Mapping[str, str] = field(default_factory=dict)


class KeptAttributes(Mapping[str, torch.Tensor]):
    """Attributes of a graph that an engine without weights keeps, and reads when it is loaded.

    They may be the model's own tensors.

    Args:
        values: The attributes, by name.
        takes_others: Whether the engine takes other values than these. If not, their digests show also writes that
            PyTorch does not count, such as those through ``.data``.
    """

    def __init__(self, values: Mapping[str, torch.Tensor], *, takes_others: bool = True) -> None:
        self._values, self._takes_others = dict(values), takes_others
        self._marks = {name: self._mark(value) for name, value in values.items()}

    def _mark(self, value: torch.Tensor) -> tuple[int, str]:
        """Returns what changes with the values of a tensor, wherever they are."""
        version = version_of(value)
        return version, "" if self._takes_others and version >= 0 else digest(value)

    def __getitem__(self, name: str) -> torch.Tensor:
        """Returns an attribute.

        Raises:
            EngineError: It has changed since the engine got it.
        """
        value = self._values[name]
        if self._mark(value) != self._marks[name]:
            raise EngineError(
                f"The weight {name!r} has changed since the engine got it, and the engine reads it only now. Load or "
                "refit the model again, or give it tensors that nothing changes."
            )
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def updated(self, values: Mapping[str, torch.Tensor]) -> KeptAttributes:
        """Returns the same attributes but for some, which have other values."""
        made = KeptAttributes(values, takes_others=self._takes_others)
        made._values = {**self._values, **made._values}
        made._marks = {**self._marks, **made._marks}
        return made

    def __reduce__(self) -> Any:
        return _kept_again, (dict(self), self._takes_others)  # versions are of this process


def _kept_again(values: Mapping[str, torch.Tensor], takes_others: bool) -> KeptAttributes:
    return KeptAttributes(values, takes_others=takes_others)


def restore(
    engine: Any, name: str, recipe: Mapping[str, Any], attributes: KeptAttributes | None
) -> None:
    """Gives an engine the weights that its plan leaves out.

    Args:
        engine: The engine, as TensorRT has loaded it.
        name: The name of its block, for messages.
        recipe: How its weights follow from the attributes of the graph, as data.
        attributes: These attributes, by name.

    Raises:
        EngineError: There are no attributes, or one has changed.
        RefitError: Something that is compiled in would be another, or TensorRT refused the weights.
    """
    if attributes is None:
        raise EngineError(
            f"The engine of {name} has no weights: the model was compiled with strip_engine_weights. Give them to it "
            "with torchtrt.load(path, weights=...)."
        )
    values = Recipe.from_json(recipe).run(attributes.__getitem__, f"the engine of {name}")
    with ErrorLog() as log:
        refitter = trt.Refitter(engine, logger())
        owners = set_weights(refitter, name, values, log)
        is_refitted = refitter.refit_cuda_engine()
        del owners  # TensorRT reads their memory until here
        if not is_refitted:
            missing = ", ".join(refitter.get_missing_weights())
            message = (
                f"TensorRT could not refit {name}: {log.text()} (missing: {missing or 'none'})"
            )
            raise RefitError(message)


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
