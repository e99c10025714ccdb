"""Concatenation and Select: types, shapes, axes, broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, dynamic

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = A + 10
TYPES = ("float32", "float16", "int32", "bool", "int8", "uint8")
CONDITION = np.array([[True, False, True]])
EMPTY = np.zeros((0, 3), np.float32)


def concat(name: str, *pieces: Given, axis: int | None = 0, types: tuple[str, ...] = ()) -> Case:
    """A case of Concatenation."""
    attributes = {} if axis is None else {"axis": axis}

    def build(n: Network) -> Any:
        return n.layer("concatenation", [n[f"x{i}"] for i in range(len(pieces))], **attributes)

    inputs = {f"x{index}": piece for index, piece in enumerate(pieces)}
    return Case(f"concatenation/{name}", inputs, build, types=types)


def select(name: str, condition: Given, a: Given, b: Given, **more: Any) -> Case:
    """A case of Select."""
    return Case(
        f"concatenation/select {name}",
        {"condition": condition, "a": a, "b": b},
        lambda n: n.layer("select", n["condition"], n["a"], n["b"]),
        **more,
    )


CASES = (
    *(concat(f"axis {axis}", A, B, axis=axis) for axis in (-1, 0, 1, 2)),
    *(
        concat(
            f"default axis rank {rank}",
            A.reshape((2,) + (1,) * (rank - 2) + (3,)),
            B.reshape((2,) + (1,) * (rank - 2) + (3,)),
            axis=None,
        )
        for rank in range(2, 6)
    ),
    *(concat(dtype, (A % 2).astype(dtype), (B % 3).astype(dtype)) for dtype in TYPES),
    *(
        concat(f"mixed {a} {b}", A.astype(a), A.astype(b))
        for a, b in (("float32", "int32"), ("float32", "float16"), ("int32", "bool"))
    ),
    concat("float16 output", A.astype("f2"), B.astype("f2"), types=("HALF",)),
    concat("one piece", A),
    concat("three pieces", A, B, A[:1]),
    concat("other sizes off the axis", A, B[:, :2]),
    concat("rank mismatch", A, A[0]),
    concat("scalars", np.array(1.0, "f4"), np.array(2.0, "f4")),
    concat("vectors", A[0], B[0]),
    concat("nothing first", EMPTY, A),
    concat("nothing twice", EMPTY, EMPTY),
    concat("nothing off the axis", EMPTY, EMPTY, axis=1),
    concat("no pieces"),
    concat("dynamic on the axis", dynamic(A, 0), dynamic(B, 0)),
    concat("dynamic off the axis", dynamic(A, 1), dynamic(B, 1)),
    concat("dynamic, sizes differ at run time", dynamic(A, 1), dynamic(B[:, :2], 1)),
    concat("rank 8", A.reshape(1, 1, 1, 1, 1, 1, 2, 3), B.reshape(1, 1, 1, 1, 1, 1, 2, 3), axis=7),
    *(select(dtype, CONDITION, (A % 2).astype(dtype), (B % 3).astype(dtype)) for dtype in TYPES),
    select("float16 output", CONDITION, A.astype("f2"), B.astype("f2"), types=("HALF",)),
    select("same shape", A > 2, A, B),
    select("all broadcast", CONDITION, A[:, :1], B[:1, :1]),
    select("condition broadcast", np.array([[True]]), A, B),
    select("scalars", np.array(False), np.array(1.0, "f4"), np.array(2.0, "f4")),
    select("rank mismatch of the condition", np.array([True]), A, B),
    select("rank mismatch of a branch", CONDITION, A, B[0]),
    select("size mismatch", CONDITION, A[:, :2], B),
    select("float condition", A[:1], A, B),
    select("int32 condition", A[:1].astype(np.int32), A, B),
    select("mixed types", CONDITION, A, B.astype(np.int32)),
    select("mixed float types", CONDITION, A, B.astype(np.float16)),
    select("nothing", np.zeros((0, 3), bool), EMPTY, EMPTY),
    select("nothing against one", np.ones((1, 3), bool), EMPTY, B[:1]),
    select("dynamic", dynamic(A > 2), dynamic(A), dynamic(B)),
    select("nan in the branch not taken", CONDITION, A, np.full((2, 3), np.nan, "f4")),
)
