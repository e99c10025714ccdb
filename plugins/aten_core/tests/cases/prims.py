"""Cases of PyTorch's primitive ops."""

import torch

from ..harness import T, decomposed

I64 = torch.int64

CASES = [
    decomposed("prims.broadcast_in_dim.default", "3 4", [2, 3, 5, 4], [1, 3], label="beside"),
    decomposed("prims.broadcast_in_dim.default", "1 4", [6, 4], [0, 1]),
    decomposed("prims.div.default", "b 4", T("b 4", low=1.0)),
    decomposed("prims.div.default", T("b 4", I64, -9, 9), T("b 4", I64, 1, 4), label="int"),
    decomposed("prims.sum.default", "b 4 s", [0, 2]),
]
