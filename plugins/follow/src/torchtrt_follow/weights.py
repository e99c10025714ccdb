"""Whether weights are still what they were: tensors by version and memory, scales of adapters by value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import torch


class WeightMark(NamedTuple):
    """A tensor at one moment.

    Attributes:
        tensor: The tensor.
        version: PyTorch's count of writes to it; -1 for tensors of inference mode, which have none.
        layout: Its address, shape and strides; None for a tensor without memory of its own. Assigning ``.data``
            changes them.
    """

    tensor: torch.Tensor
    version: int
    layout: tuple[int, torch.Size, tuple[int, ...]] | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> WeightMark:
        """Returns the mark of a tensor as it is now."""
        version = -1 if tensor.is_inference() else tensor._version
        return cls(tensor, version, layout_of(tensor))

    def has_changed(self) -> bool:
        """Returns whether the tensor was written to, or is elsewhere."""
        return not self.is_same(WeightMark.of(self.tensor))

    def is_same(self, other: WeightMark) -> bool:
        """Returns whether both are of one tensor with the same values."""
        return self.tensor is other.tensor and self[1:] == other[1:]


def layout_of(tensor: torch.Tensor) -> tuple[int, torch.Size, tuple[int, ...]] | None:
    """Returns a tensor's address, shape and strides; None if it has no memory of its own, as a wrapping subclass."""
    try:
        address = tensor.data_ptr()
        return (address, tensor.shape, tensor.stride()) if address else None
    except RuntimeError:
        return None


class WatchedWeights:
    """Weights whose changes are noticed in one pass, for which PyTorch answers in C++.

    Args:
        marks: The marks of the weights, by name.
        written: The names of those that a program writes to: their versions do not count.
    """

    def __init__(self, marks: Mapping[str, WeightMark], written: Collection[str]) -> None:
        own = [mark for name, mark in marks.items() if name in written]
        others = [mark for name, mark in marks.items() if name not in written]
        counted = [mark for mark in others if mark.version >= 0 and mark.layout]
        located = [*counted, *own]
        self._uncounted = [mark for mark in others if mark.version < 0 or not mark.layout]
        self._counted = [mark.tensor for mark in counted]
        self._versions = [mark.version for mark in counted]
        self._located = [mark.tensor for mark in located]
        self._layouts = [mark.layout for mark in located]

    def have_changed(self) -> bool:
        """Returns whether a weight is another than it was."""
        try:
            if [tensor._version for tensor in self._counted] != self._versions:
                return True
            layouts = [(each.data_ptr(), each.shape, each.stride()) for each in self._located]
        except RuntimeError:  # one is another kind of tensor now
            return True
        return layouts != self._layouts or any(mark.has_changed() for mark in self._uncounted)


_STATISTICS = ("running_mean", "running_var")


def with_neighbors(changed: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """Returns changed weights of a program, and those that may have changed with them.

    PyTorch does not count what batch normalization writes to its statistics.

    Args:
        changed: The changed weights, by the program's names.
        names: The model's name for each weight of the program.
    """
    modules = {names[own].rpartition(".")[0] for own in changed}
    return [
        own
        for own, name in names.items()
        if modules and (name.rpartition(".")[0] in modules or name.endswith(_STATISTICS))
    ]


def counter_of(name: str) -> str:
    """Returns the name of the number of batches that a statistic has seen; empty for any other weight.

    PyTorch counts writes to this number, which no program reads, and not those to the statistic.
    """
    module, _, own = name.rpartition(".")
    return f"{module}.num_batches_tracked".lstrip(".") if own in _STATISTICS else ""


def is_strided(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has memory of its own, with strides."""
    return tensor.layout is torch.strided and layout_of(tensor) is not None
