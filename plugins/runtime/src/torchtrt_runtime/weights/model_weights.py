"""The weights of a compiled model, and others in their place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from torchtrt.errors import RefitError
from torchtrt_runtime.weights.forms import form_of, is_same
from torchtrt_runtime.weights.recipe import Recipe, decode_tensor


@dataclass(frozen=True)
class WeightForm:
    """The dtype and the shape of a weight.

    Attributes:
        dtype: The dtype's name.
        shape: The shape.
        default: The values, as ``encode_tensor`` makes data of them, of a weight that a state dict may lack.
    """

    dtype: str
    shape: list[int]
    default: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ModelWeights:
    """The weights that a model was compiled with, and how the compiled graph follows from them.

    Attributes:
        weights: Their forms, by the model's names for them.
        shared: Groups of names of one weight.
        overlapping: Groups of names of weights that share memory.
        recipe: How the attributes of the compiled graph follow from them.
        equal: How the values follow that have to be equal in all processes.
    """

    weights: Mapping[str, WeightForm]
    shared: Sequence[Sequence[str]]
    overlapping: Sequence[Sequence[str]]
    recipe: Recipe
    equal: Recipe

    def with_tied_names(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Returns weights under all names of those that a model has under several: one name stands for all."""
        named = dict(tensors)
        for names in self.shared:
            tied = [tensors[name] for name in names if name in tensors]
            named.update({name: tied[0] for name in names if tied and name not in tensors})
        return named

    def to_json(self) -> dict[str, Any]:
        """Returns the weights as data."""
        return {
            "weights": {name: asdict(form) for name, form in self.weights.items()},
            "shared": self.shared,
            "overlapping": self.overlapping,
            "recipe": self.recipe.to_json(),
            "equal": self.equal.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelWeights:
        """Returns the weights that ``to_json`` made data of."""
        return cls(
            {name: WeightForm(**form) for name, form in data["weights"].items()},
            data["shared"],
            data["overlapping"],
            Recipe.from_json(data["recipe"]),
            Recipe.from_json(data["equal"]) if "equal" in data else Recipe(),
        )


class NewWeights:
    """The weights of a model after a refit: the new ones, and the others as they were.

    Args:
        new: Tensors by the model's names for them.
        model: The weights that the model was compiled with.
        current: Other weights whose values are known.

    Attributes:
        model: The weights that the model was compiled with.
        new: The tensors that are new, by name.

    Raises:
        RefitError: A new weight does not fit the model.
    """

    def __init__(
        self,
        new: Mapping[str, torch.Tensor],
        model: ModelWeights,
        current: Mapping[str, torch.Tensor],
    ) -> None:
        self.model = model
        self.new = dict(new)
        self._current = current
        self._check()

    def __getitem__(self, name: str) -> torch.Tensor:
        if name in self.new:
            return self.new[name]
        form = self.model.weights.get(name)
        if form is not None and name in self._current:
            return self._current[name]
        if form is None or form.default is None:
            raise unfit([f"{name!r} is missing"])
        return decode_tensor(form.default)

    def check_present(self, names: Iterable[str]) -> None:
        """Raises a ``RefitError`` that lists those of some weights that have no value."""
        lacking = [
            name
            for name in dict.fromkeys(names)
            if name not in self.new and self.model.weights[name].default is None
        ]
        if lacking:
            raise unfit([f"{name!r} is missing" for name in lacking])

    def _check(self) -> None:
        """Raises a ``RefitError`` that lists each new weight that does not fit, and each that is missing."""
        model, new = self.model, self.new
        wrong = [f"{name!r} is no weight of the model" for name in new if name not in model.weights]
        for name, form in model.weights.items():
            if name in new:
                expected, actual = f"{form.dtype} {form.shape}", form_of(new[name])
                if expected != actual:
                    wrong.append(f"{name!r} is {actual}, and was {expected}")
        for names in model.overlapping:
            # What shares memory with another weight has its new values, and none of its own to keep.
            if any(name in new for name in names):
                wrong += [f"{name!r} is missing" for name in names if name not in new]
        if not wrong:
            for names in model.shared:
                held = [name for name in names if name in new]
                wrong += [
                    f"{name!r} has other values than {held[0]!r}, with which it was one weight"
                    for name in held[1:]
                    if not is_same(new[held[0]], new[name])
                ]
        if wrong:
            raise unfit(wrong)


class NewAttributes:
    """The attributes of a compiled graph after a refit.

    Args:
        recipe: How they follow from the model's weights.
        weights: The weights.

    Attributes:
        values: The values of those that are computed: all that follow from a new weight, and what was asked for.
    """

    def __init__(self, recipe: Recipe, weights: NewWeights) -> None:
        self._recipe = recipe
        self._weights = weights
        self._changed = recipe.part(weights.new)
        self.values = self._changed.run(weights.__getitem__, "the model")

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self.values:
            part = self._recipe.part((), [name])
            self.values |= part.run(self._weights.__getitem__, "the model")
        return self.values[name]

    @property
    def changed(self) -> Collection[str]:
        """The names of those that follow from a new weight."""
        return self._changed.results


def unfit(wrong: Sequence[str]) -> RefitError:
    """Returns the error for weights that do not fit, each with its reason."""
    listed = "".join(f"\n  {reason}" for reason in wrong)
    return RefitError(f"The new weights do not fit the model:{listed}\nNothing was changed.")
