"""Copies of a model that are exported in its place, and checks of what a program cannot repeat.

Exporting swaps a model's tensors for fake ones while it runs, which calls in other threads would see. The copy has the
model's tensors, and modules and attributes of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import operator
from collections import OrderedDict, deque, namedtuple
from types import MethodType
from typing import Any

import torch

from torchtrt.errors import UnsupportedProgramError
from torchtrt.torch_internals import pytree
from torchtrt_follow.libraries import only_collects, scales_of
from torchtrt_follow.state import ModelState, scale_name

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class ImpureForwardError(UnsupportedProgramError):
    """A call of a model changes the model's attributes."""


def traced_copy(model: torch.nn.Module, state: ModelState) -> torch.nn.Module:
    """Returns a copy of a model that can be exported while others use the model.

    It has this state. Its ``forward`` raises an ``UnsupportedProgramError`` where it does what a program does not
    repeat.

    Raises:
        UnsupportedProgramError: A module inside has hooks, or a ``forward`` that was put over its own. Or an attribute
            cannot be copied, or a weight was made in inference mode.
    """
    _check_modules(model)
    tensors = [*state.weights.values(), *state.unnamed.values()]
    if any(tensor.is_inference() for tensor in tensors):
        raise UnsupportedProgramError(
            "Weights were made in torch.inference_mode(), and PyTorch does not count writes to them. Make them outside "
            "of it."
        )
    try:
        copied = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    except Exception as error:
        raise UnsupportedProgramError(
            f"It cannot be copied, which exporting it needs: {type(error).__name__}: {error}."
        ) from error
    for name in _HOOKS:
        vars(copied)[name] = OrderedDict()
    for module in list(copied.modules()):
        if scales := scales_of(module):
            vars(module)["scaling"] = _Scales(module, scales)
    copied.forward = _checking(copied)
    return copied


class _Scales(dict[str, Any]):
    """The scales of a layer's adapters, which become buffers: a program takes other scales by a refit.

    Args:
        module: The layer of the copy.
        scales: The scales as numbers.
    """

    def __init__(self, module: torch.nn.Module, scales: dict[str, Any]) -> None:
        super().__init__(scales)
        self._module = module
        self._assigned: dict[str, Any] = {}
        for adapter, value in scales.items():
            buffer = torch.tensor(float(value))
            module.register_buffer(scale_name(adapter), buffer, persistent=False)

    def __getitem__(self, adapter: str) -> Any:
        if adapter in self._assigned:
            return self._assigned[adapter]
        # Code may multiply the result in place.
        return getattr(self._module, scale_name(adapter)).clone()

    def __setitem__(self, adapter: str, value: Any) -> None:
        self._assigned[adapter] = value


def _check_modules(model: torch.nn.Module) -> None:
    """Checks that calling a model runs the code of its modules and nothing else."""
    for path, module in model.named_modules():
        where = f"Its module {path!r}" if path else "It"
        forward = vars(module).get("forward")
        if forward is not None and getattr(forward, "__self__", None) is not module:
            raise UnsupportedProgramError(
                f"{where} has a forward that was put over the one of its class, as libraries do to offload or cache, "
                "and a program does not repeat what that does besides. Remove it to compile."
            )
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        # Some do nothing besides: they compute a weight, or collect what the call returns.
        own = [hook for hook in hooks if not (_is_of_pytorch(hook) or only_collects(hook))]
        if own and module is not model:  # PyTorch runs those of the model around the program
            raise UnsupportedProgramError(
                f"{where} has the forward hook {own[0]!r}, and a program does not repeat what Python code does besides "
                "its tensors. Remove the hook to compile."
            )


def _is_of_pytorch(hook: Any) -> bool:
    """Returns whether a hook is one of those with which PyTorch computes a weight in each call."""
    code = getattr(hook, "__module__", None) or type(hook).__module__
    return code.startswith("torch.nn.utils")


def _computed_weights(model: torch.nn.Module) -> set[str]:
    """Returns the names of the weights that hooks of PyTorch compute: no call reads those of an earlier one."""
    return {
        f"{path}.{name}"
        for path, module in model.named_modules()
        for hook in filter(_is_of_pytorch, module._forward_pre_hooks.values())
        for name in filter(vars(module).__contains__, map(str, vars(hook).values()))
    }


def _checking(model: torch.nn.Module) -> Any:
    """Returns the ``forward`` of a model, with checks of what it does besides."""
    method = vars(model).get("forward") or MethodType(type(model).forward, model)

    def forward(*args: Any, **kwargs: Any) -> Any:
        """Calls the model's own, and compares its state before and after."""
        state = ModelState(model)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        result = method(*args, **kwargs)
        if path := ModelState(model).difference(state, _computed_weights(model)):
            raise ImpureForwardError(
                f"Its forward changes {path!r}, which a program does not repeat."
            )
        new_leaves, new_tree = pytree.tree_flatten((args, kwargs))
        if tree != new_tree or not all(map(operator.is_, leaves, new_leaves)):
            raise UnsupportedProgramError(
                "Its forward puts other values into a container among its arguments, such as a cache of keys and "
                "values, which a program does not repeat. For text generation use "
                "torchtrt_converters_transformers.compile_for_generation."
            )
        _check_result(pytree.tree_structure(result))
        return result

    forward.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    return forward


def _check_result(tree: pytree.TreeSpec) -> None:
    """Checks that a result is in containers that hold nothing besides their elements."""
    kind: Any = tree.type
    is_known = kind in (None, namedtuple) or dataclasses.is_dataclass(kind)
    if tree.num_leaves and not is_known and not issubclass(kind, (tuple, list, deque, dict)):
        raise UnsupportedProgramError(
            f"It returns a {kind.__name__}, which is more than its tensors. Call it so that it returns none "
            "(use_cache=False)."
        )
    for part in tree.children():
        _check_result(part)
