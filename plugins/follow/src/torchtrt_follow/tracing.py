"""Copies of a model that are exported in its place, and checks of what a program cannot repeat.

Exporting swaps a model's tensors for fake ones while it runs, which calls in other threads would see. The copy has the
model's tensors, and modules and attributes of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import OrderedDict, deque
from types import MethodType
from typing import Any

import torch

from torchtrt.errors import UnsupportedProgramError, kind_of
from torchtrt.torch_internals import pytree
from torchtrt_follow.libraries import only_collects
from torchtrt_follow.scales import replace_scales
from torchtrt_follow.state import ModelState

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


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
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        own = [hook for hook in hooks if not _is_pure(hook)]
        if own and module is not model:  # PyTorch runs those of the model around the program
            raise UnsupportedProgramError(
                f"{where} has the forward hook {own[0]!r}, and a program does not repeat what Python code does besides "
                "its tensors. Remove the hook to compile."
            )


def _is_pure(hook: Any) -> bool:
    """Returns whether a hook does nothing besides: it computes a weight, or collects what the call returns."""
    code = getattr(hook, "__module__", None) or type(hook).__module__
    return code.startswith("torch.nn.utils") or only_collects(hook)


def traced_copy(model: torch.nn.Module, state: ModelState) -> torch.nn.Module:
    """Returns a copy of a model that can be exported while others use the model.

    Args:
        model: The model.
        state: Its state.

    Raises:
        UnsupportedProgramError: An attribute cannot be copied.
    """
    tensors = [*state.weights.values(), *state.unnamed.values()]
    try:
        copied = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    except Exception as error:
        raise UnsupportedProgramError(
            f"It cannot be copied, which exporting it needs: {type(error).__name__}: {error}."
        ) from error
    for name in _HOOKS:
        vars(copied)[name] = OrderedDict()
    replace_scales(copied)
    _check_calls(copied)
    return copied


def _check_calls(model: torch.nn.Module) -> None:
    """Lets a model's ``forward`` raise an ``UnsupportedProgramError`` where it does what a program does not repeat."""
    method = vars(model).get("forward") or MethodType(type(model).forward, model)

    def forward(*args: Any, **kwargs: Any) -> Any:
        """Calls the model's own, and compares its state before and after."""
        state = ModelState(model)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        result = method(*args, **kwargs)
        if path := ModelState(model).difference(state):
            raise ImpureForwardError(
                f"Its forward changes {path!r}, which a program does not repeat."
            )
        new_leaves, new_tree = pytree.tree_flatten((args, kwargs))
        if tree != new_tree or any(
            old is not new for old, new in zip(leaves, new_leaves, strict=True)
        ):
            raise UnsupportedProgramError(
                "Its forward puts other values into a container among its arguments, such as a cache of keys and "
                "values, which a program does not repeat. For text generation use "
                "torchtrt_converters_transformers.compile_for_generation."
            )
        _check_result(result)
        return result

    forward.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    model.forward = forward


def _check_result(value: Any) -> None:
    """Checks that a result is in containers that hold nothing besides their elements."""
    if isinstance(value, (tuple, list, deque)):
        parts = list(value)
    elif isinstance(value, dict):
        parts = list(value.values())
    elif dataclasses.is_dataclass(value):
        parts = list(vars(value).values())
    elif pytree.tree_structure(value) == pytree.tree_structure(0) or not pytree.tree_leaves(value):
        return
    else:
        raise UnsupportedProgramError(
            f"It returns {kind_of(value)}, which is more than its tensors. Call it so that it returns none "
            "(use_cache=False)."
        )
    for part in parts:
        _check_result(part)
