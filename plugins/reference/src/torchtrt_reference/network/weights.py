"""``Weights``: memory of the caller that a network reads when it is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from torchtrt_reference import dtypes
from torchtrt_reference.implementation import Implementation
from torchtrt_reference.network.dimensions import exact_int

_CPU = torch.device("cpu")


class Weights(Implementation):
    """A typed view of memory that the caller owns and keeps alive until the engine is built.

    Three forms, as in TensorRT: from a contiguous NumPy array, which this object keeps alive; empty of a type; or from
    type, address and count (TensorRT 10 and later). Only the last form exists for types that NumPy lacks.
    """

    _implements = ("Weights",)
    _checks_arguments = True
    _takes_address: ClassVar[bool] = True

    @classmethod
    def _follow(cls, spec: Mapping[str, Any]) -> None:
        forms = spec["methods"].get("__init__", [])
        cls._takes_address = any(parameter[0] == "ptr" for form in forms for parameter in form[0])

    def __init__(
        self,
        source: Any = None,
        ptr: Any = None,
        count: Any = None,
        *,
        a: Any = None,
        type: Any = None,
    ) -> None:
        source = next((value for value in (source, a, type) if value is not None), None)
        self._owner: Any = None
        if source is not None and not isinstance(source, (np.ndarray, self._trt.DataType)):
            message = f"Weights are made from a NumPy array or a DataType, not from {source.__class__.__name__}."
            raise TypeError(message)
        if ptr is not None and not self._takes_address:
            message = f"TensorRT {self._trt.__version__} cannot make Weights from an address."
            raise TypeError(message)
        if isinstance(source, np.ndarray):
            name = dtypes.FROM_NUMPY.get(source.dtype)
            if name is None or name not in self._trt.DataType.__members__:
                message = (
                    f"Could not implicitly convert NumPy data type: {source.dtype.kind}{source.dtype.itemsize * 8} "
                    "to TensorRT."
                )
                raise ValueError(message)
            if not source.flags.c_contiguous:
                message = "Weights need a contiguous array: TensorRT does not copy. Use numpy.ascontiguousarray."
                raise ValueError(message)
            self._dtype, self._owner = name, source
            self._address, self._count = source.ctypes.data, source.size
        else:
            self._dtype = "FLOAT" if source is None else source.name
            self._address = 0 if ptr is None else exact_int(ptr)
            self._count = 0 if count is None else exact_int(count)

    @property
    def dtype(self) -> Any:
        """The type of one element."""
        return self._trt.DataType.__members__[self._dtype]

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._count

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return dtypes.byte_count(self._dtype, self._count)

    def numpy(self) -> Any:
        """Returns a one-dimensional array over the memory; these weights themselves if NumPy lacks the type."""
        if self._dtype not in dtypes.NUMPY:
            return self
        if self._count == 0:
            return np.empty(0, dtypes.NUMPY[self._dtype])
        return self._tensor().numpy()

    def __len__(self) -> int:
        return self._count

    def _identity(self) -> tuple[int, int, str]:
        """The identity of weights in TensorRT: address, count and type."""
        return self._address, self._count, self._dtype

    def _tensor(self) -> torch.Tensor:
        """The memory as a flat tensor; 4-bit values are unpacked, low nibble first."""
        if self._dtype in ("INT4", "FP4"):
            packed = dtypes.tensor_at(self._address, torch.uint8, (self.nbytes,), _CPU)
            return dtypes.unpack(packed, self._dtype, self._count)
        return dtypes.tensor_at(self._address, dtypes.TORCH[self._dtype], (self._count,), _CPU)
