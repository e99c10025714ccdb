"""Whether a tensor still has the values that it had."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

Layout = tuple[int, torch.Size, tuple[int, ...]]


class WeightMark:
    """A tensor at one moment.

    PyTorch counts writes in place. It does not count an assignment of ``.data``, which gives a tensor other memory.
    Writes through ``.data``, or through an array of NumPy, leave no trace.

    Args:
        tensor: The tensor; it may be deleted meanwhile.

    Attributes:
        version: PyTorch's count of writes to it; -1 for tensors of inference mode, which have none.
        layout: Its address, shape and strides; None if it has no memory of its own, as a subclass that wraps tensors.
    """

    __slots__ = ("_memory", "_tensor", "layout", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        self.version = version_of(tensor)
        self.layout = layout_of(tensor)
        # A new tensor may get the address of memory that was freed.
        self._memory = None if self.layout is None else weakref.ref(tensor.untyped_storage())

    @property
    def tensor(self) -> torch.Tensor | None:
        """The tensor; None if it was deleted."""
        return self._tensor()

    def has_changed(self) -> bool:
        """Returns whether the tensor was written to or has other memory. A deleted tensor has not changed."""
        tensor = self._tensor()
        return tensor is not None and not self.is_of(tensor)

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Returns whether a tensor is the marked one, with the values that it had."""
        return (
            tensor is self._tensor()
            and self.version == version_of(tensor)
            and self.layout == layout_of(tensor)
            and (self._memory is None or self._memory() is not None)
        )


class WatchedWeights:
    """Tensors whose changes are noticed in one pass, for which PyTorch answers in C++.

    Args:
        marks: The marks of the tensors, each with whether writes in place are changes.
    """

    def __init__(self, marks: Iterable[tuple[WeightMark, bool]]) -> None:
        self._others: list[WeightMark] = []
        self._counted: list[torch.Tensor] = []
        self._versions: list[int] = []
        self._located: list[torch.Tensor] = []
        self._layouts: list[Layout] = []
        self._lost: list[Any] = []  # references to memory that was freed
        self._memory: list[Any] = []
        for mark, counts in marks:
            tensor = mark.tensor
            if tensor is None or mark.layout is None or mark.version < 0:
                self._others += [mark] if counts else []
                continue
            if counts:
                self._counted.append(tensor)
                self._versions.append(mark.version)
            self._located.append(tensor)
            self._layouts.append(mark.layout)
            self._memory.append(weakref.ref(tensor.untyped_storage(), self._lost.append))

    def have_changed(self) -> bool:
        """Returns whether a tensor was written to or has other memory."""
        try:
            if self._lost or [tensor._version for tensor in self._counted] != self._versions:
                return True
            layouts = [
                (tensor.data_ptr(), tensor.shape, tensor.stride()) for tensor in self._located
            ]
        except RuntimeError:  # one is another kind of tensor now
            return True
        return layouts != self._layouts or any(mark.has_changed() for mark in self._others)


def version_of(tensor: torch.Tensor) -> int:
    """Returns PyTorch's count of writes to a tensor; -1 for a tensor of inference mode."""
    return -1 if tensor.is_inference() else tensor._version


def layout_of(tensor: torch.Tensor) -> Layout | None:
    """Returns a tensor's address, shape and strides; None if it has no memory of its own."""
    try:
        address = tensor.data_ptr()
        return (address, tensor.shape, tensor.stride()) if address else None
    except RuntimeError:
        return None
