"""``torchtrt.follow``: a model whose calls run on engines."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Mapping
from typing import Any, TypeVar

import torch

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
        fallback: Whether PyTorch runs calls that cannot be compiled, with a ``FollowWarning``. Otherwise they raise.
        **settings: Settings of ``torchtrt.compile``; ``immutable_weights`` is False by default.

    Returns:
        A module of a subclass of the model's class. Its attribute ``torchtrt`` has ``programs``, ``model``,
        ``changing()`` and ``refresh()``.

    Raises:
        InputError: ``model`` is no module, or ``dynamic_shapes`` does not fit it.
        SettingsError: A setting is unknown or unusable.
    """
    given: Any = model
    if not isinstance(given, torch.nn.Module) or isinstance(given, torch.jit.ScriptModule):
        raise InputError(
            f"follow() takes a torch.nn.Module with Python code, not {kind_of(given)}."
        )
    check_setting_names(settings, follow)
    own: Any = given.torchtrt.model if is_followed(given) else given  # type: ignore[union-attr]
    follower = Follower(own, settings, dict(dynamic_shapes or {}), max_programs, fallback)
    followed: Any = object.__new__(_followed_class(type(own)))
    object.__setattr__(followed, "__dict__", own.__dict__)
    object.__setattr__(followed, _SLOT, follower)
    return followed  # type: ignore[no-any-return]


def is_followed(model: object) -> bool:
    """Returns whether ``follow`` made a model."""
    return hasattr(type(model), _SLOT)


def _followed_class(model_class: type) -> type:
    """Returns the subclass of a model's class that runs engines. It has the name of the class."""

    def fill(namespace: dict[str, Any]) -> None:
        namespace.update(_members(model_class))

    return types.new_class(model_class.__name__, (model_class,), {}, fill)


def _members(model_class: Any) -> dict[str, Any]:
    """Returns the members of the subclass that runs engines."""

    @functools.wraps(model_class.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        follower = self.torchtrt
        if torch.compiler.is_dynamo_compiling():
            return torch.compiler.disable(follower)(args, kwargs)
        return follower(args, kwargs)

    def read_forward(self: Any) -> Any:
        override = self.torchtrt.override
        return types.MethodType(forward, self) if override is None else override

    def replace_forward(self: Any, value: Any) -> None:
        self.torchtrt.override = value

    def restore_forward(self: Any) -> None:
        self.torchtrt.override = None

    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.torchtrt.changing():
            return model_class.load_state_dict(self, *args, **kwargs)

    return {
        "__doc__": model_class.__doc__,
        "__module__": model_class.__module__,
        "__qualname__": model_class.__qualname__,
        "__slots__": (_SLOT,),
        "torchtrt": property(lambda self: object.__getattribute__(self, _SLOT)),
        "forward": property(read_forward, replace_forward, restore_forward),
        "load_state_dict": functools.wraps(model_class.load_state_dict)(load_state_dict),
        **{
            name: _refreshing(model_class, name)
            for name in weight_loaders()
            if hasattr(model_class, name)
        },
        "__copy__": lambda self: _again(copy.copy(self.torchtrt.model), _options(self)),
        "__deepcopy__": _deep_copied,
        "__reduce_ex__": lambda self, _: (_again, (self.torchtrt.model, _options(self))),
    }


def _refreshing(model_class: Any, name: str) -> Any:
    """Returns a method after which the engines get all weights."""
    method = getattr(model_class, name)

    @functools.wraps(method)
    def load(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.torchtrt.changing():
            try:
                return method(self, *args, **kwargs)
            finally:
                self.torchtrt.refresh()

    return load


def _options(followed: Any) -> dict[str, Any]:
    follower = followed.torchtrt
    return {**follower.options, **follower.settings}


def _again(model: torch.nn.Module, options: Mapping[str, Any]) -> torch.nn.Module:
    """Returns a copy, or what was pickled, followed as the original was. It compiles anew."""
    return follow(model, **options)


def _deep_copied(followed: Any, memo: dict[int, Any]) -> torch.nn.Module:
    model = followed.torchtrt.model
    copied = memo[id(followed)] = object.__new__(type(followed))
    own = copy.deepcopy(model, memo)  # unfinished, if a part of the model refers to what follows it
    object.__setattr__(copied, "__dict__", vars(own))
    options = copy.deepcopy(_options(followed), memo)
    object.__setattr__(copied, _SLOT, follow(own, **options).torchtrt)
    return copied  # type: ignore[no-any-return]
