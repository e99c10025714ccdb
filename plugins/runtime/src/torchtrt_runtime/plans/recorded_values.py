"""PyTorch's values of a plan's inputs and outputs: what a saved model records of sizes and dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchtrt.expressions.values import evaluate
from torchtrt_runtime.serialization.symbols import SymbolsByName
from torchtrt_runtime.torch_internals import FakeTensorMode, add_hint


class PlanSymbols(SymbolsByName):
    """The symbols of a plan's sizes, and PyTorch's fake tensors with such sizes."""

    def __init__(self) -> None:
        super().__init__()
        self._environment = ShapeEnv()
        self._mode = FakeTensorMode(shape_env=self._environment)
        self._hints: dict[Any, int] = {}

    def __missing__(self, name: str) -> Any:
        made = self[name] = sympy.Symbol(f"s{len(self)}", integer=True, positive=True)
        # Neither 0 nor 1, which PyTorch takes for fixed sizes, and no other's.
        self._hints[made] = len(self) + 1
        add_hint(self._environment, made, self._hints[made])
        return made

    def fake_tensor(
        self, dtype: torch.dtype, sizes: Sequence[Any], device: torch.device
    ) -> torch.Tensor:
        """Returns a tensor without memory.

        Args:
            dtype: Its dtype.
            sizes: Its sizes: each is an int, an expression of the symbols, or None for one that is not known.
            device: Its device.
        """
        with self._mode:
            return torch.empty(list(map(self._size, sizes)), dtype=dtype, device=device)

    def _size(self, size: Any) -> Any:
        if size is None:
            return self._environment.create_unbacked_symint()
        if isinstance(size, int):
            return size
        return self._environment.create_symintnode(size, hint=int(evaluate(size, self._hints)))
