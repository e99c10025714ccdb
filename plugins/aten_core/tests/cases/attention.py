"""Cases of attention."""

import math

import torch
import torch.nn.functional as F

from torchtrt.targets import parse_target

from ..harness import T, case

OP = "aten.scaled_dot_product_attention.default"
BOOL, F16 = torch.bool, torch.float16
Q, K = "b 2 s 4", "b 2 s 4"


def hidden_row(query, mask):
    """Returns attention in which the first query sees no key."""
    seen = mask & (torch.arange(query.shape[2]) > 0).unsqueeze(1)
    return F.scaled_dot_product_attention(query, query, query, seen)


def hidden_row_added(query, mask):
    """Returns attention in which minus infinity hides every key from the first query."""
    hidden = (torch.arange(query.shape[2]) == 0).unsqueeze(1)
    added = mask.masked_fill(hidden, -math.inf)
    return F.scaled_dot_product_attention(query, query, query, added)


def first(op):
    """Returns a function that calls a kernel and drops its outputs for training."""
    return lambda *args, **options: parse_target(op)(*args, **options)[0]


def kernel(op, *args, label="", **options):
    """Returns a case of a kernel of attention."""
    return case(op, *args, function=first(op), label=label, **options)


CPU = "aten._scaled_dot_product_flash_attention_for_cpu.default"
MATH = "aten._scaled_dot_product_attention_math.default"

CASES = [
    kernel(CPU, Q, K, K),
    kernel(CPU, "b 2 s 4", "b 2 s 4", "b 2 s 4", is_causal=True, label="causal"),
    kernel(CPU, Q, K, K, attn_mask=T("b 1 s s"), scale=0.3, label="mask"),
    kernel(MATH, Q, K, K),
    kernel(MATH, Q, K, K, T("s s"), label="added-mask"),
    kernel(MATH, "b 4 s 4", "b 2 s 4", "b 2 s 4", enable_gqa=True, label="grouped"),
    case(OP, Q, K, K),
    case(OP, "b s 4", "b 3 4", "b 3 5", label="rank-3-wider-value"),
    case(OP, Q, K, K, is_causal=True, label="causal"),
    case(OP, "b 2 s 4", "b 2 5 4", "b 2 5 4", is_causal=True, label="causal-other-length"),
    case(OP, "2 1 4 4", "2 1 4 4", "2 1 4 4", is_causal=True, label="causal-static"),
    case(OP, Q, K, K, T("b 1 s s", BOOL), label="bool-mask"),
    case(OP, Q, K, K, T("s s"), label="added-mask"),
    case(OP, Q, K, K, scale=0.3, label="scale"),
    case(OP, "b 4 s 4", "b 2 s 4", "b 2 s 4", enable_gqa=True, label="grouped"),
    case(OP, Q, T("s s", BOOL), function=hidden_row, label="query-without-keys"),
    *[
        kernel(CPU, queries, keys, keys, is_causal=True, attn_mask=mask, label=f"causal-{label}")
        for label, queries, keys, mask in (
            ("added-mask", Q, K, T("b 1 s s")),
            ("fixed-mask", "b 2 4 4", "b 2 4 4", T("4 4")),
            ("query-without-keys", "b 2 2 4", "b 2 2 4", T(values=[[-math.inf, 1.0], [0.5, 1.0]])),
        )
    ],
    case(OP, Q, T("s s"), function=hidden_row_added, label="query-without-keys-added"),
    case(
        OP,
        T("b 2 s 4", F16),
        T("b 2 s 4", F16),
        T("b 2 s 4", F16),
        T("s s", F16),
        label="half",
        tolerance=5e-3,
    ),
]
