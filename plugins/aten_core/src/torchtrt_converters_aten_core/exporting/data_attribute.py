"""Records what a model computes with ``weight.data``, which ``torch.export`` loses."""

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
    """Reads ``tensor.data`` as ``tensor.detach()`` in a ``with`` block, which is the same memory.

    An assignment of other memory to ``tensor.data`` is refused.
    """
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
        if func == _WRITE:
            # Its package imports SymPy, which takes long.
            from torchtrt.graphs import is_same_memory

            if not is_same_memory(*args):
                raise RuntimeError(
                    "torch.export loses an assignment to tensor.data. Write tensor.copy_(values) in torch.no_grad(), "
                    "or compute with the new values instead."
                )
        return func(*args, **(kwargs or {}))


_DATA: Any = torch.Tensor.data
_READ, _WRITE = _DATA.__get__, _DATA.__set__
