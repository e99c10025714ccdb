"""The layers of reference TensorRT, one file per family; :data:`OPERATIONS` is the table of them all."""

from __future__ import annotations

from torchtrt_reference.operations import (
    attention,
    control,
    convolution,
    detection,
    distributed,
    fused,
    generation,
    indexing,
    matrices,
    movement,
    pointwise,
    pooling,
    quantization,
    recurrent,
    reduction,
    sampling,
    scaling,
    slicing,
    types,
)
from torchtrt_reference.operations.operation import Operation

_FAMILIES = (
    pointwise,
    types,
    movement,
    indexing,
    slicing,
    reduction,
    matrices,
    convolution,
    pooling,
    scaling,
    sampling,
    generation,
    attention,
    quantization,
    detection,
    recurrent,
    control,
    distributed,
    fused,
)
OPERATIONS: dict[str, Operation] = {
    operation.name: operation for family in _FAMILIES for operation in family.OPERATIONS
}
METHODS: dict[str, Operation] = {
    method: operation for operation in OPERATIONS.values() for method in operation.methods
}
