"""The parts of PyTorch without a public name that plugins and symbolic sizes need.

Functions import the slow modules, which exporting has imported before a call is described.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef
from torch._library.simple_registry import singleton
from torch._ops import OpOverload

_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
_KEYS = {"cpu": "CPU", "cuda": "CUDA"}
"""The dispatch keys of the devices that engines run on."""


def op_of(target: Any) -> Any:
    """Returns the op that ``torch.library.custom_op`` made of a function; anything else as it is."""
    return target._opoverload if isinstance(target, CustomOpDef) else target


def is_certain(expression: Any, value: object) -> bool:
    """Returns whether an expression has a value for all sizes.

    PyTorch's minimum and maximum are quick, and keep what SymPy's own simplify: ``min(8 * s, 32 * s)`` is ``8 * s``.
    """
    import sympy
    from torch.utils._sympy.functions import Max, Min

    exact = expression.replace(Min, sympy.Min).replace(Max, sympy.Max)
    return exact in (sympy.true, sympy.false) and bool(exact) == bool(value)


@functools.cache
def _size_classes(names: tuple[str, ...]) -> dict[str, Any]:
    """Returns SymPy's and PyTorch's classes of the functions of sizes, by name, as far as this PyTorch has them."""
    import sympy
    from sympy.functions.elementary.piecewise import ExprCondPair
    from torch.utils._sympy import functions

    homes = (functions, sympy)
    found = {
        name: next((getattr(home, name) for home in homes if hasattr(home, name)), None)
        for name in names
    }
    return {name: each for name, each in found.items() if each} | {"ExprCondPair": ExprCondPair}


@functools.cache
def names_of_size_classes(names: tuple[str, ...]) -> Mapping[type, str]:
    """Returns the names of the functions of sizes, by SymPy's and PyTorch's classes.

    PyTorch has a minimum, a maximum and a remainder of its own, and reads them from files as SymPy's.
    """
    import sympy

    own = {each: name for name, each in _size_classes(names).items()}
    return own | {sympy.Max: "Max", sympy.Min: "Min", sympy.Mod: "PythonMod"}


def expression_of(data: Any, symbol: Callable[[Any], Any], names: tuple[str, ...]) -> Any:
    """Returns the SymPy expression of a size that ``torchtrt.plugins.sizes`` has checked.

    Args:
        data: The size.
        symbol: From what stands for a symbol to the symbol.
        names: The names of the functions of sizes.
    """
    import sympy

    match data:
        case int():
            return sympy.Integer(data)
        case ["symbol", place]:
            return symbol(place)
        case ["bool" | "float", value]:
            return sympy.sympify(value)
        case ["rational", numerator, denominator]:
            return sympy.Rational(numerator, denominator)
    name, *operands = data
    return _size_classes(names)[name](*(expression_of(each, symbol, names) for each in operands))


def unary(name: str) -> Callable[[Any], Any]:
    """Returns a function of ``math`` that accepts symbolic numbers, where PyTorch has one for them."""
    function: Callable[[Any], Any] = getattr(torch, f"_sym_{name}", None) or getattr(math, name)
    return function


def is_non_overlapping_and_dense(*sizes_and_strides: Any) -> int:
    """Returns whether a tensor of these sizes and strides, one after the other, is dense in memory: 1 or 0."""
    from torch.fx.experimental.symbolic_shapes import eval_is_non_overlapping_and_dense

    half = len(sizes_and_strides) // 2
    sizes, strides = sizes_and_strides[:half], sizes_and_strides[half:]
    return int(eval_is_non_overlapping_and_dense(list(sizes), list(strides)))


def has_fake_implementation(op: OpOverload) -> bool:
    """Returns whether PyTorch computes the sizes and dtypes of an op's results without its kernel."""
    definition = torch._library.custom_ops.OPDEFS.get(op.name())
    if definition is not None:
        return definition._abstract_fn is not None
    entry = singleton.find(op.name())
    if entry.fake_impl.kernel is not None:
        return True
    return any(
        torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)
        for key in ("Meta", _COMPOSITE[0])
    )


def has_kernel(op: OpOverload, device_type: str) -> bool:
    """Returns whether an op has an implementation for tensors on a kind of device."""
    key = _KEYS.get(device_type, device_type.upper())
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(op.name(), key))


class SymbolicCall:
    """A call of an op on tensors whose sizes are symbols of their own."""

    def __init__(self) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._symbols = ShapeEnv()
        self._mode = FakeTensorMode(shape_env=self._symbols)
        self._places: dict[Any, tuple[int, int]] = {}

    def tensor(
        self, place: int, sizes: Sequence[int], varies: Sequence[bool], like: torch.Tensor
    ) -> torch.Tensor:
        """Returns a contiguous fake tensor.

        Args:
            place: The number of the tensor among the inputs.
            sizes: The sizes of the example.
            varies: For each size whether it is a symbol.
            like: The tensor that has its dtype and device.
        """
        shape = [
            self._symbol(place, dim, size) if is_open else size
            for dim, (size, is_open) in enumerate(zip(sizes, varies, strict=True))
        ]
        with self._mode:
            return torch.empty(shape, dtype=like.dtype, device=like.device)

    def _symbol(self, place: int, dim: int, size: int) -> Any:
        """Returns a symbolic size. An example of 0 or 1 would fix it, so that 2 stands in its place."""
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        example = max(size, 2)
        source = ConstantSource(f"size_{place}_{dim}")
        symbol = self._symbols.create_symbol(
            example, source=source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None
        )
        self._places[symbol] = (place, dim)
        return self._symbols.create_symintnode(symbol, hint=example, source=source)

    def results(self, call: Callable[[], Any]) -> tuple[torch.Tensor, ...]:
        """Returns what a call of the op returns: fake tensors."""
        with self._mode:
            result = call()
        return tuple(result) if isinstance(result, (list, tuple)) else (result,)

    def expression(self, size: Any) -> Any:
        """Returns a size of a result as an expression of the symbols."""
        return size if isinstance(size, int) else self._symbols.replace(size.node.expr)

    def place_of(self, symbol: Any) -> tuple[int, int] | None:
        """Returns the input and the dimension that a symbol is the size of."""
        return self._places.get(symbol)


def example_size(size: int | torch.SymInt) -> int | None:
    """Returns a size of the example inputs; None if the size depends on data."""
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else None
