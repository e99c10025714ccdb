"""Cases of bags of embeddings."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

I64, I32, F16 = torch.int64, torch.int32, torch.float16
FIRST = TensorSpec(values=[1, 2, 4, 5, 4, 3, 2, 9], dtype=I64)
STARTS = TensorSpec(values=[0, 3, 3, 5], dtype=I64)
WORDS = TensorSpec("batch 4", I64, 0, 9)


def bag(mode: str, **options: Any) -> Callable[..., torch.Tensor]:
    """Returns a function that computes bags of rows of a table."""
    return lambda indices, offsets, weight, *scale: F.embedding_bag(
        indices,
        weight,
        offsets,
        mode=mode,
        per_sample_weights=scale[0] if scale else None,
        **options,
    )


OPS = ("aten.embedding_bag.padding_idx",)

CASES = [
    *[
        op_case(OPS, FIRST, STARTS, "10 6", function=bag(mode), label=mode)
        for mode in ("sum", "mean", "max")
    ],
    *[
        op_case(
            OPS, FIRST, STARTS, "10 6", function=bag(mode, padding_idx=4), label=f"{mode}-padding"
        )
        for mode in ("sum", "mean", "max")
    ],
    op_case(OPS, FIRST, STARTS, "10 6", "8", function=bag("sum"), label="weighted"),
    op_case(
        OPS,
        FIRST,
        TensorSpec(values=[0, 4, 8], dtype=I64),
        "10 6",
        function=bag("mean", include_last_offset=True),
        label="ends",
    ),
    *[
        op_case(
            OPS,
            FIRST,
            TensorSpec(values=[0, 4, 6], dtype=I64),
            "10 6",
            function=bag(mode, include_last_offset=True, padding_idx=padding),
            label=f"ends-early-{mode}-{padding}",
        )
        for mode in ("sum", "mean", "max")
        for padding in (None, 2)
    ],
    op_case(
        OPS,
        FIRST,
        STARTS,
        TensorSpec("10 6", F16),
        function=bag("sum"),
        label="half",
        tolerance=2e-3,
    ),
    op_case(
        OPS, WORDS, "10 6", function=lambda x, w: F.embedding_bag(x, w, mode="mean"), label="matrix"
    ),
    op_case(
        OPS,
        TensorSpec(values=[[1, 9], [2, 3]], dtype=I64),
        "10 6",
        function=lambda x, w: F.embedding_bag(x, w, mode="mean", padding_idx=-1),
        label="padding from the end",
    ),
    *[
        op_case(
            OPS,
            FIRST,
            "bags",
            "10 6",
            function=lambda i, o, w, mode=mode: F.embedding_bag(
                i,
                w,
                F.pad(torch.arange(o.shape[0] - 1) * 2, (0, 1), value=8),
                mode=mode,
                include_last_offset=True,
            ),
            dimensions={"bags": (3, 4, 5)},
            label=f"varying-ends-{mode}",
        )
        for mode in ("sum", "max")
    ],
    *[
        op_case(
            OPS,
            TensorSpec("batch length", I64, 0, 9),
            "10 6",
            function=lambda x, w, mode=mode: F.embedding_bag(x, w, mode=mode, padding_idx=3),
            label=f"varying-matrix-{mode}",
        )
        for mode in ("sum", "mean", "max")
    ],
    *[
        op_case(
            f"aten.{op}.default",
            FIRST,
            STARTS,
            "10 6",
            function=lambda i, o, w, op=op: getattr(torch.ops.aten, op).default(w, i, o, False, 1)[
                0
            ],
            label="mean",
        )
        for op in ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
    ],
]
