"""Cases of tensors made from sizes and numbers."""

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

I64, BOOL, F16 = torch.int64, torch.bool, torch.float16

CASES = [
    op_case(
        "aten.zeros.default", "batch length", function=lambda x: torch.zeros(x.shape[1], 3) + 1
    ),
    op_case(
        "aten.ones.default",
        "batch length",
        function=lambda x: torch.ones(x.shape[0], x.shape[1], dtype=BOOL),
    ),
    op_case("aten.full.default", "batch length", function=lambda x: torch.full((x.shape[1],), 7)),
    op_case(
        "aten.full.default",
        "batch length",
        function=lambda x: torch.full((2,), x.shape[1]),
        label="size",
    ),
    op_case("aten.new_zeros.default", "batch length", function=lambda x: x.new_zeros(x.shape[0])),
    op_case(
        "aten.new_ones.default",
        "batch length",
        function=lambda x: x.new_ones(x.shape[0], 2, dtype=I64),
    ),
    op_case(
        "aten.new_full.default",
        "batch length",
        function=lambda x: x.new_full((x.shape[0], 1), -1.5),
    ),
    op_case(
        "aten.empty.memory_format",
        "batch length",
        function=lambda x: torch.full_like(torch.empty(x.shape[0], 2), 2),
    ),
    op_case(
        "aten.new_empty.default",
        "batch length",
        function=lambda x: torch.full_like(x.new_empty(x.shape[1]), 2),
    ),
    op_case(
        "aten.empty_strided.default",
        "batch length",
        function=lambda x: torch.full_like(torch.empty_strided((x.shape[0], 2), (2, 1)), 2),
    ),
    op_case(
        "aten.empty_permuted.default",
        "batch length",
        function=lambda x: torch.full_like(torch.empty_permuted((x.shape[0], 2), (0, 1)), 2),
    ),
    op_case(
        "aten.new_empty_strided.default",
        "batch length",
        function=lambda x: torch.full_like(x.new_empty_strided((x.shape[1], 2), (2, 1)), 2),
    ),
    op_case(
        "aten.empty_like.default",
        "batch length",
        function=lambda x: torch.full_like(torch.empty_like(x), 2),
    ),
    op_case("aten.zeros_like.default", "batch length"),
    op_case("aten.ones_like.default", "batch length", dtype=I64),
    op_case("aten.full_like.default", TensorSpec("batch length", I64), 3),
    op_case("aten.fill.Scalar", "batch length", 2),
    op_case("aten.fill.Tensor", "batch length", ""),
    op_case(
        "aten.scalar_tensor.default",
        "batch length",
        function=lambda x: torch.ops.aten.scalar_tensor(x.shape[1]) * x,
    ),
    op_case("aten.arange.default", "batch length", function=lambda x: torch.arange(x.shape[1])),
    op_case(
        "aten.arange.default",
        "batch length",
        function=lambda x: torch.arange(x.shape[1], dtype=torch.float32),
        label="float",
    ),
    op_case(
        "aten.arange.start", "batch length", function=lambda x: torch.arange(1, x.shape[1] + 1)
    ),
    op_case(
        "aten.arange.start_step", "batch length", function=lambda x: torch.arange(0, x.shape[1], 2)
    ),
    op_case(
        "aten.arange.start_step",
        "batch length",
        function=lambda x: torch.arange(x.shape[1], 0, -1),
        label="down",
    ),
    op_case("aten.tril.default", "batch length length"),
    op_case("aten.tril.default", TensorSpec("5 length", I64), 1, label="int-diagonal"),
    op_case("aten.triu.default", "batch length length", -1),
    op_case("aten.triu.default", TensorSpec("4 5", BOOL), 1, label="bool"),
]
