"""Samples of ops: a call with example tensors, as a module that can be exported."""

from __future__ import annotations

import functools
import random
import re
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchtrt.tensorrt import dtype_name
from torchtrt.torch_internals import pytree
from torchtrt_testing.torch_internals import op_database

DTYPES = (torch.float32, torch.float16, torch.int64, torch.bool)
LIMIT = 12
"""The maximum number of samples of one op and dtype; of more, evenly spaced ones are taken."""

NOT_FORWARD = {
    r".*_backward": "a gradient",
    r"jiterator_.*": "compiled for CUDA when called",
    r"(.*\.)?_?sparse.*|to_sparse.*": "of sparse tensors",
}
"""Ops that are not part of this suite, by pattern, and why."""


@dataclass(frozen=True)
class Sample:
    """One call of an op.

    Attributes:
        op: The op's name in the database.
        dtype: The dtype that the sample was made for.
        index: Its place among the op's samples of this dtype.
        function: The op.
        leaves: The arguments, flattened: tensors and constants.
        tree: How they nest.
    """

    op: str
    dtype: torch.dtype
    index: int
    function: Any
    leaves: tuple[Any, ...]
    tree: pytree.TreeSpec

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Fresh copies of the tensors among the arguments, with their strides."""
        return tuple(leaf.detach().clone() for leaf in self.leaves if _is_tensor(leaf))

    @property
    def model(self) -> torch.nn.Module:
        """The call as a module over the tensors among the arguments."""
        return Call(self)

    def __str__(self) -> str:
        return f"{self.op} {dtype_name(self.dtype)} #{self.index}"

    def describe(self) -> str:
        """Returns the arguments in a line: shapes of tensors, and constants."""
        return str(pytree.tree_unflatten(list(map(_outline, self.leaves)), self.tree))


class Call(torch.nn.Module):
    """A sample's op and constants, waiting for its tensors."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self.sample = sample

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Calls the op."""
        values = iter(tensors)
        filled = [next(values) if _is_tensor(leaf) else leaf for leaf in self.sample.leaves]
        args, kwargs = pytree.tree_unflatten(filled, self.sample.tree)
        return self.sample.function(*args, **kwargs)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


@functools.cache
def ops() -> dict[str, Any]:
    """Returns the ops of the suite, by name."""
    patterns = [re.compile(pattern) for pattern in NOT_FORWARD]
    return {
        op.full_name: op
        for op in sorted(op_database(), key=lambda op: op.full_name)
        if not any(pattern.fullmatch(op.full_name) for pattern in patterns)
    }


def samples_of(name: str, dtype: torch.dtype) -> list[Sample]:
    """Returns an op's samples of a dtype: none that differs only in values, evenly spaced, always the same."""
    op = ops()[name]
    if not op.supports_dtype(dtype, "cpu"):
        return []
    distinct: dict[str, tuple[list[Any], pytree.TreeSpec]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for leaves, tree in _generate(op, dtype):
            distinct.setdefault(f"{list(map(_outline, leaves))} {tree}", (leaves, tree))
    chosen = list(distinct.values())
    if len(chosen) > LIMIT:
        chosen = [chosen[index * (len(chosen) - 1) // (LIMIT - 1)] for index in range(LIMIT)]
    return [
        Sample(name, dtype, index, op.op, tuple(leaves), tree)
        for index, (leaves, tree) in enumerate(chosen)
    ]


def _generate(op: Any, dtype: torch.dtype) -> Iterator[tuple[list[Any], pytree.TreeSpec]]:
    seed = zlib.crc32(f"{op.full_name} {dtype}".encode())
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    for sample in op.sample_inputs("cpu", dtype):
        yield pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))


def _outline(leaf: Any) -> Any:
    """Returns what distinguishes an argument: of a tensor the kind and the layout, not the values."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    strides = "" if leaf.layout is not torch.strided or leaf.is_contiguous() else leaf.stride()
    return f"{dtype_name(leaf.dtype)}{list(leaf.shape)}{strides}"
