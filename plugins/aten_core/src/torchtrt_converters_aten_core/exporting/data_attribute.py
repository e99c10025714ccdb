"""Records what a model computes with ``weight.data``, of which ``torch.export`` loses track."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchtrt_converters_aten_core import pack


@pack.export_context
@contextlib.contextmanager
def recorded_data() -> Iterator[None]:
    """Reads ``tensor.data`` as ``tensor.detach()`` in a ``with`` block, which is the same memory."""
    with _RecordedData():
        yield


class _RecordedData(TorchFunctionMode):
    """Replaces reads of the attribute."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls a function of PyTorch, or detaches its argument."""
        if func == _READ:
            return args[0].detach()
        return func(*args, **(kwargs or {}))


_READ = torch.Tensor.data.__get__
