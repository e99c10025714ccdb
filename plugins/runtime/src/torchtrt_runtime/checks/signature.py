"""A call of a compiled model, arranged as the arguments were when it was compiled."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from torchtrt.errors import InputError
from torchtrt.torch_internals import pytree

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class CallSignature:
    """The parameters of a model's ``forward``, and which of them were given by place and which by name.

    Args:
        signature: That of the model's method.
        input_tree: How the inputs nest that the model was compiled with.
    """

    def __init__(self, signature: inspect.Signature, input_tree: pytree.TreeSpec) -> None:
        parameters = signature.parameters.values()
        self.signature = inspect.Signature(
            [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
        )
        args, kwargs = pytree.tree_unflatten(range(input_tree.num_leaves), input_tree)
        self.by_name = tuple(kwargs)
        self.with_examples = frozenset(self.signature.bind(*args, **kwargs).arguments)

    def arrange(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments by place and by name as they were when the model was compiled.

        Raises:
            InputError: The model takes no such arguments, or was compiled with the default of one that is given.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            message = f"{error}: the model takes {self.signature}."
            raise InputError(message[0].upper() + message[1:]) from None
        for name in bound.arguments.keys() - self.with_examples:
            _check_default(self.signature.parameters[name], bound.arguments[name])
            del bound.arguments[name]
        bound.apply_defaults()
        positional: list[Any] = []
        by_name: dict[str, Any] = {}
        for name, parameter in self.signature.parameters.items():
            value = bound.arguments[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional.extend(value)
            elif parameter.kind is parameter.VAR_KEYWORD:
                by_name.update(value)
            elif parameter.kind in _POSITIONAL and name not in self.by_name:
                if name in self.with_examples:
                    positional.append(value)
            elif name in self.by_name:
                by_name[name] = value
        return tuple(positional), by_name


def _check_default(parameter: inspect.Parameter, value: Any) -> None:
    """Checks that an argument without an example has the default of its parameter, which is compiled in.

    Raises:
        InputError: It has another value.
    """
    default = parameter.default
    if value is default or (
        type(value) is type(default) and not isinstance(value, torch.Tensor) and value == default
    ):
        return
    names = ", ".join(value) if parameter.kind is parameter.VAR_KEYWORD else parameter.name
    raise InputError(
        f"Argument {names!r} was not given when the model was compiled, so that its default "
        f"({parameter}) is compiled in. Compile with an example of it."
    )
