"""Cases of special functions: ranges in which they change their character, and their edges."""

import math
from collections.abc import Sequence

import torch

from torchtrt_testing.cases import decomposition_case
from torchtrt_testing.tensors import TensorSpec

NAN, INF = math.nan, math.inf
EDGES = [INF, -INF, NAN, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5]


def over(low: float, high: float, edges: Sequence[float] = EDGES) -> TensorSpec:
    """Returns numbers at equal distances from ``low`` to ``high``, and edges."""
    return TensorSpec(values=[*torch.linspace(low, high, 301).tolist(), *edges])


RANGES = {
    "erfc.default": [over(-5, 8)],
    "special_erfcx.default": [over(-5, 50)],
    "erfinv.default": [over(-1, 1)],
    "special_ndtri.default": [over(0, 1, [*EDGES, 1e-30, 1e-7])],
    "special_log_ndtr.default": [over(-60, 8)],
    "lgamma.default": [over(-7.9, 0.9), over(0.1, 90), over(0.9, 2.1)],
    "digamma.default": [over(-7.9, 0.9, [*EDGES, -3.0]), over(0.1, 90)],
    "special_i0e.default": [over(-60, 60)],
    "special_i1e.default": [over(-60, 60)],
    "i0.default": [over(-60, 60)],
    "special_i1.default": [over(-60, 60)],
    "special_modified_bessel_i0.default": [over(-60, 60)],
    "special_modified_bessel_i1.default": [over(-60, 60)],
    "special_bessel_j0.default": [over(-40, 40)],
    "special_bessel_j1.default": [over(-40, 40)],
    "special_bessel_y0.default": [over(0.01, 40)],
    "special_bessel_y1.default": [over(0.01, 40)],
    "special_modified_bessel_k0.default": [over(0.01, 20)],
    "special_modified_bessel_k1.default": [over(0.01, 20)],
    "special_scaled_modified_bessel_k0.default": [over(0.01, 60)],
    "special_scaled_modified_bessel_k1.default": [over(0.01, 60)],
    "special_spherical_bessel_j0.default": [over(-20, 20)],
    "special_entr.default": [over(-1, 3)],
    "logit.default": [over(0, 1)],
}

WITHOUT_HALF = [op for op in RANGES if any(part in op for part in ("erfcx", "ndtr", "bessel"))]
"""Functions that PyTorch does not compute in half precision on a CPU."""

CASES = [
    *[
        decomposition_case(f"aten.{op}", values, label=f"range{index or ''}")
        for op, ranges in RANGES.items()
        for index, values in enumerate(ranges)
    ],
    *[
        decomposition_case(
            f"aten.{op}",
            TensorSpec("batch length", torch.float16, 0.1, 0.9),
            tolerance=2e-3,
            label="half",
        )
        for op in RANGES
        if op not in WITHOUT_HALF
    ],
    *[
        decomposition_case(f"aten.{op}", TensorSpec("batch length", torch.int64, 1, 3), label="int")
        for op in ("erfc.default", "lgamma.default")
    ],
    decomposition_case("aten.logit.default", over(0, 1), 0.1, label="limited"),
    decomposition_case("aten.polygamma.default", 0, over(0.1, 30), label="digamma"),
    decomposition_case("aten.polygamma.default", 1, over(0.1, 30, [])),
    decomposition_case(
        "aten.polygamma.default", 1, TensorSpec(values=[-7.5, -3.3, -0.4, 0.2]), label="negative"
    ),
    *[
        decomposition_case(
            "aten.polygamma.default", n, TensorSpec(values=values), label=f"order{n}-{label}"
        )
        for n in (2, 3, 4, 7)
        for label, values in (
            ("positive", [0.1, 0.4, 0.6, 1.0, 2.5, 9.0, 30.0]),
            ("negative", [-7.5, -3.3, -0.4, 0.2]),
        )
    ],
]
