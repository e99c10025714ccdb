"""Cases of products of matrices and vectors."""

import torch
import torch.nn.functional as F

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

F16, I64, I32 = torch.float16, torch.int64, torch.int32
W = torch.linspace(-1, 1, 12).reshape(3, 4)

CASES = [
    op_case("aten.matmul.default", "batch length 4", "batch 4 length"),
    op_case("aten.matmul.default", "length 4", "batch 4 3", label="broadcast"),
    op_case("aten.matmul.default", "4", "batch 4 3", label="vector-first"),
    op_case("aten.matmul.default", "batch 3 4", "4", label="vector-second"),
    op_case("aten.matmul.default", "4", "4", label="vectors"),
    op_case("aten.matmul.default", "5 1 batch 4", "2 4 length", label="batch-ranks"),
    op_case(
        "aten.matmul.default",
        TensorSpec("batch 4", F16),
        TensorSpec("4 3", F16),
        label="half",
        tolerance=3e-3,
    ),
    op_case(
        "aten.matmul.default", "batch 4", function=lambda x: x @ W.to(x.dtype).T, label="constant"
    ),
    *[
        op_case(
            "aten.matmul.default",
            TensorSpec(first, I64, -(2**14), 2**14),
            TensorSpec(second, I64, -(2**14), 2**14),
            label=f"whole-{label}",
        )
        for label, first, second in (
            ("matrices", "batch 3 4", "batch 4 length"),
            ("broadcast", "length 4", "batch 4 3"),
            ("vector-first", "4", "batch 4 3"),
            ("vector-second", "batch 3 4", "4"),
            ("vectors", "4", "4"),
        )
    ],
    op_case(
        "aten.addmm.default",
        TensorSpec("3", I64),
        TensorSpec("batch 4", I64),
        TensorSpec("4 3", I64),
        beta=2,
        alpha=3,
        label="whole",
    ),
    op_case(
        "aten.linear.default",
        TensorSpec("batch length 4", I64),
        TensorSpec("3 4", I64),
        TensorSpec("3", I64),
        label="whole",
    ),
    op_case(
        "aten.linear.default", TensorSpec("4", I32), TensorSpec("3 4", I32), label="whole-vector"
    ),
    op_case("aten.mm.default", "batch 4", "4 length"),
    op_case("aten.bmm.default", "batch length 4", "batch 4 3"),
    op_case("aten.mv.default", "batch 4", "4"),
    op_case("aten.dot.default", "length", "length"),
    op_case("aten.addmm.default", "3", "batch 4", "4 3", beta=0.5, alpha=2),
    op_case("aten.addmm.default", "batch 3", "batch 4", "4 3", beta=0, label="beta-0"),
    op_case("aten.addmv.default", "batch", "batch 4", "4"),
    op_case("aten.baddbmm.default", "batch length 3", "batch length 4", "batch 4 3", alpha=0.5),
    op_case(
        "aten.linear.default",
        "batch length 4",
        function=lambda x: F.linear(x, W.to(x.dtype), torch.ones(3, dtype=x.dtype)),
    ),
    op_case(
        "aten.linear.default",
        "batch 4",
        function=lambda x: F.linear(x, W.to(x.dtype)),
        label="no-bias",
    ),
    op_case(
        "aten.linear.default",
        "4",
        function=lambda x: F.linear(x, W.to(x.dtype), torch.ones(3, dtype=x.dtype)),
        label="vector",
    ),
    op_case("aten.linear.default", "batch length 4", "3 4", "3", label="dynamic-weight"),
    op_case("aten.linear.default", "batch 1 4", "3 4", "3", label="one-row"),
    op_case(
        "aten.linear.default",
        TensorSpec("batch 4", F16),
        function=lambda x: F.linear(x, W.half()),
        label="half",
        tolerance=3e-3,
    ),
]
