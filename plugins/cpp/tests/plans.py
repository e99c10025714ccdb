"""Plans of the stand-in, and the descriptions that a saved model would have of them."""

from __future__ import annotations

import json
import zlib
from typing import Any

TENSORRT = "TensorRT 10.16.1.11"
"""The version that the stand-in has."""
DOUBLE = """stand-in plan
input x float32
profile x 1,2 8,2
output y float32 x 2 1
"""
"""From a float32 tensor of 1 to 8 rows and 2 columns to ``2 * x + 1``."""


def describe(plan: str, **changes: Any) -> str:
    """Returns the description of a plan with one input ``x`` and one output ``y``; ``DOUBLE``'s sizes if not given."""
    data = plan.encode()
    sizes = {"min": [1, 2], "opt": [2, 2], "max": [8, 2]}
    fields = {
        "name": "block_0",
        "tensorrt": TENSORRT,
        "gpu": "",
        "inputs": [
            {
                "name": "x",
                "dtype": "float32",
                "shape": [-1, 2],
                **sizes,
                "ranges": [list(sizes.values())],
            }
        ],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [["symbol", [0, 0]], 2]}],
        "requires_output_allocator": False,
        "converted_by": {},
        "weights": None,
        "compatible": [],
        "compute_capabilities": [],
        "collectives": [],
        "plugins": [],
        "stripped": None,
        "plan_bytes": len(data),
        "plan_crc32": zlib.crc32(data),
    }
    return json.dumps({**fields, **changes})


def an_input(
    name: str, dtype: str, *ranges: tuple[list[int], list[int], list[int]]
) -> dict[str, Any]:
    """Returns the description of an input, whose ranges have a minimum, an optimum and a maximum shape each."""
    return {
        "name": name,
        "dtype": dtype,
        "shape": [-1],
        "ranges": [list(range_) for range_ in ranges],
    }


def an_output(name: str, dtype: str) -> dict[str, Any]:
    """Returns the description of an output whose size is in no description."""
    return {"name": name, "dtype": dtype, "shape": None}
