"""Cases for every op of the pack, one module for each family."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "activation",
    "attention",
    "cast",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "matmul",
    "normalization",
    "pooling",
    "reduction",
    "shape",
    "slicing",
    "softmax",
    "symbolic",
    "unary",
)
CASES = [
    case
    for family in FAMILIES
    for case in import_module(f"{__name__}.{family}").CASES
]
