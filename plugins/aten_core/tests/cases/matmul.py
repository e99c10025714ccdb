"""Cases of products of matrices and vectors."""

import torch
import torch.nn.functional as F

from ..harness import T, case

F16, I64, I32 = torch.float16, torch.int64, torch.int32
W = torch.linspace(-1, 1, 12).reshape(3, 4)

CASES = [
    case("aten.matmul.default", "b s 4", "b 4 s"),
    case("aten.matmul.default", "s 4", "b 4 3", label="broadcast"),
    case("aten.matmul.default", "4", "b 4 3", label="vector-first"),
    case("aten.matmul.default", "b 3 4", "4", label="vector-second"),
    case("aten.matmul.default", "4", "4", label="vectors"),
    case("aten.matmul.default", "5 1 b 4", "2 4 s", label="batch-ranks"),
    case("aten.matmul.default", T("b 4", F16), T("4 3", F16), label="half", tolerance=3e-3),
    case("aten.matmul.default", "b 4", function=lambda x: x @ W.T, label="constant"),
    *[
        case(
            "aten.matmul.default",
            T(first, I64, -(2**14), 2**14),
            T(second, I64, -(2**14), 2**14),
            label=f"whole-{label}",
        )
        for label, first, second in (
            ("matrices", "b 3 4", "b 4 s"),
            ("broadcast", "s 4", "b 4 3"),
            ("vector-first", "4", "b 4 3"),
            ("vector-second", "b 3 4", "4"),
            ("vectors", "4", "4"),
        )
    ],
    case(
        "aten.addmm.default",
        T("3", I64),
        T("b 4", I64),
        T("4 3", I64),
        beta=2,
        alpha=3,
        label="whole",
    ),
    case("aten.linear.default", T("b s 4", I64), T("3 4", I64), T("3", I64), label="whole"),
    case("aten.linear.default", T("4", I32), T("3 4", I32), label="whole-vector"),
    case("aten.mm.default", "b 4", "4 s"),
    case("aten.bmm.default", "b s 4", "b 4 3"),
    case("aten.mv.default", "b 4", "4"),
    case("aten.dot.default", "s", "s"),
    case("aten.addmm.default", "3", "b 4", "4 3", beta=0.5, alpha=2),
    case("aten.addmm.default", "b 3", "b 4", "4 3", beta=0, label="beta-0"),
    case("aten.addmv.default", "b", "b 4", "4"),
    case("aten.baddbmm.default", "b s 3", "b s 4", "b 4 3", alpha=0.5),
    case("aten.linear.default", "b s 4", function=lambda x: F.linear(x, W, torch.ones(3))),
    case("aten.linear.default", "b 4", function=lambda x: F.linear(x, W), label="no-bias"),
    case(
        "aten.linear.default", "4", function=lambda x: F.linear(x, W, torch.ones(3)), label="vector"
    ),
    case("aten.linear.default", "b s 4", "3 4", "3", label="dynamic-weight"),
    case(
        "aten.linear.default",
        T("b 4", F16),
        function=lambda x: F.linear(x, W.half()),
        label="half",
        tolerance=3e-3,
    ),
]
