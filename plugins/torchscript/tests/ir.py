"""Small TorchScript graphs of one op, written from its name and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class T:
    """A tensor argument: uniform in ``[low, high]``, or given values.

    Attributes:
        shape: Sizes, separated by spaces.
        dtype: The dtype.
        low: The minimum.
        high: The maximum; it does occur for integers.
        values: The values themselves.
    """

    shape: str = ""
    dtype: torch.dtype = torch.float32
    low: float = -3.0
    high: float = 3.0
    values: Any = None

    def make(self, seed: int) -> torch.Tensor:
        """Returns the tensor."""
        if self.values is not None:
            return torch.tensor(self.values, dtype=self.dtype)
        sizes = [int(size) for size in self.shape.split()]
        generator = torch.Generator().manual_seed(seed)
        if self.dtype.is_floating_point:
            unit = torch.rand(sizes, generator=generator, dtype=self.dtype)
            return self.low + (self.high - self.low) * unit
        if self.dtype is torch.bool:
            return torch.randint(0, 2, sizes, generator=generator).bool()
        low, high = int(self.low), int(self.high) + 1
        return torch.randint(low, high, sizes, generator=generator, dtype=self.dtype)


class Typed:
    """A constant with a type that its value does not have: ``Typed("Device", torch.device("cpu"))``."""

    def __init__(self, kind: str, value: Any) -> None:
        self.kind, self.value = kind, value


def graph_of(name: str, args: Sequence[Any], outputs: str = "Tensor") -> torch._C.Graph:
    """Returns a graph that calls one op.

    Args:
        name: The op, as ``"aten::add.Tensor"``.
        args: Its arguments in order: ``T``, lists of them, and constants.
        outputs: The types of its outputs, separated by commas.
    """
    lines: list[str] = []
    inputs: list[str] = []

    def add(value: Any) -> str:
        if isinstance(value, T):
            inputs.append(f"%x{len(inputs)} : Tensor")
            return f"%x{len(inputs) - 1}"
        if isinstance(value, (list, tuple)) or (
            isinstance(value, Typed) and value.kind.endswith("[]")
        ):
            kind = value.kind if isinstance(value, Typed) else f"{_kind(value[0])}[]"
            parts = [add(item) for item in (value.value if isinstance(value, Typed) else value)]
            return line(kind, f"prim::ListConstruct({', '.join(parts)})")
        if value is None:
            return line("NoneType", "prim::Constant()")
        text = f'"{value}"' if isinstance(value, str) else str(value)
        if isinstance(value, bool):
            text = str(int(value))
        if isinstance(value, Typed):
            return line(value.kind, f'prim::Constant[value="{value.value}"]()')
        return line(_kind(value), f"prim::Constant[value={text}]()")

    def line(kind: str, call: str) -> str:
        lines.append(f"  %c{len(lines)} : {kind} = {call}")
        return f"%c{len(lines) - 1}"

    names = ", ".join(map(add, args))
    kinds = [kind.strip() for kind in outputs.split(",")]
    results = ", ".join(f"%y{index} : {kind}" for index, kind in enumerate(kinds))
    returned = ", ".join(f"%y{index}" for index in range(len(kinds)))
    call = f"  {results} = {name.split('.')[0]}({names})"
    if len(kinds) > 1:
        call += f"\n  %all : ({outputs}) = prim::TupleConstruct({returned})"
        returned = "%all"
    text = "\n".join((f"graph({', '.join(inputs)}):", *lines, call, f"  return ({returned})"))
    return torch._C.parse_ir(text)


def function_of(graph: torch._C.Graph) -> Any:
    """Returns a graph as a scripted function."""
    return torch._C._create_function_from_graph("function", graph)


def tensors_of(args: Sequence[Any]) -> list[torch.Tensor]:
    """Returns the tensors among arguments, in order."""
    tensors: list[torch.Tensor] = []
    for value in args:
        if isinstance(value, T):
            tensors.append(value.make(len(tensors)))
            continue
        items = value.value if isinstance(value, Typed) else value
        if isinstance(items, (list, tuple)):
            tensors += [
                item.make(len(tensors) + index)
                for index, item in enumerate(items)
                if isinstance(item, T)
            ]
    return tensors


def _kind(value: Any) -> str:
    if isinstance(value, T):
        return "Tensor"
    return {bool: "bool", int: "int", float: "float", str: "str"}[type(value)]
