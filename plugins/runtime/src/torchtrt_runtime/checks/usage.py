"""Checks that a compiled model is used as what it is: a function for inference, with the weights that it was given."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import get_autocast_dtype, is_autocast_enabled
from torch.autograd import forward_ad

from torchtrt.errors import EngineError, InputError
from torchtrt.graphs.memory import storage_of
from torchtrt_runtime.torch_internals import (
    is_any_autocast_enabled,
    is_fake,
    is_tracing,
    peek_interpreter_stack,
)

_TRAIN = "torch.compile(model, backend='torchtrt') trains; for inference use torch.no_grad() or detach()."


# Plain tuples: each call unpacks all of them, which takes longer for tuples with names.
_Weight = tuple[str, str, "weakref.ref[torch.Tensor]", int]
"""A weight to watch: its name in the model and in its module, a reference to it, and its version at that time.

The version is -1 for a weight that calls write to.
"""
_Holder = tuple[Callable[[], torch.nn.Module | None], str, list[_Weight]]
"""Weights that a module holds: a reference to the module, its attribute that has them by name, and the weights.

Those of no module have a reference that returns None.
"""


def _watched(
    weights: Mapping[str, torch.Tensor], model: object, written: Collection[str]
) -> list[_Holder]:
    """Returns the weights to watch, by the modules of ``model`` that hold them.

    The references are weak: who drops the model need not keep its weights for the engines' sake.
    """
    of_no_module: list[_Weight] = []
    holders: list[_Holder] = [(lambda: None, "", of_no_module)]
    held_by_id: dict[int, tuple[list[_Weight], str]] = {}
    for module in model.modules() if isinstance(model, torch.nn.Module) else ():
        for kind in ("__dict__", "_buffers", "_parameters"):
            held: list[_Weight] = []
            holders.append((weakref.ref(module), kind, held))
            for leaf, value in getattr(module, kind).items():
                if isinstance(value, torch.Tensor):
                    held_by_id[id(value)] = (held, leaf)
    for name, weight in weights.items():
        if not weight.is_inference():
            held, leaf = held_by_id.get(id(weight), (of_no_module, ""))
            version = -1 if name in written else weight._version
            held.append((name, leaf, weakref.ref(weight), version))
    return [(module, kind, held) for module, kind, held in holders if held]


class UsageChecks:
    """The state that must be unchanged since a model was compiled.

    Args:
        weights: The model's weights that are constants of the engines, by name.
        trains: Whether eager PyTorch computes gradients even without these.
        autocast: The dtype that autocast cast to, on the CPU and on CUDA, None where it was off; as now if omitted.
        model: Whose weights they are.
        written: The names of those that calls write to: the model may not have others in their place.

    Attributes:
        was_autocast: Whether the model was compiled inside autocast.
    """

    def __init__(
        self,
        weights: Mapping[str, torch.Tensor] = MappingProxyType({}),
        trains: bool = False,
        autocast: tuple[torch.dtype | None, torch.dtype | None] | None = None,
        model: object = None,
        written: Collection[str] = (),
    ) -> None:
        self._watched = _watched(weights, model, written)
        self.trains = trains or any(weight.requires_grad for weight in weights.values())
        self.autocast = autocast_dtypes() if autocast is None else autocast
        self.was_autocast = any(self.autocast)

    def __deepcopy__(self, memo: Any) -> UsageChecks:
        return self

    def __getstate__(self) -> dict[str, Any]:
        self.check_weights()
        # A process that loads this has another model's weights, or none.
        return {**self.__dict__, "_watched": []}

    def without_weights(self) -> UsageChecks:
        """Returns checks that watch no weights."""
        return UsageChecks({}, self.trains, self.autocast)

    def unchanged(self) -> dict[str, torch.Tensor]:
        """Returns the weights that are still what they were, by name."""
        unchanged = {}
        for _, _, weights in self._watched:
            for name, _, reference, version in weights:
                weight = reference()
                if weight is not None and weight._version == version:
                    unchanged[name] = weight
        return unchanged

    def check_ambient_modes(self) -> None:
        """Raises an ``EngineError`` where autocast is another than it was, or the call is being traced."""
        if (self.was_autocast or is_any_autocast_enabled()) and autocast_dtypes() != self.autocast:
            raise EngineError(
                "The model was compiled inside autocast and is called outside or inside another, or the other way "
                "round: casts are compiled in. Compile and call it alike."
            )
        if is_tracing():
            raise EngineError("torch.jit.trace sees no engines. Trace the model, and compile that.")
        if forward_ad._current_level >= 0:
            raise EngineError(f"Engines compute no gradients, in forward mode neither. {_TRAIN}")
        if peek_interpreter_stack() is not None:
            raise EngineError(
                "torch.vmap and torch.func see no engines. Give them the original model."
            )

    def check_weights(self) -> None:
        """Raises an ``EngineError`` where a weight has changed, or the model has another in its place."""
        for module_reference, kind, weights in self._watched:
            module = module_reference()
            held = getattr(module, kind, None)
            for name, leaf, reference, version in weights:
                weight = reference()
                # Of what is scripted, PyTorch's mapping has no get.
                is_other = held is not None and (leaf not in held or held[leaf] is not weight)
                if is_other:  # not if it is of the other kind now, or tracing has its own there
                    now = getattr(module, leaf, None)
                    is_other = now is not weight and not is_fake(now)
                if is_other or (weight is not None and weight._version != version >= 0):
                    raise EngineError(
                        f"The model's weight {name!r} has changed since the model was compiled, and engines hold the "
                        "old values. Compile again, or torchtrt.refit_module_weights (with immutable_weights=False)."
                    )

    def without_gradients(self, leaves: Sequence[Any], outputs: Sequence[Any]) -> Sequence[Any]:
        """Returns results whose ``backward`` raises an error, where eager's would compute gradients.

        Raises:
            InputError: A result is a view of an input that requires grad.
        """
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        sources = [leaf for leaf in tensors if leaf.requires_grad]
        wanting = set(map(storage_of, sources))
        if not (self.trains or wanting):
            return outputs
        memories = {
            index: storage_of(value)
            for index, value in enumerate(outputs)
            if isinstance(value, torch.Tensor) and value.is_floating_point()
        }
        if not wanting.isdisjoint(memories.values()):
            message = f"A result is a view of an input that requires grad. Engines compute no gradients. {_TRAIN}"
            raise InputError(message)
        input_memories = set(map(storage_of, tensors))  # the caller's, as in eager
        indices = [index for index, memory in memories.items() if memory not in input_memories]
        # Of the inputs: code that computes their gradients alone must come here as well.
        sources = sources or [torch.empty(0, requires_grad=True)]
        tracked = _Untrainable.apply(  # type: ignore[no-untyped-call]
            len(sources), *sources, *(_no_view(outputs[index]) for index in indices)
        )
        tracked_by_index = dict(zip(indices, tracked, strict=True))
        return [tracked_by_index.get(index, value) for index, value in enumerate(outputs)]


def autocast_dtypes() -> tuple[torch.dtype | None, torch.dtype | None]:
    """Returns the dtype that autocast casts to, on the CPU and on CUDA; None where it is off."""
    cpu = get_autocast_dtype("cpu") if is_autocast_enabled("cpu") else None
    return cpu, get_autocast_dtype("cuda") if is_autocast_enabled("cuda") else None


class _Untrainable(torch.autograd.Function):
    """Passes tensors on; there is no way back."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.mark_dirty(*tensors[count:])
        return tensors[count:]

    @staticmethod
    def backward(*_: Any) -> Any:
        raise EngineError(f"Engines compute no gradients. {_TRAIN}")


def _no_view(value: torch.Tensor) -> torch.Tensor:
    """Returns a tensor over the same memory that autograd takes for no view: one made without it gets no past."""
    value = value.resolve_neg()  # memory does not contain the sign
    if not value._is_view():
        return value
    return value.new_empty(0).set_(value)  # type: ignore[call-overload,no-any-return]
