"""The weights that a plan leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchtrt.errors import EngineError
from torchtrt_runtime.weights.marks import version_of
from torchtrt_runtime.weights.recipe import digest


class StrippedWeights:
    """The attributes of a compiled graph from which the weights that a plan leaves out follow.

    The engine reads them whenever it is loaded. They may be the model's own tensors.

    Args:
        takes_others: Whether the weights may be others than those that the engine was built with.
        values: The attributes, by name; None until the engine gets them.
        digests: For each attribute the digest of the values that it must have, where the engine takes no others.
    """

    def __init__(
        self,
        takes_others: bool,
        values: Mapping[str, torch.Tensor] | None = None,
        digests: Mapping[str, str] | None = None,
    ) -> None:
        self.takes_others = takes_others
        self._values = None if values is None else dict(values)
        self._digests = dict(digests or {})
        # Not addresses: weights move to other memory and back while engines are built.
        self._versions: dict[str, int] = {}
        for name, value in (values or {}).items():
            self._versions[name] = version_of(value)
            self._digests.pop(name, None)
            # Digests show also writes that PyTorch does not count: through ``.data``, and in inference mode.
            if not takes_others or value.is_inference():
                self._digests[name] = digest(value)

    def with_values(self, values: Mapping[str, torch.Tensor]) -> StrippedWeights:
        """Returns the weights of an engine whose attributes have these values, and the others those that they had."""
        made = StrippedWeights(takes_others=self.takes_others, values=values, digests=self._digests)
        made._values = {**(self._values or {}), **values}
        made._versions = {**self._versions, **made._versions}
        return made

    def unlike(self, other: StrippedWeights) -> list[str]:
        """Returns the names of the attributes that must keep their values, and have others in another engine's."""
        expected, values = {} if self.takes_others else self._digests, other._values or {}
        return [
            name
            for name in expected
            if name not in values or other._digests[name] != expected[name]
        ]

    def read(self, name: str, engine: str) -> torch.Tensor:
        """Returns an attribute.

        Args:
            name: Its name.
            engine: The name of the engine's block, for messages.

        Raises:
            EngineError: The engine has not got it, or it has changed since.
        """
        if self._values is None:
            raise EngineError(
                f"The engine of {engine} has no weights: the model was compiled with strip_engine_weights. Give them "
                "to it with torchtrt.load(path, weights=...)."
            )
        value = self._values[name]
        expected = self._digests.get(name)
        if self._versions[name] != version_of(value) or (expected and digest(value) != expected):
            raise EngineError(
                f"The weight {name!r} has changed since the engine got it, and the engine reads it only now. Load or "
                "refit the model again, or give it tensors that nothing changes."
            )
        return value

    def to_json(self) -> dict[str, Any]:
        """Returns what an engine needs to know of its weights, without them, as data.

        Raises:
            EngineError: The engine takes no others, and one has changed.
        """
        if self.takes_others:
            return {"takes_others": True, "digests": {}}
        for name in self._values or ():
            self.read(name, "a saved model")
        return {"takes_others": False, "digests": self._digests}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StrippedWeights:
        """Returns the weights that ``to_json`` made data of; they have no values yet."""
        return cls(takes_others=data["takes_others"], digests=dict(data["digests"]))

    def __reduce__(self) -> Any:
        # Versions are of this process.
        values = self._values and {name: self.read(name, "a copied model") for name in self._values}
        return StrippedWeights, (self.takes_others, values, self._digests)
