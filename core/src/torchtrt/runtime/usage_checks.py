"""Checks that a compiled model is used as what it is: a function for inference, with the weights that it was given."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from torchtrt.errors import EngineError, InputError

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_TRAIN = "torch.compile(model, backend='torchtrt') trains; for inference use torch.no_grad() or detach()."


class UsageChecks:
    """What must be as it was when a model was compiled.

    Args:
        trains: Whether eager PyTorch computes gradients for the model's weights.
        autocast: Whether autocast was on, on the CPU and on CUDA; as it is now if omitted.
    """

    def __init__(self, trains: bool = False, autocast: tuple[bool, bool] | None = None) -> None:
        self.trains = trains
        self.autocast = _autocast() if autocast is None else autocast
        self._watched: list[tuple[Any, int, str]] = []

    @classmethod
    def of(cls, weights: Mapping[str, torch.Tensor]) -> UsageChecks:
        """Returns the checks for a model whose weights, by name, are constants of the engines."""
        checks = cls(any(weight.requires_grad for weight in weights.values()))
        checks.watch(weights)
        return checks

    def watch(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Makes these the weights that the engines hold, and that must not change any more."""
        # Weak: who drops the model need not keep its weights for the engines' sake.
        self._watched = [
            (weakref.ref(weight), weight._version, name)
            for name, weight in weights.items()
            if not weight.is_inference()
        ]

    def __deepcopy__(self, memo: Any) -> UsageChecks:
        copied = UsageChecks(self.trains, self.autocast)
        copied._watched = self._watched
        return copied

    def __getstate__(self) -> dict[str, Any]:
        # Whoever loads this has another model's weights, or none.
        return {**self.__dict__, "_watched": []}

    def check(self, leaves: Iterable[Any]) -> None:
        """Checks a call, before anything runs.

        Raises:
            InputError: An input is no plain tensor.
            EngineError: A weight has changed, autocast is another, or the call is being traced.
        """
        for leaf in leaves:
            is_plain = type(leaf) in _PLAIN
            if isinstance(leaf, torch.Tensor) and not (is_plain and leaf.layout is torch.strided):
                kind = leaf.layout if is_plain else type(leaf).__name__
                message = f"Engines run on plain strided tensors, and an input is a {kind}."
                raise InputError(message)
        for reference, version, name in self._watched:
            weight = reference()
            if weight is not None and weight._version != version:
                message = (
                    f"The model's weight {name!r} has changed since the model was compiled, and engines hold the old "
                    "values. Compile again, or torchtrt.refit_module_weights(compiled, model)."
                )
                raise EngineError(message)
        if _autocast() != self.autocast:
            message = (
                "The model was compiled inside autocast and is called outside, or the other way round: casts are "
                "compiled in. Compile and call it alike."
            )
            raise EngineError(message)
        if torch._C._is_tracing():
            message = "torch.jit.trace cannot see into engines. Trace the model, and compile what comes of it."
            raise EngineError(message)

    def without_gradients(self, leaves: Sequence[Any], outputs: Sequence[Any]) -> Sequence[Any]:
        """Returns results whose ``backward`` says that there is none, where eager's would compute gradients.

        Raises:
            InputError: A result is a view of an input that requires grad.
        """
        wanting = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if not (self.trains or wanting):
            return outputs
        memory = {leaf.untyped_storage().data_ptr() for leaf in wanting}
        places = [
            place
            for place, value in enumerate(outputs)
            if isinstance(value, torch.Tensor) and value.is_floating_point()
        ]
        if any(outputs[place].untyped_storage().data_ptr() in memory for place in places):
            message = f"A result is a view of an input that requires grad. Engines compute no gradients. {_TRAIN}"
            raise InputError(message)
        tracked = _Untrainable.apply(  # type: ignore[no-untyped-call]
            torch.empty(0, requires_grad=True), *(outputs[place] for place in places)
        )
        found = dict(zip(places, tracked, strict=True))
        return [found.get(place, value) for place, value in enumerate(outputs)]


class _Untrainable(torch.autograd.Function):
    """Passes tensors on; there is no way back."""

    @staticmethod
    def forward(ctx: Any, _: torch.Tensor, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.mark_dirty(*values)
        return values

    @staticmethod
    def backward(*_: Any) -> Any:
        raise EngineError(f"Engines compute no gradients. {_TRAIN}")


def _autocast() -> tuple[bool, bool]:
    return torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
