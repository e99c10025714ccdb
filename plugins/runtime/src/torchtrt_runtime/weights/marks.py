"""Whether tensors still have the values that they had."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping
from typing import Any

import torch

Layout = tuple[int, torch.Size, tuple[int, ...]]


class WatchedWeights:
    """Tensors at one moment, whose changes are noticed.

    PyTorch counts writes in place. It does not count an assignment of ``.data``, which gives a tensor other memory.
    Writes through ``.data``, or through an array of NumPy, leave no trace.

    Args:
        tensors: The tensors, by name.
    """

    def __init__(self, tensors: Mapping[Any, torch.Tensor]) -> None:
        self._tensors = dict(tensors)
        self._versions = {name: version_of(tensor) for name, tensor in tensors.items()}
        self._layouts = {name: layout_of(tensor) for name, tensor in tensors.items()}
        # A new tensor may get the address of memory that was freed.
        self._lost: list[Any] = []
        self._memory = {
            name: weakref.ref(tensor.untyped_storage(), self._lost.append)
            for name, tensor in tensors.items()
            if self._layouts[name] is not None
        }
        # Plain lists: each call of a model compares them, and PyTorch answers in C++.
        self._located = [self._tensors[name] for name in self._memory]
        self._old_layouts = [self._layouts[name] for name in self._memory]
        self._others = [tensors[name] for name in tensors if name not in self._memory]
        self.allow_writes(())

    def allow_writes(self, names: Collection[Any]) -> None:
        """Takes writes in place to some of the tensors for no changes, from now on."""
        counted = [
            name for name, version in self._versions.items() if version >= 0 and name not in names
        ]
        self._counted = [self._tensors[name] for name in counted]
        self._counts = [self._versions[name] for name in counted]

    def have_changed(self) -> bool:
        """Returns whether a tensor was written to or has other memory."""
        try:
            if self._lost or [tensor._version for tensor in self._counted] != self._counts:
                return True
            layouts = [
                (tensor.data_ptr(), tensor.shape, tensor.stride()) for tensor in self._located
            ]
        except RuntimeError:  # one is another kind of tensor now
            return True
        return layouts != self._old_layouts or any(map(layout_of, self._others))

    def changed(self, tensors: Mapping[str, torch.Tensor]) -> set[str]:
        """Returns the names of the tensors that are others now, or have other values or memory than they had."""
        return {
            name
            for name, tensor in tensors.items()
            if tensor is not self._tensors.get(name)
            or version_of(tensor) != self._versions[name]
            or layout_of(tensor) != self._layouts[name]
            or (name in self._memory and self._memory[name]() is None)
        }


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
