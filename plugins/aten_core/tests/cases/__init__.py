"""Cases for every op of the pack, one module for each family."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "activation",
    "attention",
    "cast",
    "convolution",
    "creation",
    "cumulation",
    "decompositions",
    "elementwise",
    "indexing",
    "matmul",
    "normalization",
    "padding",
    "pooling",
    "ranking",
    "reduction",
    "resizing",
    "shape",
    "slicing",
    "softmax",
    "symbolic",
    "unary",
)
CASES = [case for family in FAMILIES for case in import_module(f"{__name__}.{family}").CASES]
