"""Cases of running totals."""

import math

import torch

from ..harness import T, case

I64, F16, BOOL = torch.int64, torch.float16, torch.bool
NAN, INF = math.nan, math.inf
ODD = T(values=[[1.0, 3.0, NAN, 2.0, NAN, INF, 3.0], [2.0, 2.0, -INF, 1.0, 2.0, INF, INF]])
TIES = T(
    values=[[1, 3, 3, 2, 1, 1, 3], [2**25, 2**25 + 1, -5, 2**25 + 1, 0, 0, 0]], dtype=torch.int64
)


CASES = [
    case("aten.cumsum.default", "b 7", 1),
    case("aten.cumsum.default", T("b 7", I64), -1, label="int"),
    case("aten.cumsum.default", T("b 7", BOOL), 1, label="bool"),
    case("aten.cumsum.default", T("b 7", F16), 1, label="half", tolerance=3e-3),
    case("aten.cumsum.default", T("b 5", I64), 1, dtype=torch.float32, label="int-as-float"),
    case("aten.cumsum.default", "", 0, label="scalar"),
    case("aten.cumprod.default", "b 6", 1),
    case("aten.cumprod.default", T("5 b", I64, -3, 3), 0, label="int"),
    case("aten.cumsum.default", "b s", 1, label="dynamic"),
    case("aten.cumprod.default", "b s", -1, label="dynamic"),
    case("aten.cumprod.default", T("s b", I64, -3, 3), 0, label="dynamic-int"),
    case("aten.logcumsumexp.default", "b 7", 1),
    case("aten.logcumsumexp.default", "b s", 1, label="dynamic"),
    case(
        "aten.logcumsumexp.default",
        T(values=[-INF, -INF, -200.0, 0.0, 300.0, 299.0]),
        0,
        label="far",
    ),
    case("aten.logcumsumexp.default", T("", F16), 0, label="scalar"),
    *[
        case(f"aten.{name}.default", *args, label=label)
        for name in ("cummax", "cummin")
        for label, args in (
            ("", ("b 7", 1)),
            ("dynamic", ("s b", 0)),
            ("odd", (ODD, 1)),
            ("ties", (TIES, -1)),
            ("bool", (T("b 5", BOOL), 1)),
            ("scalar", ("", 0)),
        )
    ],
]
