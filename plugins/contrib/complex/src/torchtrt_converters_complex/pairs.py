"""Complex values as pairs of real ones, and the table of rules that compute with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from torchtrt_converters_complex.torch_internals import pytree

PARTS = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""The dtype of the parts of each complex dtype."""
COMPLEX = {part: whole for whole, part in PARTS.items()}


@dataclass(frozen=True)
class Pair:
    """A complex value: its real and its imaginary part.

    Attributes:
        real: A tensor, a number, or a node that makes a tensor.
        imag: Likewise.
    """

    real: Any
    imag: Any

    def map(self, function: Callable[[Any], Any]) -> Pair:
        """Returns the pair of what a function makes of each part."""
        return Pair(function(self.real), function(self.imag))

    @property
    def shape(self) -> torch.Size:
        """The shape of either part, both tensors."""
        return self.real.shape  # type: ignore[no-any-return]


pytree.register_pytree_node(
    Pair, lambda pair: ([pair.real, pair.imag], None), lambda parts, _: Pair(*parts)
)


def is_complex(value: Any) -> bool:
    """Returns whether a value is a pair or a complex number."""
    return isinstance(value, (Pair, complex))


def as_pair(value: Any) -> Pair:
    """Returns a pair, a complex number, a real tensor or a real number as a pair."""
    if isinstance(value, Pair):
        return value
    if isinstance(value, complex):
        return Pair(value.real, value.imag)
    return Pair(value, torch.zeros_like(value) if isinstance(value, Tensor) else 0.0)


@dataclass(frozen=True)
class Rule:
    """The meaning of an op with pairs for complex operands and results.

    Attributes:
        function: The function: it is called as the op is, with pairs in the place of complex tensors.
        promotes: Whether it computes: its operands are then floating-point tensors of one dtype, float32 or float64.
    """

    function: Callable[..., Any]
    promotes: bool


RULES: dict[Any, Rule] = {}
"""The rule of each op."""


Function = TypeVar("Function", bound=Callable[..., Any])


def rule(*targets: Any, promotes: bool = True) -> Callable[[Function], Function]:
    """Returns a decorator that makes a function the rule of ops.

    Args:
        *targets: The ops.
        promotes: Whether the ops compute with numbers, and so promote dtypes; other ops only move them.
    """

    def register(function: Function) -> Function:
        RULES.update(dict.fromkeys(targets, Rule(function, promotes)))
        return function

    return register


def apply(
    rule: Rule, args: Sequence[Any], kwargs: dict[str, Any], compute: torch.dtype, wanted: Any
) -> Any:
    """Returns what a rule makes of its operands, in the dtypes and shapes of PyTorch's result.

    Args:
        rule: The rule.
        args: The op's arguments, pairs in the place of complex tensors.
        kwargs: Its keyword arguments, likewise.
        compute: The dtype to compute in, if the rule computes.
        wanted: PyTorch's result: a fake tensor, or several.
    """
    if rule.promotes:
        args, kwargs = pytree.tree_map_only(Tensor, lambda x: x.to(compute), (args, kwargs))
    result = rule.function(*args, **kwargs)
    if isinstance(wanted, (list, tuple)):
        return [_as(output, like) for output, like in zip(result, wanted, strict=True)]
    return _as(result, wanted)


def _as(result: Any, wanted: Any) -> Any:
    """Returns one result in the dtype and shape that PyTorch gives it."""
    if not isinstance(wanted, Tensor):
        return result
    if not wanted.dtype.is_complex:
        # A cast to a real dtype leaves the imaginary part out.
        return (result.real if isinstance(result, Pair) else result).to(wanted.dtype)
    dtype, pair = PARTS[wanted.dtype], as_pair(result)
    whole = pair.real if isinstance(pair.real, Tensor) else pair.imag
    return pair.map(lambda part: spread(part, whole).to(dtype))


def spread(part: Any, whole: Tensor) -> Tensor:
    """Returns a part in the shape of another tensor: a number, or a tensor that broadcasts to it."""
    if not isinstance(part, Tensor):
        return torch.full_like(whole, part)
    return part if _has_shape_of(part, whole) else part.expand(whole.shape)


def _has_shape_of(part: Tensor, whole: Tensor) -> bool:
    """Returns whether two shapes are known to be equal, without an assumption about dynamic sizes."""
    sizes = [list(map(_expression, tensor.shape)) for tensor in (part, whole)]
    return sizes[0] == sizes[1]


def _expression(size: Any) -> Any:
    return size if isinstance(size, int) else size.node.expr
