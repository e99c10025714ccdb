"""Copies of a model that are exported in its place, and checks of what a program cannot repeat.

Exporting swaps a model's tensors for fake ones while it runs, which calls in other threads would see. The copy has the
model's tensors, and modules and attributes of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import OrderedDict, defaultdict, deque
from types import MethodType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchtrt.errors import UnsupportedProgramError, kind_of
from torchtrt_follow.libraries import only_collects
from torchtrt_follow.scales import replace_scales
from torchtrt_follow.state import Change, ModelState

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CONTAINERS = (tuple, list, dict, OrderedDict, defaultdict, deque)


class ImpureForwardError(UnsupportedProgramError):
    """A call of a model changes the model's attributes."""


def check_traceable(model: torch.nn.Module) -> None:
    """Checks that calling a model runs the code of its modules and nothing else.

    Raises:
        UnsupportedProgramError: A module inside has hooks, or a ``forward`` that was put over its own.
    """
    for path, module in model.named_modules():
        where = f"Its module {path!r}" if path else "It"
        forward = vars(module).get("forward")
        if forward is not None and getattr(forward, "__self__", None) is not module:
            raise UnsupportedProgramError(
                f"{where} has a forward that was put over the one of its class, as libraries do to offload or cache, "
                "and a program does not repeat what that does besides. Remove it to compile."
            )
        if module is model:  # PyTorch runs these hooks around the program
            continue
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        own = [each for each in hooks if not _is_pure(each)]
        if own:
            raise UnsupportedProgramError(
                f"{where} has the forward hook {own[0]!r}, and a program does not repeat what Python code does besides "
                "its tensors. Remove the hook to compile."
            )


def _is_pure(hook: Any) -> bool:
    """Returns whether a hook does nothing besides: it computes a weight, or collects what the call returns."""
    place = getattr(hook, "__module__", None) or type(hook).__module__
    return place.startswith("torch.nn.utils") or only_collects(hook)


def traced_copy(model: torch.nn.Module, state: ModelState, with_scales: bool) -> torch.nn.Module:
    """Returns a copy of a model that can be exported while others use the model.

    Args:
        model: The model.
        state: Its state.
        with_scales: Whether scales of adapters become buffers.

    Raises:
        UnsupportedProgramError: An attribute cannot be copied.
    """
    tensors = [*state.weights.values(), *(mark.tensor for mark in state.unnamed)]
    try:
        copied = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    except Exception as error:
        raise UnsupportedProgramError(
            f"It cannot be copied, which exporting it needs: {type(error).__name__}: {error}."
        ) from error
    for name in _HOOKS:
        vars(copied)[name] = OrderedDict()
    if with_scales:
        replace_scales(copied)
    _watch_forward(copied)
    return copied


def _watch_forward(model: torch.nn.Module) -> None:
    """Lets a model's ``forward`` raise an ``UnsupportedProgramError`` where it does what a program does not repeat."""
    method = vars(model).get("forward") or MethodType(type(model).forward, model)

    def forward(*args: Any, **kwargs: Any) -> Any:
        """Calls the model's own, and compares its state before and after."""
        state = ModelState(model)
        before = pytree.tree_flatten((args, kwargs))
        result = method(*args, **kwargs)
        change, path = state.compare()
        if change is Change.STRUCTURE:
            raise ImpureForwardError(
                f"Its forward changes {path!r}, which a program does not repeat."
            )
        _check_unchanged(before, pytree.tree_flatten((args, kwargs)))
        _check_containers(result)
        return result

    forward.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    model.forward = forward


def _check_unchanged(before: Any, after: Any) -> None:
    (old, old_tree), (new, new_tree) = before, after
    if old_tree != new_tree or any(one is not other for one, other in zip(old, new, strict=True)):
        raise UnsupportedProgramError(
            "Its forward puts other values into a container among its arguments, such as a cache of keys and values, "
            "which a program does not repeat. For text generation use "
            "torchtrt_converters_transformers.compile_for_generation."
        )


def _check_containers(value: Any) -> None:
    """Checks that a result is in containers that hold nothing besides their elements."""
    if value is None or isinstance(value, torch.Tensor | str | int | float | complex):
        return
    is_known = (
        type(value) in _CONTAINERS or hasattr(value, "_fields") or dataclasses.is_dataclass(value)
    )
    if not is_known and not isinstance(value, OrderedDict):
        leaves, tree = pytree.tree_flatten(value)
        if leaves and tree != pytree.tree_structure(0):
            raise UnsupportedProgramError(
                f"It returns {kind_of(value)}, which is more than its tensors. Call it so that it returns none "
                "(use_cache=False)."
            )
        return
    if dataclasses.is_dataclass(value) and not isinstance(value, dict):
        parts: Any = vars(value).values()
    else:
        parts = value.values() if isinstance(value, dict) else value
    for each in parts:
        _check_containers(each)
