"""Where a model's Python code reads the strides of tensors while it is exported.

``torch.export`` computes ``x.stride(0)`` and ``x.is_contiguous()`` once. The program holds the answers for the strides
of the example inputs, and nothing in it shows that it asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

_KEY = "torchtrt_stride_reads"
_READS: frozenset[Any] = frozenset(
    {
        torch.Tensor.stride,
        torch.Tensor.is_contiguous,
        torch.Tensor.storage_offset,
        torch.Tensor.dim_order,
    }
)


class StrideReads(TorchFunctionMode):
    """Notes each line of a model that reads strides inside a ``with`` block; not the lines of PyTorch and torchtrt.

    Attributes:
        lines: The lines, as ``file:line``.
        reads_offset: Whether one of them reads a storage offset.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.reads_offset = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls the function, and notes the caller's line if the function reads strides."""
        del types
        if func in _READS:
            caller: Any = sys._getframe(1)
            while caller.f_code.co_name == "__torch_function__":  # of PyTorch's own modes
                caller = caller.f_back
            package = caller.f_globals.get("__name__", "").partition(".")[0]
            if package != "torch" and not package.startswith("torchtrt"):
                self.lines.append(f"{caller.f_code.co_filename}:{caller.f_lineno}")
                self.reads_offset |= func is torch.Tensor.storage_offset
        return func(*args, **(kwargs or {}))

    def keep_in(self, exported: ExportedProgram) -> None:
        """Keeps this in a program's metadata, where ``stride_reads`` finds it."""
        exported.graph_module.meta[_KEY] = self


def stride_reads(exported: ExportedProgram) -> StrideReads:
    """Returns where the model read strides while it was exported; nowhere, for a program that the user exported."""
    reads: StrideReads = exported.graph_module.meta.get(_KEY) or StrideReads()
    return reads
