"""Cases of running totals."""

import math

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

I64, F16, BOOL = torch.int64, torch.float16, torch.bool
NAN, INF = math.nan, math.inf
ODD = TensorSpec(values=[[1.0, 3.0, NAN, 2.0, NAN, INF, 3.0], [2.0, 2.0, -INF, 1.0, 2.0, INF, INF]])
INFINITE = TensorSpec(
    values=[
        [-INF, -INF, 1.0, -INF, INF, 3.0, -INF],
        [-INF] * 7,
        [INF, -INF, INF, 1.0, NAN, INF, 0.0],
        [NAN, -INF, INF, 1.0, 2.0, 3.0, -INF],
        [0.0, 60.0, -3e38, 3e38, -INF, 1e30, 5.0],
    ]
)
WHOLE = TensorSpec(values=[-INF, -INF, -200.0, 0.0, 300.0, 299.0, 65504.0, INF, NAN], dtype=F16)
TIES = TensorSpec(
    values=[[1, 3, 3, 2, 1, 1, 3], [2**25, 2**25 + 1, -5, 2**25 + 1, 0, 0, 0]], dtype=torch.int64
)


CASES = [
    op_case("aten.cumsum.default", "batch 7", 1),
    op_case("aten.cumsum.default", TensorSpec("batch 7", I64), -1, label="int"),
    op_case("aten.cumsum.default", TensorSpec("batch 7", BOOL), 1, label="bool"),
    op_case("aten.cumsum.default", TensorSpec("batch 7", F16), 1, label="half", tolerance=3e-3),
    op_case(
        "aten.cumsum.default",
        TensorSpec("batch 5", I64),
        1,
        dtype=torch.float32,
        label="int-as-float",
    ),
    op_case("aten.cumsum.default", "", 0, label="scalar"),
    op_case("aten.cumprod.default", "batch 6", 1),
    op_case("aten.cumprod.default", TensorSpec("5 batch", I64, -3, 3), 0, label="int"),
    op_case("aten.cumsum.default", "batch length", 1, label="dynamic"),
    op_case("aten.cumprod.default", "batch length", -1, label="dynamic"),
    op_case("aten.cumprod.default", TensorSpec("length batch", I64, -3, 3), 0, label="dynamic-int"),
    op_case("aten.logcumsumexp.default", "batch 7", 1),
    op_case("aten.logcumsumexp.default", "batch length", 1, label="dynamic"),
    op_case(
        "aten.logcumsumexp.default",
        TensorSpec(values=[-INF, -INF, -200.0, 0.0, 300.0, 299.0]),
        0,
        label="far",
    ),
    op_case("aten.logcumsumexp.default", TensorSpec("", F16), 0, label="scalar"),
    op_case("aten.logcumsumexp.default", INFINITE, 1, label="infinite"),
    op_case("aten.logcumsumexp.default", WHOLE, 0, label="infinite-half"),
    op_case(
        "aten.logcumsumexp.default",
        TensorSpec("batch length", F16),
        0,
        label="dynamic-half",
        tolerance=3e-3,
    ),
    op_case(
        "aten.logcumsumexp.default",
        "batch row",
        1,
        label="dynamic-long",
        dimensions={"row": (1, 300, 2000)},
    ),
    *[
        op_case(f"aten.{name}.default", INFINITE, 1, label="infinite")
        for name in ("cummax", "cummin")
    ],
    *[
        op_case(
            f"aten.{name}.default",
            "batch length",
            function=lambda x, op=op: op(torch.where(x > 1, x, -math.inf), 1),
            label="dynamic-infinite",
        )
        for name in ("cummax", "logcumsumexp")
        for op in [getattr(torch, name)]
    ],
    *[
        op_case(f"aten.{name}.default", *args, label=label)
        for name in ("cummax", "cummin")
        for label, args in (
            ("", ("batch 7", 1)),
            ("dynamic", ("length batch", 0)),
            ("odd", (ODD, 1)),
            ("ties", (TIES, -1)),
            ("bool", (TensorSpec("batch 5", BOOL), 1)),
            ("scalar", ("", 0)),
        )
    ],
]
