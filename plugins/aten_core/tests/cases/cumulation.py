"""Cases of running totals."""

import torch

from ..harness import T, case

I64, F16, BOOL = torch.int64, torch.float16, torch.bool

CASES = [
    case("aten.cumsum.default", "b 7", 1),
    case("aten.cumsum.default", T("b 7", I64), -1, label="int"),
    case("aten.cumsum.default", T("b 7", BOOL), 1, label="bool"),
    case("aten.cumsum.default", T("b 7", F16), 1, label="half", tolerance=3e-3),
    case("aten.cumsum.default", T("b 5", I64), 1, dtype=torch.float32, label="int-as-float"),
    case("aten.cumsum.default", "", 0, label="scalar"),
    case("aten.cumprod.default", "b 6", 1),
    case("aten.cumprod.default", T("5 b", I64, -3, 3), 0, label="int"),
]
