"""Cases of jagged tensors: rows without values, and rows longer than the padded ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fbgemm_gpu  # noqa: F401  # defines the ops
import torch
from torch import Tensor

from torchtrt_testing.cases import OpCase, decomposition_case
from torchtrt_testing.tensors import TensorSpec

fbgemm = torch.ops.fbgemm
LENGTHS = TensorSpec("batch", torch.int64, low=0, high=3)
COUNTS = TensorSpec("batch length", torch.int32, low=0, high=9)
DENSE = "batch 4 2"
SEVERAL = "several 4 2"
"""Of more than one row: FBGEMM exports ``dense_to_jagged`` for one row, or for several."""
DTYPES = (torch.float32, torch.float16, torch.int64, torch.int32)


def jagged(
    op: str,
    function: Callable[..., Any],
    *args: Any,
    offsets: torch.dtype = torch.int64,
    values: str = "batch 3 2",
) -> OpCase:
    """Returns the case of an op on rows of 0, 6, 0, 6 and 3 values: FBGEMM demands offsets up to the last value.

    Args:
        op: The op.
        function: Computes it from the values, their offsets, and the arguments.
        *args: The arguments.
        offsets: The dtype of the offsets.
        values: The shape of the values, before the first two dimensions become one.
    """

    def computed(rows: Tensor, *args: Tensor) -> Any:
        count = rows.shape[0]
        number = torch.arange(count + 1, dtype=offsets)
        at = torch.where(number < count, number - number % 2, number) * rows.shape[1]
        return function(rows.flatten(0, 1), at, *args)

    label = "-".join(filter(None, (str(offsets)[6:], "empty" if " 0" in values else "")))
    return decomposition_case(
        op,
        values,
        *args,
        function=computed,
        label=label,
        dtypes=DTYPES,
        dimensions={"several": (2, 3, 5)},
    )


def padded(values: Tensor, offsets: Tensor) -> Any:
    """Returns rows of four values."""
    return fbgemm.jagged_to_padded_dense(values, [offsets], [4], 1.5)


def unpadded(values: Tensor, offsets: Tensor, dense: Tensor) -> Any:
    """Returns as many values."""
    return fbgemm.dense_to_jagged(dense, [offsets], values.shape[0])[0] + values


CASES = (
    decomposition_case("fbgemm.asynchronous_complete_cumsum", LENGTHS),
    decomposition_case("fbgemm.asynchronous_complete_cumsum", COUNTS, label="rows"),
    decomposition_case(
        "fbgemm.asynchronous_complete_cumsum", "batch", rejected="another order", label="float"
    ),
    jagged("fbgemm.jagged_to_padded_dense", padded),
    jagged("fbgemm.jagged_to_padded_dense", padded, offsets=torch.int32),
    jagged("fbgemm.jagged_to_padded_dense", padded, values="batch 0 2"),
    jagged(
        "fbgemm.jagged_to_padded_dense_forward",
        lambda values, offsets: fbgemm.jagged_to_padded_dense_forward(values, [offsets], [8], 0.0),
    ),
    jagged(
        "fbgemm.jagged_2d_to_dense",
        lambda values, offsets: fbgemm.jagged_2d_to_dense(values, offsets, 4),
    ),
    jagged(
        "fbgemm.jagged_1d_to_dense",
        lambda values, offsets: fbgemm.jagged_1d_to_dense(values, offsets, 4, -1),
        values="batch 3",
    ),
    jagged("fbgemm.dense_to_jagged", unpadded, SEVERAL, values="several 3 2"),
    jagged(
        *("fbgemm.dense_to_jagged", unpadded, SEVERAL),
        values="several 3 2",
        offsets=torch.int32,
    ),
    jagged(
        "fbgemm.dense_to_jagged_forward",
        lambda values, offsets, dense: fbgemm.dense_to_jagged_forward(
            dense, [offsets], values.shape[0]
        ),
        SEVERAL,
        values="several 3 2",
    ),
    jagged(
        "fbgemm.jagged_dense_elementwise_add",
        lambda values, offsets, dense: fbgemm.jagged_dense_elementwise_add(
            values, [offsets], dense
        ),
        DENSE,
    ),
    jagged(
        "fbgemm.jagged_dense_elementwise_add_jagged_output",
        lambda values, offsets, dense: fbgemm.jagged_dense_elementwise_add_jagged_output(
            values, [offsets], dense
        )[0],
        DENSE,
    ),
    jagged(
        "fbgemm.jagged_dense_elementwise_mul",
        lambda values, offsets, dense: fbgemm.jagged_dense_elementwise_mul(
            values, [offsets], dense
        )[0],
        DENSE,
    ),
)
