"""The types of TensorRT's objects in annotations; their classes are those of the TensorRT in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class NetworkTensor(Protocol):
    """A tensor of the network under construction, for annotations: what converters read of ``trt.ITensor``.

    Attributes:
        name: Its name, which no other tensor of the network has.
        shape: Its sizes; -1 for each that is known at run time only.
        dtype: Its ``trt.DataType``; ``ConversionContext.dtype_of`` returns the ``torch.dtype``.
        is_network_input: Whether it is an input of the network.
    """

    name: str

    @property
    def shape(self) -> Sequence[int]: ...  # noqa: D102

    @property
    def dtype(self) -> Any: ...  # noqa: D102

    @property
    def is_network_input(self) -> bool: ...  # noqa: D102


class NetworkLayer(Protocol):
    """A layer of the network under construction, for annotations: a ``trt.ILayer``, with all attributes of its kind."""

    def get_output(self, index: int, /) -> NetworkTensor: ...  # noqa: D102

    def set_input(self, index: int, tensor: NetworkTensor, /) -> None: ...  # noqa: D102

    def __getattr__(self, name: str, /) -> Any: ...

    def __setattr__(self, name: str, value: Any, /) -> None: ...
