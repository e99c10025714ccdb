"""Activation and parametric ReLU: every type, with and without alpha and beta, and edge values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, dynamic

TYPES = (
    *("RELU", "SIGMOID", "TANH", "LEAKY_RELU", "ELU", "SELU", "SOFTSIGN", "SOFTPLUS", "CLIP"),
    *("HARD_SIGMOID", "SCALED_TANH", "THRESHOLDED_RELU"),
)
PARAMETRISED = TYPES[3:6] + TYPES[7:]
ORDINARY = np.array([-3, -1, -0.25, 0, 0.5, 1, 3], np.float32)
EDGES = np.array([np.nan, np.inf, -np.inf, 100, -100], np.float32)
SLOPES = {
    "same shape": ((2, 3), (2, 3)),
    "broadcast": ((2, 3), (1, 3)),
    "broadcast all": ((2, 3), (1, 1)),
    "larger slopes": ((1, 3), (2, 3)),
    "rank mismatch": ((2, 3), (3,)),
    "scalar": ((), ()),
    "vector": ((3,), (3,)),
}


def case(name: str, kind: str, x: Given, types: tuple[str, ...] = (), **attributes: Any) -> Case:
    """A case of one input."""
    return Case(
        f"activation/{name}",
        {"x": x},
        lambda n: n.layer("activation", n["x"], f"ActivationType.{kind}", **attributes),
        types=types,
    )


def prelu(name: str, x: Given, slopes: Given) -> Case:
    """A case of parametric ReLU."""
    return Case(
        f"activation/PRELU/{name}",
        {"x": x, "slopes": slopes},
        lambda n: n.layer("parametric_relu", n["x"], n["slopes"]),
    )


def signed(shape: tuple[int, ...]) -> np.ndarray:
    """Numbers around zero in a shape."""
    count = int(np.prod(shape))
    return (np.arange(count, dtype=np.float32) - count // 2).reshape(shape)


CASES = (
    *(case(f"{kind}/defaults", kind, ORDINARY) for kind in TYPES),
    *(case(f"{kind}/parameters", kind, ORDINARY, alpha=0.75, beta=1.25) for kind in PARAMETRISED),
    *(case(f"{kind}/negative", kind, ORDINARY, alpha=-0.5, beta=-0.25) for kind in PARAMETRISED),
    *(case(f"{kind}/edges", kind, EDGES, alpha=0.5, beta=1.5) for kind in TYPES),
    *(
        case(f"{kind}/float16", kind, ORDINARY.astype(np.float16), ("HALF",), alpha=0.5, beta=1.5)
        for kind in TYPES
    ),
    *(
        case(f"{kind}/int32", kind, np.array([-1, 2], np.int32))
        for kind in ("RELU", "CLIP", "TANH")
    ),
    *(case(f"{kind}/bool", kind, np.array([True])) for kind in ("RELU", "SIGMOID")),
    *(
        case(f"{kind}/scalar", kind, np.array(-0.5, np.float32))
        for kind in ("RELU", "SIGMOID", "ELU")
    ),
    *(case(f"{kind}/dynamic", kind, dynamic(signed((2, 3)))) for kind in ("RELU", "TANH", "CLIP")),
    case("CLIP/crossed bounds", "CLIP", ORDINARY, alpha=2.0, beta=1.0),
    case("CLIP/infinite bounds", "CLIP", ORDINARY, alpha=-np.inf, beta=np.inf),
    case("RELU/empty", "RELU", np.zeros((0, 3), np.float32)),
    *(prelu(name, signed(x), np.full(s, 0.5, "f4")) for name, (x, s) in SLOPES.items()),
    prelu("dynamic", dynamic(signed((2, 3)), 0), np.full((1, 3), 0.5, np.float32)),
    prelu("int32", np.array([-1], np.int32), np.array([2], np.int32)),
    prelu("float16", signed((2, 3)).astype(np.float16), np.full((1, 3), 0.5, np.float16)),
)
