"""Cases of attention over cached and new keys."""

from __future__ import annotations

import torch

from torchtrt_testing.cases import OpCase, decomposition_case
from torchtrt_testing.tensors import TensorSpec

OP = "torchtrt_transformers.cached_attention.default"
DIMENSIONS = {"new": (1, 3, 6), "cached": (1, 9, 40)}


def allowed(*sizes: int | str) -> TensorSpec:
    """Returns booleans: which keys may be read."""
    return TensorSpec(" ".join(map(str, sizes)), dtype=torch.bool)


def case(
    query_heads: int,
    heads: int,
    *,
    cached: bool = True,
    softcap: float | None = None,
    rows: str = "1",
    half: bool = False,
    label: str,
) -> OpCase:
    """Returns a case with so many heads; ``rows`` are those of the cache's mask.

    In float16 sums of products are rounded before they are added, and in another order.
    """
    new = f"batch {heads} new 8"
    past = f"batch {heads} cached 8"
    return decomposition_case(
        OP,
        f"batch {query_heads} new 8",
        new,
        new,
        allowed("batch", 1, "new", "new"),
        past if cached else None,
        past if cached else None,
        allowed("batch", 1, rows, "cached") if cached else None,
        0.35,
        softcap,
        dtypes=(torch.float16,) if half else (torch.float32,),
        tolerance=5e-3 if half else None,
        dimensions=DIMENSIONS,
        label=label,
    )


CASES = (
    case(4, 4, label="as many keys as queries"),
    case(6, 2, rows="new", label="grouped queries and a mask for each token"),
    case(4, 1, softcap=2.0, label="capped scores"),
    case(4, 2, softcap=2.0, cached=False, label="capped scores without a cache"),
    case(4, 2, half=True, label="in float16"),
)
