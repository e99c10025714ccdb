"""Cases of attention."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from torchtrt.targets import parse_target
from torchtrt_testing.cases import OpCase, op_case
from torchtrt_testing.tensors import TensorSpec

OP = "aten.scaled_dot_product_attention.default"
BOOL, F16 = torch.bool, torch.float16
Q, K = "batch 2 length 4", "batch 2 length 4"


def hidden_row(query: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns attention in which the first query sees no key."""
    seen = mask & (torch.arange(query.shape[2]) > 0).unsqueeze(1)
    return F.scaled_dot_product_attention(query, query, query, seen)


def hidden_row_added(query: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns attention in which minus infinity hides every key from the first query."""
    hidden = (torch.arange(query.shape[2]) == 0).unsqueeze(1)
    added = mask.masked_fill(hidden, -math.inf)
    return F.scaled_dot_product_attention(query, query, query, added)


def first(op: str) -> Callable[..., Any]:
    """Returns a function that calls a kernel and drops its outputs for training."""
    return lambda *args, **options: parse_target(op)(*args, **options)[0]


def kernel(op: str, *args: Any, label: str = "", **options: Any) -> OpCase:
    """Returns a case of a kernel of attention."""
    return op_case(op, *args, function=first(op), label=label, **options)


CPU = "aten._scaled_dot_product_flash_attention_for_cpu.default"
MATH = "aten._scaled_dot_product_attention_math.default"

CASES = [
    kernel(CPU, Q, K, K),
    kernel(
        CPU,
        "batch 2 length 4",
        "batch 2 length 4",
        "batch 2 length 4",
        is_causal=True,
        label="causal",
    ),
    kernel(CPU, Q, K, K, attn_mask=TensorSpec("batch 1 length length"), scale=0.3, label="mask"),
    kernel(
        CPU, "batch 4 length 4", "batch 2 length 4", "batch 2 length 4", label="fewer-heads-of-keys"
    ),
    kernel(MATH, Q, K, K),
    kernel(MATH, Q, K, K, TensorSpec("length length"), label="added-mask"),
    kernel(
        MATH,
        "batch 4 length 4",
        "batch 2 length 4",
        "batch 2 length 4",
        enable_gqa=True,
        label="grouped",
    ),
    op_case(OP, Q, K, K),
    op_case(OP, "batch length 4", "batch 3 4", "batch 3 5", label="rank-3-wider-value"),
    op_case(OP, Q, K, K, is_causal=True, label="causal"),
    op_case(
        OP,
        "batch 2 length 4",
        "batch 2 5 4",
        "batch 2 5 4",
        is_causal=True,
        label="causal-other-length",
    ),
    op_case(OP, "2 1 4 4", "2 1 4 4", "2 1 4 4", is_causal=True, label="causal-static"),
    op_case(OP, Q, K, K, TensorSpec("batch 1 length length", BOOL), label="bool-mask"),
    op_case(OP, Q, K, K, TensorSpec("length length"), label="added-mask"),
    op_case(OP, Q, K, K, scale=0.3, label="scale"),
    op_case(
        OP,
        "batch 4 length 4",
        "batch 2 length 4",
        "batch 2 length 4",
        enable_gqa=True,
        label="grouped",
    ),
    op_case(
        OP, Q, TensorSpec("length length", BOOL), function=hidden_row, label="query-without-keys"
    ),
    *[
        kernel(CPU, queries, keys, keys, is_causal=True, attn_mask=mask, label=f"causal-{label}")
        for label, queries, keys, mask in (
            ("added-mask", Q, K, TensorSpec("batch 1 length length")),
            ("fixed-mask", "batch 2 4 4", "batch 2 4 4", TensorSpec("4 4")),
            (
                "query-without-keys",
                "batch 2 2 4",
                "batch 2 2 4",
                TensorSpec(values=[[-math.inf, 1.0], [0.5, 1.0]]),
            ),
        )
    ],
    op_case(
        OP,
        Q,
        TensorSpec("length length"),
        function=hidden_row_added,
        label="query-without-keys-added",
    ),
    op_case(
        OP,
        TensorSpec("batch 2 length 4", F16),
        TensorSpec("batch 2 length 4", F16),
        TensorSpec("batch 2 length 4", F16),
        TensorSpec("length length", F16),
        label="half",
        tolerance=5e-3,
    ),
]
