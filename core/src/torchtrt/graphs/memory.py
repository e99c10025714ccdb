"""Which memory tensors have, and whether they have some in common."""

from __future__ import annotations

import functools

import torch


def storage_of(tensor: torch.Tensor) -> int:
    """Returns what identifies a tensor's memory; for one without, the tensor itself."""
    if hasattr(type(tensor), "__tensor_flatten__") or tensor.layout is not torch.strided:
        return id(tensor)
    return int(tensor.untyped_storage()._cdata)


def is_same_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Returns whether two tensors are one and the same part of the same memory, in the same order."""
    return first is second or (
        storage_of(first) == storage_of(second)
        and first.dtype == second.dtype
        and _layout(first) == _layout(second)
    )


def _layout(tensor: torch.Tensor) -> tuple[str, ...]:
    # As text, so that comparing dynamic sizes assumes nothing about them.
    return tuple(map(str, (*tensor.shape, *tensor.stride(), tensor.storage_offset())))


def overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Returns whether a write to one of two tensors can change the other."""
    if first.layout is not torch.strided or second.layout is not torch.strided:
        return first is second
    if any(tensor._is_zerotensor() or not tensor.numel() for tensor in (first, second)):
        return False  # it has no memory
    if first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr():
        return False
    return _overlap(_geometry(first), _geometry(second))


_Geometry = tuple[int, int, tuple[int, ...], tuple[int, ...]]


def _geometry(tensor: torch.Tensor) -> _Geometry:
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    return tensor.itemsize, int(tensor.storage_offset()), shape, stride


@functools.lru_cache(maxsize=256)
def _overlap(first: _Geometry, second: _Geometry) -> bool:
    (start, end), (other_start, other_end) = map(_span, (first, second))
    if end <= other_start or other_end <= start:
        return False
    if first[0] != second[0]:
        return True  # of two types: one may lie between the elements of the other, but who would do that
    return bool(torch.isin(_offsets(first), _offsets(second)).any())


def _span(geometry: _Geometry) -> tuple[int, int]:
    """Returns the first byte of a tensor, and the one after its last."""
    itemsize, offset, sizes, strides = geometry
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return offset * itemsize, (offset + last + 1) * itemsize


def _offsets(geometry: _Geometry) -> torch.Tensor:
    """Returns where in the storage each element is."""
    _, offset, sizes, strides = geometry
    offsets = torch.tensor(offset)
    for size, stride in zip(sizes, strides, strict=True):
        offsets = offsets.unsqueeze(-1) + torch.arange(size) * stride
    return offsets.flatten()
