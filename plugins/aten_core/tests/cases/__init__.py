"""Cases for every op of the pack, one module for each family."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "activation",
    "attention",
    "bitwise",
    "cast",
    "control_flow",
    "composed",
    "convolution",
    "creation",
    "cumulation",
    "decompositions",
    "elementwise",
    "embedding",
    "indexing",
    "linear_algebra",
    "matmul",
    "normalization",
    "padding",
    "polynomials",
    "pooling",
    "prims",
    "random",
    "ranking",
    "recurrent",
    "reduction",
    "resizing",
    "scatter",
    "segments",
    "shape",
    "slicing",
    "softmax",
    "special_functions",
    "symbolic",
    "unary",
)
CASES = [case for family in FAMILIES for case in import_module(f"{__name__}.{family}").CASES]
