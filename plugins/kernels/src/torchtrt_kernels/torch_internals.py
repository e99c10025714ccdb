"""The parts of PyTorch without a public name that kernels in engines need. They ran with PyTorch 2.11, 2.13 and 2.15.

Functions import the slow modules, which exporting has imported before a call is described.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef
from torch._library.simple_registry import singleton

from torchtrt.torch_internals import OpOverload, pytree

__all__ = [
    "OpOverload",
    "SymbolicCall",
    "example_size",
    "has_fake_implementation",
    "has_kernel",
    "op_of",
    "pytree",
]

_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
_KEYS = {"cpu": "CPU", "cuda": "CUDA"}
"""The dispatch keys of the devices that engines run on."""


def op_of(target: Any) -> Any:
    """Returns the op that ``torch.library.custom_op`` made of a function; anything else as it is."""
    return target._opoverload if isinstance(target, CustomOpDef) else target


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
    """A call of an op on tensors whose sizes are symbols of their own.

    Args:
        may_be_one: Whether a condition on a size of 1 is an assumption; without it, such a condition is false.
    """

    def __init__(self, *, may_be_one: bool = False) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._symbols = ShapeEnv()
        self._mode = FakeTensorMode(shape_env=self._symbols)
        self._input_dims: dict[Any, tuple[int, int]] = {}
        self._may_be_one = may_be_one

    def tensor(
        self, index: int, sizes: Sequence[int], varies: Sequence[bool], like: torch.Tensor
    ) -> torch.Tensor:
        """Returns a contiguous fake tensor.

        Args:
            index: The number of the tensor among the inputs.
            sizes: The sizes of the example.
            varies: For each size whether it is a symbol.
            like: The tensor that has its dtype and device.
        """
        shape = [
            self._symbol(index, dim, size) if is_open else size
            for dim, (size, is_open) in enumerate(zip(sizes, varies, strict=True))
        ]
        with self._mode:
            return torch.empty(shape, dtype=like.dtype, device=like.device)

    def _symbol(self, index: int, dim: int, size: int) -> Any:
        """Returns a symbolic size. An example of 0 or 1 would fix it, so that 2 stands in its place."""
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        example = max(size, 2)
        source = ConstantSource(f"size_{index}_{dim}")
        symbol = self._symbols.create_symbol(
            example,
            source=source,
            dynamic_dim=DimDynamic.DYNAMIC,
            constraint_dim=None,
            do_not_specialize_zero_one=self._may_be_one,
        )
        self._input_dims[symbol] = (index, dim)
        return self._symbols.create_symintnode(symbol, hint=example, source=source)

    def results(self, call: Callable[[], Any]) -> tuple[torch.Tensor, ...]:
        """Returns what a call of the op returns: fake tensors."""
        with self._mode:
            result = call()
        return tuple(result) if isinstance(result, (list, tuple)) else (result,)

    def assumptions(self) -> list[str]:
        """Returns the conditions on dynamic sizes by which the call took its way."""
        return [str(guard.expr) for guard in self._symbols.guards]

    def expression(self, size: Any) -> Any:
        """Returns a size of a result as an expression of the symbols."""
        return size if isinstance(size, int) else self._symbols.replace(size.node.expr)

    def place_of(self, symbol: Any) -> tuple[int, int] | None:
        """Returns the input and the dimension that a symbol is the size of."""
        return self._input_dims.get(symbol)


def example_size(size: int | torch.SymInt) -> int | None:
    """Returns a size of the example inputs; None if the size depends on data."""
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else None
