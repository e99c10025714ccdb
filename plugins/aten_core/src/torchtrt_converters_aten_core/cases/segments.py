"""Cases of segments, quantiles and indices with masks of the valid ones."""

import math

import torch

from torchtrt_testing.cases import decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

I64, F16, BOOL = torch.int64, torch.float16, torch.bool
LENGTHS, OFFSETS = (
    TensorSpec(values=[2, 0, 3], dtype=I64),
    TensorSpec(values=[0, 1, 1, 5], dtype=I64),
)
ODD = TensorSpec(
    values=[[1.0, math.nan, 3.0, -2.0], [4.0, 0.5, 2.5, 8.0], [math.inf, 1.0, 2.0, 0.0]]
)
SEGMENTS = "aten.segment_reduce.default"
WIDE_INDICES = [
    TensorSpec(values=[[-9], [0], [4], [7]], dtype=I64),
    TensorSpec(values=[[0, -1, 12]], dtype=I64),
]
KNOWN = TensorSpec(
    values=[[False] * 3, [True, True, False], [True, True, False], [False] * 3], dtype=BOOL
)

CASES = [
    *[
        decomposition_case(
            SEGMENTS,
            "5 batch",
            reduce,
            lengths=LENGTHS,
            initial=initial,
            label=f"{reduce}-{initial}",
        )
        for reduce in ("sum", "mean", "prod", "max", "min")
        for initial in (None, 2.0)
    ],
    decomposition_case(SEGMENTS, "5 batch", "sum", offsets=OFFSETS, label="offsets"),
    decomposition_case(
        SEGMENTS,
        "2 5 batch",
        "mean",
        lengths=TensorSpec(values=[[2, 3], [5, 0]], dtype=I64),
        axis=1,
        label="second",
    ),
    *[
        decomposition_case(
            f"aten.{op}", ODD, q, dim, keep, interpolation=way, label=f"{way}{dim}{keep}"
        )
        for op, q in (
            ("quantile.default", TensorSpec(values=[0.0, 0.3, 1.0])),
            ("quantile.scalar", 0.4),
            ("nanquantile.default", TensorSpec(values=[0.0, 0.3, 1.0])),
            ("nanquantile.scalar", 0.4),
        )
        for way, dim, keep in (
            ("linear", None, False),
            ("linear", 1, True),
            ("lower", 0, False),
            ("higher", -1, False),
            ("midpoint", None, True),
            ("nearest", 1, False),
        )
    ],
    decomposition_case("aten.quantile.scalar", "", 0.5, label="no-dims"),
    decomposition_case("aten._unsafe_masked_index.default", "5 5", KNOWN, WIDE_INDICES, 7.0),
    decomposition_case(
        "aten._unsafe_masked_index_put_accumulate.default", "5 5", KNOWN, WIDE_INDICES, "4 3"
    ),
    *[
        decomposition_case(
            "aten.embedding_renorm.default",
            TensorSpec("6 4", dtype),
            TensorSpec(values=[[0, 2], [2, 5]], dtype=I64),
            1.5,
            order,
            label=f"{order}-{dtype}",
            tolerance=1e-5 if dtype is torch.float32 else 2e-3,
        )
        for order in (1.0, 2.0, math.inf)
        for dtype in (torch.float32, F16)
    ],
    op_case(
        (),
        "3 4",
        TensorSpec(values=[], dtype=I64),
        TensorSpec(values=[]),
        function=torch.put,
        label="put-nothing",
    ),
    *[
        decomposition_case(
            f"aten.fractional_max_pool{count}d.default",
            "2 3 " + " ".join("7865"[:count]),
            [2] * count,
            outputs[:count],
            TensorSpec(f"2 3 {count}", low=0, high=0.99),
            label=f"{outputs}",
        )
        for count in (2, 3)
        for outputs in ([3, 3, 3], [1, 5, 2])
    ],
]
