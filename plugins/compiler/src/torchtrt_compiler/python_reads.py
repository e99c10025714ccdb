"""Strides and numbers that a model's Python code reads while it is exported, without a trace in the program.

``torch.export`` computes ``x.stride(0)`` and ``x.is_contiguous()`` once: the program holds the results for the strides
of the example inputs. It also computes ``float(self.scale)`` once, where the attribute is neither a parameter nor a
buffer: such a tensor is itself there, with its values.
"""

from __future__ import annotations

import itertools
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode, handle_torch_function

from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.memory import storage_of
from torchtrt_compiler.torch_internals import op_calls, reads_base

_KEY = "torchtrt_python_reads"


class _Active(threading.local):
    """The blocks of ``PythonReads`` that this thread is in."""

    def __init__(self) -> None:
        self.blocks: list[PythonReads] = []


_active = _Active()


def _ops(*names: str) -> frozenset[Any]:
    """Returns ops of ATen, and their overloads, that this PyTorch has."""
    packets = [getattr(torch.ops.aten, name) for name in names if hasattr(torch.ops.aten, name)]
    overloads = (getattr(packet, name) for packet in packets for name in packet.overloads())
    return frozenset((*packets, *overloads))


_READS_OFFSET = _ops("sym_storage_offset", "storage_offset") | {torch.Tensor.storage_offset}
_READS = (
    _ops("stride", "sym_stride", "is_contiguous", "sym_is_contiguous")
    | _ops("is_strides_like_format", "is_non_overlapping_and_dense")
    | {torch.Tensor.stride, torch.Tensor.is_contiguous, torch.Tensor.dim_order}
    | _READS_OFFSET
)
_COPIES = _ops("contiguous") | {torch.Tensor.contiguous}
"""The functions that copy for some strides. So do others with a ``memory_format``."""
_WRITES = re.compile(
    r"__(setitem|i(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor))__|[a-z].*[^_]_"
)
"""The names of functions that write to their first argument."""
_READS_MEMORY = (
    _ops("is_set_to")
    | {torch.Tensor.is_set_to, torch.Tensor.storage, torch.Tensor.untyped_storage}
    | reads_base
)
"""The functions that read which memory a tensor has. No check of an input's strides determines the result."""

_READS_VALUES = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        "item",
        "tolist",
        "numpy",
        "__array__",
        "__float__",
        "__int__",
        "__complex__",
        "__index__",
    )
)
"""The functions that return numbers."""
_INDEXING = frozenset({torch.Tensor.__getitem__, torch.Tensor.__setitem__})
_WITH_VALUES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)

_PASSING = frozenset(function.__code__ for function in (handle_torch_function, *op_calls))
"""Functions of PyTorch's that hand a call to modes."""

_PASSING_NAMES = ("__torch_function__", "<module>")
"""The names of modes, and of expressions: Dynamo evaluates guards, such as ``x._base is None``."""


class PythonReads(TorchFunctionMode):
    """Notes what the lines of a model read inside a ``with`` block; not the lines of PyTorch and torchtrt.

    Attributes:
        lines: The lines that read strides, as ``file:line``.
        reads_offset: Whether one of them reads a storage offset.
        writes: Whether memory is written to that a copy would have, if the example inputs had other strides. Exporting
            leaves no trace of a copy that was not necessary.
        values: The tensors from which numbers were read, each with the line, if it is not PyTorch's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.reads_offset = self.writes = False
        self.values: list[tuple[str, torch.Tensor]] = []
        self._uncopied: dict[int, torch.Tensor] = {}  # by their storages, which they keep

    def __enter__(self) -> Any:
        _active.blocks.append(self)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        _active.blocks.remove(self)
        self._uncopied.clear()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls the function, and notes the caller's line if the function reads strides or numbers.

        Raises:
            UnsupportedProgramError: The function reads which memory a tensor has that is no parameter. Or it writes to
                a tensor that has values.
        """
        del types
        if not torch.compiler.is_dynamo_compiling():  # it interprets this, with tensors of its own
            self._note_values(func, args)
        if func in _READS and (line := _line_of_model(func)):
            self.lines.append(line)
            self.reads_offset |= func in _READS_OFFSET
        if func in _READS_MEMORY and not isinstance(args[0], torch.nn.Parameter):
            name = getattr(func, "__name__", str(func))
            if line := _line_of_model(func):
                raise UnsupportedProgramError(
                    f"The model asks PyTorch which memory a tensor has ({name}, {line}), and a compiled model has "
                    "memory of its own. Compute what it needs from sizes or from values."
                )
        result = func(*args, **(kwargs or {}))
        self._note_write(func, args, kwargs or {}, result)
        return result

    def _note_values(self, func: Any, args: tuple[Any, ...]) -> None:
        """Notes a tensor from which numbers are read.

        Raises:
            UnsupportedProgramError: The function writes to a tensor that has values.
        """
        if func in _INDEXING:
            self.values += [("", tensor) for tensor in _numbers_in(args[1])]
        if not (args and type(args[0]) in _WITH_VALUES):
            return
        is_write = _WRITES.fullmatch(getattr(func, "__name__", ""))
        line = _line_of_model(func, 3) if is_write or func in _READS_VALUES else ""
        if func in _READS_VALUES:
            self.values.append((line, args[0]))
        elif line:
            raise UnsupportedProgramError(
                f"The model writes to a tensor that is no input, parameter or buffer ({line}), and a program would not "
                "do that. Register the tensor as a buffer of its module."
            )

    def _note_write(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Notes memory that was not copied, and a write to it."""
        if not (args and isinstance(args[0], torch.Tensor) and args[0].layout is torch.strided):
            return
        if func in _COPIES or kwargs.get("memory_format") not in (None, torch.preserve_format):
            if isinstance(result, torch.Tensor) and storage_of(result) == storage_of(args[0]):
                self._uncopied[storage_of(result)] = result
        elif self._uncopied and _WRITES.fullmatch(getattr(func, "__name__", "")):
            self.writes |= storage_of(args[0]) in self._uncopied

    def keep_in(self, exported: ExportedProgram) -> None:
        """Keeps this in a program's metadata, where ``python_reads`` finds it."""
        exported.graph_module.meta[_KEY] = self


def _numbers_in(index: Any) -> list[torch.Tensor]:
    """Returns the tensors with values in an index that PyTorch reads as numbers."""
    parts = index if isinstance(index, tuple) else (index,)
    limits = (
        (part.start, part.stop, part.step) if isinstance(part, slice) else (part,) for part in parts
    )
    return [
        number
        for number in itertools.chain(*limits)
        if type(number) in _WITH_VALUES and not number.dim()
    ]


def note_stride_read(line: str, reads_offset: bool = False) -> None:
    """Notes a line of a model that reads strides, for a front end whose models are no Python code."""
    for block in _active.blocks:
        block.lines.append(line)
        block.reads_offset |= reads_offset


def _line_of_model(func: Any, depth: int = 2) -> str:
    """Returns the line that calls a function, as ``file:line``; an empty string for PyTorch's and torchtrt's lines.

    Args:
        func: The function.
        depth: How many calls are between it and this one.
    """
    passing = {*_PASSING, getattr(func, "__code__", None)}
    caller: Any = sys._getframe(depth)
    while caller.f_code.co_name in _PASSING_NAMES or caller.f_code in passing:
        caller = caller.f_back
    package = caller.f_globals.get("__name__", "").partition(".")[0]
    if package == "torch" or package.startswith("torchtrt"):
        return ""
    return f"{caller.f_code.co_filename}:{caller.f_lineno}"


def python_reads(exported: ExportedProgram) -> PythonReads:
    """Returns what the model read while it was exported; nothing, for a program that the user exported."""
    reads: PythonReads = exported.graph_module.meta.get(_KEY) or PythonReads()
    return reads
