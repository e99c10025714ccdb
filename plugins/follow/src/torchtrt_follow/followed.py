"""``torchtrt.follow``: a model whose calls run on engines."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from torchtrt.errors import InputError, kind_of
from torchtrt.settings import check_setting_names
from torchtrt_follow.follower import Follower
from torchtrt_follow.libraries import weight_loaders

_Model = TypeVar("_Model", bound=torch.nn.Module)
_SLOT = "_torchtrt_follower"


def follow(
    model: _Model,
    *,
    dynamic_shapes: Mapping[str, Any] | None = None,
    max_programs: int = 8,
    fallback: bool = True,
    **settings: Any,
) -> _Model:
    """Returns a model whose calls run on TensorRT engines, with the weights and the structure that the model has.

    The first call compiles; later ones use the same engines. A call with other sizes makes them vary. If weights have
    changed since the last call, the engines get them by a refit.

    Args:
        model: A module. It is not changed, and shares all of its attributes with the result.
        dynamic_shapes: For parameters of ``forward``, the dynamic sizes: a ``torchtrt.Input``, or a range for each
            dimension. It is ``(min, max)``, ``(min, opt, max)`` or a ``torch.export.Dim``. Containers nest likewise.
        max_programs: The maximum number of programs at a time. Arguments that are no tensors, their structure, and the
            dtypes, devices and ranks of tensors each need one of their own.
        fallback: Whether PyTorch runs calls that cannot be compiled, with a ``FollowWarning``. Otherwise they raise,
            and so do calls without any engine.
        **settings: Settings of ``torchtrt.compile``; ``immutable_weights`` is False by default.

    Returns:
        A module of a subclass of the model's class. Its attribute ``torchtrt`` has ``programs``, ``model``,
        ``changing()`` and ``refresh()``.

    Raises:
        InputError: ``model`` is no module, or ``dynamic_shapes`` does not fit it.
        SettingsError: A setting is unknown or unusable.
    """
    argument: Any = model
    if not isinstance(argument, torch.nn.Module) or isinstance(argument, torch.jit.ScriptModule):
        raise InputError(
            f"follow() takes a torch.nn.Module with Python code, not {kind_of(argument)}."
        )
    if isinstance(argument, LazyModuleMixin):
        raise InputError(
            f"The weights of {type(argument).__name__} have no shapes yet, and its first call makes another class of "
            "it. Call the model once, and follow it then."
        )
    if dynamic_shapes is not None and not isinstance(dynamic_shapes, Mapping):
        raise InputError(
            "dynamic_shapes is a dictionary from parameters of forward to dynamic sizes, not "
            f"{kind_of(dynamic_shapes)}."
        )
    check_setting_names(settings, follow)
    own: Any = argument.torchtrt.model if isinstance(argument, _Followed) else argument
    followed: Any = object.__new__(_followed_class(type(own)))
    object.__setattr__(followed, "__dict__", own.__dict__)
    options = {
        "dynamic_shapes": dict(dynamic_shapes or {}),
        "max_programs": max_programs,
        "fallback": fallback,
        **settings,
    }
    object.__setattr__(followed, _SLOT, Follower(own, options))
    return followed  # type: ignore[no-any-return]


class _Followed:
    """The members in which a followed model differs from one of its class."""

    __slots__ = (_SLOT,)

    @property
    def torchtrt(self) -> Follower:
        """The programs."""
        return object.__getattribute__(self, _SLOT)  # type: ignore[no-any-return]

    @property
    def forward(self) -> Any:
        """Runs engines. A library that replaces it does not change the model's own."""
        return self.torchtrt.forward

    @forward.setter
    def forward(self, function: Any) -> None:
        self.torchtrt.forward = function

    @forward.deleter
    def forward(self) -> None:
        self.torchtrt.forward = self.torchtrt.own_forward

    def __copy__(self) -> Any:
        return follow(copy.copy(self.torchtrt.model), **self.torchtrt.options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = memo[id(self)] = object.__new__(type(self))
        # Unfinished, if a part of the model refers to what follows it.
        own = copy.deepcopy(self.torchtrt.model, memo)
        object.__setattr__(copied, "__dict__", vars(own))
        again: Any = follow(own, **copy.deepcopy(self.torchtrt.options, memo))
        object.__setattr__(copied, _SLOT, again.torchtrt)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return functools.partial(follow, **self.torchtrt.options), (self.torchtrt.model,)


def _followed_class(model_class: type[torch.nn.Module]) -> type:
    """Returns the subclass of a model's class that runs engines. It has the name of the class."""
    members = {
        "__doc__": model_class.__doc__,
        "__module__": model_class.__module__,
        "__qualname__": model_class.__qualname__,
        "__slots__": (),
        "__new__": _new_of(model_class),
        "load_state_dict": _changing(model_class.load_state_dict, is_counted=True),
        **{
            name: _changing(getattr(model_class, name), is_counted=False)
            for name in weight_loaders()
            if hasattr(model_class, name)
        },
    }
    bases = (_Followed, model_class)
    return types.new_class(model_class.__name__, bases, {}, lambda space: space.update(members))


def _new_of(model_class: type[torch.nn.Module]) -> Any:
    def new(_: type, *args: Any, **kwargs: Any) -> torch.nn.Module:
        """Returns a model of the class itself: methods make others, as a slice of a ``Sequential``."""
        return model_class(*args, **kwargs)

    return new


def _changing(method: Any, is_counted: bool) -> Any:
    """Returns a method that loads weights. Engines get all weights after it if PyTorch does not count its writes."""

    @functools.wraps(method)
    def load(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.torchtrt.changing():
            try:
                return method(self, *args, **kwargs)
            finally:
                if not is_counted:
                    self.torchtrt.refresh(weights_only=True)

    return load
