"""The memory of an engine's last outputs, into which its next calls write."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

_Layout = tuple[Any, Any, torch.dtype]
"""The sizes, the strides and the dtype of an output."""
_STREAMS = 16
"""The maximum number of streams for which a thread keeps memory."""


class KeptOutputs(threading.local):
    """The memory of an engine's last outputs. Each thread has its own on each stream.

    A model may call an engine several times in one call: each of these has memory of its own.
    """

    def __init__(self) -> None:
        # For each stream the outputs of as many calls as one call of the model has: the longest ago first.
        self._by_stream: dict[Any, list[dict[str, torch.Tensor]]] = {}

    def take(
        self,
        stream: Any,
        calls: int,
        layouts: Sequence[tuple[str, _Layout]],
        allocate: Callable[..., torch.Tensor],
    ) -> Mapping[str, torch.Tensor]:
        """Returns the output tensors of a call by their names, in the memory of an earlier call where it suffices.

        Args:
            stream: The device and the stream of the call.
            calls: How often a call of the model runs the engine.
            layouts: The name and the layout of each output.
            allocate: Returns a new tensor of a layout.
        """
        if stream not in self._by_stream and len(self._by_stream) >= _STREAMS:
            del self._by_stream[next(iter(self._by_stream))]
        last = self._by_stream.setdefault(stream, [])
        kept = last.pop(0) if len(last) >= calls else {}
        last.append(kept)
        outputs = {}
        for name, layout in layouts:
            output = kept.get(name)
            output = allocate(*layout) if output is None else _fitted(output, layout, allocate)
            kept[name] = output
            outputs[name] = output.detach()  # whose sizes the caller may change in place
        return outputs

    def release(self, values: Iterable[Any]) -> None:
        """Removes the memory of this thread that tensors among the inputs of a call share."""
        tensors = (value for value in values if isinstance(value, torch.Tensor))
        read = {tensor.untyped_storage().data_ptr() for tensor in tensors} - {0}
        for kept in itertools.chain.from_iterable(self._by_stream.values()):
            for name, output in [*kept.items()]:
                if output.untyped_storage().data_ptr() in read:
                    del kept[name]


def _fitted(
    output: torch.Tensor, layout: _Layout, allocate: Callable[..., torch.Tensor]
) -> torch.Tensor:
    """Returns a tensor of a layout in the memory of another one, or in new memory if that is too small."""
    sizes, strides, dtype = layout
    storage = output.untyped_storage()
    # A program may have freed the memory of a result, and no result outside of inference mode is of it.
    is_too_small = torch.Size(sizes).numel() * dtype.itemsize > storage.nbytes()
    if is_too_small or output.is_inference() is not torch.is_inference_mode_enabled():
        return allocate(*layout)
    if (output.shape, output.stride(), output.dtype) == layout:
        return output
    empty = torch.empty(0, dtype=dtype, device=output.device)
    return empty.set_(storage, 0, sizes, strides)
