"""TopK: order, ties, NaN, k, axes, ranks and types."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, dynamic

ROWS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], np.float32)
NAN_ROW = np.array([[1, np.nan, 3, -np.inf, np.inf]], np.float32)
ONES = {rank: np.arange(2.0, dtype="f4").reshape((2,) + (1,) * (rank - 1)) for rank in range(1, 7)}


def case(name: str, operation: str, x: Given, k: int, axes: int, **more: Any) -> Case:
    """A case of one input."""
    return Case(
        f"top_k/{operation}/{name}",
        {"x": x},
        lambda n: n.layer("topk", n["x"], f"TopKOperation.{operation}", k, axes),
        **more,
    )


def of_large(k: int) -> Any:
    """The sum of the k largest of 5000 numbers."""

    def build(n: Network) -> Any:
        values = n.layer("topk", n["x"], "TopKOperation.MAX", k, 2).get_output(0)
        return n.layer("reduce", values, "ReduceOperation.SUM", 2, False)

    return build


def k_as_tensor(constant: bool) -> Any:
    """K from a constant, or from the size of another input."""

    def build(n: Network) -> Any:
        layer = n.layer("topk", n["x"], "TopKOperation.MAX", 1, 2)
        layer.set_input(1, n.scalar(2) if constant else n.size(n["like"], 0))
        return layer

    return build


CASES = (
    *(
        case(f"k {k} {axis}", op, ROWS, k, mask)
        for op in ("MAX", "MIN")
        for axis, mask in (("last", 2), ("first", 1))
        for k in (1, 2)
    ),
    *(case("whole row", op, ROWS, 5, 2) for op in ("MAX", "MIN")),
    *(case("ties", op, np.ones((1, 4), np.float32), 4, 2) for op in ("MAX", "MIN")),
    *(case("nan and inf", op, NAN_ROW, 5, 2) for op in ("MAX", "MIN")),
    *(case("nan and inf, one", op, NAN_ROW, 1, 2) for op in ("MAX", "MIN")),
    *(
        case(f"row of {value}", op, np.full((1, 3), value, np.float32), k, 2)
        for op, value, k in (
            ("MAX", -np.inf, 1),
            ("MAX", np.nan, 2),
            ("MIN", np.inf, 1),
            ("MIN", np.nan, 2),
        )
    ),
    *(case("k above the dimension", op, ROWS, 6, 2) for op in ("MAX", "MIN")),
    *(case("k 0", op, ROWS, 0, 2) for op in ("MAX", "MIN")),
    *(case("float16", op, ROWS.astype(np.float16), 2, 2) for op in ("MAX", "MIN")),
    *(case("int32", op, ROWS.astype(np.int32), 2, 2) for op in ("MAX", "MIN")),
    *(case("bool", op, ROWS > 3, 2, 2) for op in ("MAX", "MIN")),
    *(case("dynamic", op, dynamic(ROWS), 1, 2) for op in ("MAX", "MIN")),
    case("dynamic, k above the smallest", "MAX", dynamic(ROWS), 2, 2),
    *(case(f"rank {rank} first axis", "MAX", x, 1, 1) for rank, x in ONES.items()),
    *(case(f"rank {rank} last axis", "MAX", x, 1, 1 << rank - 1) for rank, x in ONES.items()),
    case("mask 0", "MAX", ROWS, 1, 0),
    case("two axes", "MAX", ROWS, 1, 3),
    case("axis beyond the rank", "MAX", ROWS, 1, 4),
    case("scalar", "MAX", np.array(1.0, np.float32), 1, 1),
    case("no rows", "MAX", np.zeros((0, 3), np.float32), 1, 2),
    case("no columns", "MAX", np.zeros((2, 0), np.float32), 1, 2),
    *(
        Case(
            f"top_k/k {k} of 5000",
            {"x": np.arange(5000, dtype="f4").reshape(1, -1)},
            of_large(k),
            tolerance=1e-4,
        )
        for k in (3840, 3841)
    ),
    Case("top_k/k as a constant tensor", {"x": ROWS}, k_as_tensor(True)),
    Case(
        "top_k/k as a size", {"x": ROWS, "like": dynamic(np.ones((3,), "f4"))}, k_as_tensor(False)
    ),
)
