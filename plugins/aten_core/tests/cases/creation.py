"""Cases of tensors made from sizes and numbers."""

import torch

from ..harness import T, case

I64, BOOL, F16 = torch.int64, torch.bool, torch.float16

CASES = [
    case("aten.zeros.default", "b s", function=lambda x: torch.zeros(x.shape[1], 3) + 1),
    case(
        "aten.ones.default",
        "b s",
        function=lambda x: torch.ones(x.shape[0], x.shape[1], dtype=BOOL),
    ),
    case("aten.full.default", "b s", function=lambda x: torch.full((x.shape[1],), 7)),
    case("aten.full.default", "b s", function=lambda x: torch.full((2,), x.shape[1]), label="size"),
    case("aten.new_zeros.default", "b s", function=lambda x: x.new_zeros(x.shape[0])),
    case("aten.new_ones.default", "b s", function=lambda x: x.new_ones(x.shape[0], 2, dtype=I64)),
    case("aten.new_full.default", "b s", function=lambda x: x.new_full((x.shape[0], 1), -1.5)),
    case(
        "aten.empty.memory_format",
        "b s",
        function=lambda x: torch.full_like(torch.empty(x.shape[0], 2), 2),
    ),
    case(
        "aten.new_empty.default",
        "b s",
        function=lambda x: torch.full_like(x.new_empty(x.shape[1]), 2),
    ),
    case(
        "aten.empty_strided.default",
        "b s",
        function=lambda x: torch.full_like(torch.empty_strided((x.shape[0], 2), (2, 1)), 2),
    ),
    case(
        "aten.empty_permuted.default",
        "b s",
        function=lambda x: torch.full_like(torch.empty_permuted((x.shape[0], 2), (0, 1)), 2),
    ),
    case(
        "aten.new_empty_strided.default",
        "b s",
        function=lambda x: torch.full_like(x.new_empty_strided((x.shape[1], 2), (2, 1)), 2),
    ),
    case(
        "aten.empty_like.default", "b s", function=lambda x: torch.full_like(torch.empty_like(x), 2)
    ),
    case("aten.zeros_like.default", "b s"),
    case("aten.ones_like.default", "b s", dtype=I64),
    case("aten.full_like.default", T("b s", I64), 3),
    case("aten.fill.Scalar", "b s", 2),
    case("aten.fill.Tensor", "b s", ""),
    case(
        "aten.scalar_tensor.default",
        "b s",
        function=lambda x: torch.ops.aten.scalar_tensor(x.shape[1]) * x,
    ),
    case("aten.arange.default", "b s", function=lambda x: torch.arange(x.shape[1])),
    case(
        "aten.arange.default",
        "b s",
        function=lambda x: torch.arange(x.shape[1], dtype=torch.float32),
        label="float",
    ),
    case("aten.arange.start", "b s", function=lambda x: torch.arange(1, x.shape[1] + 1)),
    case("aten.arange.start_step", "b s", function=lambda x: torch.arange(0, x.shape[1], 2)),
    case(
        "aten.arange.start_step",
        "b s",
        function=lambda x: torch.arange(x.shape[1], 0, -1),
        label="down",
    ),
    case("aten.tril.default", "b s s"),
    case("aten.tril.default", T("5 s", I64), 1, label="int-diagonal"),
    case("aten.triu.default", "b s s", -1),
    case("aten.triu.default", T("4 5", BOOL), 1, label="bool"),
]
