"""Matrix products and Einsum: transposes, vectors, batches, ranks, types, equations."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tools.agreement.case import Case, Given, Network, dynamic

OPERATIONS = ("NONE", "TRANSPOSE", "VECTOR")


def numbers(*shape: int, start: int = -2) -> np.ndarray:
    """Small integers in a shape."""
    return (np.arange(int(np.prod(shape))) % 7 + start).astype(np.float32).reshape(shape)


A, B = numbers(2, 3), numbers(3, 4, start=-3)
OPERANDS = {"NONE": A, "TRANSPOSE": A.T.copy(), "VECTOR": numbers(3)}
SECOND = {"NONE": B, "TRANSPOSE": B.T.copy(), "VECTOR": numbers(3)}


def product(
    name: str, a: Given, b: Given, op0: str = "NONE", op1: str = "NONE", **more: Any
) -> Case:
    """A case of MatrixMultiply."""
    return Case(
        f"matrix/product/{name}",
        {"a": a, "b": b},
        lambda n: n.layer(
            "matrix_multiply", n["a"], f"MatrixOperation.{op0}", n["b"], f"MatrixOperation.{op1}"
        ),
        **more,
    )


def einsum(equation: str, *operands: Given, name: str = "", **more: Any) -> Case:
    """A case of Einsum."""

    def build(n: Network) -> Any:
        return n.layer("einsum", [n[f"x{i}"] for i in range(len(operands))], equation)

    inputs = {f"x{index}": operand for index, operand in enumerate(operands)}
    return Case(f"matrix/einsum/{equation or 'empty'}{name}", inputs, build, **more)


CASES = (
    *(
        product(f"{op0} {op1}", OPERANDS[op0], SECOND[op1], op0, op1)
        for op0, op1 in itertools.product(OPERATIONS, OPERATIONS)
    ),
    *(
        product(
            f"{op0} {op1} batched",
            np.stack([OPERANDS[op0]] * 2),
            np.stack([SECOND[op1]] * 2),
            op0,
            op1,
        )
        for op0, op1 in itertools.product(OPERATIONS, OPERATIONS)
    ),
    *(
        product(f"dynamic {op0} {op1}", dynamic(OPERANDS[op0]), dynamic(SECOND[op1]), op0, op1)
        for op0, op1 in (("NONE", "NONE"), ("TRANSPOSE", "NONE"), ("VECTOR", "NONE"))
    ),
    product("batch broadcast", numbers(2, 2, 3), numbers(1, 3, 4)),
    product("batch broadcast both ways", numbers(2, 1, 2, 3), numbers(1, 2, 3, 2)),
    product("batch mismatch", numbers(2, 2, 3), numbers(3, 3, 4)),
    product("rank mismatch", numbers(1, 2, 3), B),
    product("inner mismatch", A, numbers(4, 2)),
    product("vectors without VECTOR", numbers(3), numbers(3)),
    product("scalars", np.array(2.0, "f4"), np.array(3.0, "f4")),
    product("scalars as VECTOR", np.array(2.0, "f4"), np.array(3.0, "f4"), "VECTOR", "VECTOR"),
    product("inner size 0", np.zeros((2, 0), "f4"), np.zeros((0, 4), "f4")),
    product("no rows", np.zeros((0, 3), "f4"), B),
    product("rank 6", numbers(1, 1, 2, 1, 2, 3), numbers(1, 1, 2, 1, 3, 2)),
    product("int32", A.astype("i4"), B.astype("i4")),
    product("bool", A > 0, B > 0),
    product("float16", A.astype("f2"), B.astype("f2")),
    product("float16 output", A.astype("f2"), B.astype("f2"), types=("HALF",)),
    product("mixed float types", A, B.astype("f2")),
    product("nan", np.array([[np.nan, 0, 1]], "f4"), B),
    product("inf", np.array([[np.inf, 0, 1]], "f4"), np.zeros((3, 1), "f4")),
    einsum("ij,jk->ik", A, B),
    einsum("ij,jk", A, B),
    einsum("ij,jk->ki", A, B),
    einsum("bij,bjk->bik", numbers(2, 2, 3), numbers(2, 3, 2)),
    einsum("bij,bkj->bik", numbers(2, 2, 3), numbers(2, 4, 3)),
    einsum("bhid,bhjd->bhij", numbers(1, 2, 2, 3), numbers(1, 2, 4, 3)),
    einsum("i,j->ij", numbers(2), numbers(3)),
    einsum("i,i->", numbers(3), numbers(3)),
    einsum("ij->ji", A),
    einsum("ij->i", A),
    einsum("ij->", A),
    einsum("ji", A),
    einsum("i,i->i", numbers(3), numbers(3)),
    einsum("ii->i", numbers(3, 3)),
    einsum("ii->", numbers(3, 3)),
    einsum("ii,ij->ij", numbers(3, 3), numbers(3, 3)),
    einsum("ij,ij->ij", A, numbers(1, 3), name=" size 1 against 3"),
    einsum("ij,jk->ik", A, numbers(2, 4), name=" size mismatch"),
    einsum("ij,jk->ik", A, numbers(3), name=" rank mismatch"),
    einsum("ij,jk->il", A, B),
    einsum("...i->...", A),
    einsum("ij,jk,kl->il", A, B, numbers(4, 2)),
    einsum("IJ,JK->IK", A, B),
    einsum(" i j , j k -> i k ", A, B),
    einsum("ij,jk->iik", A, B),
    einsum("", np.array(2.0, "f4")),
    einsum(",->", np.array(2.0, "f4"), np.array(3.0, "f4")),
    einsum(",ij->ij", np.array(2.0, "f4"), A),
    einsum("ij,jk->ik", A, name=" one operand"),
    einsum("ij->ij", A.astype("i4"), name=" int32"),
    einsum("ij,jk->ik", A.astype("i4"), B.astype("i4"), name=" both int32"),
    einsum("ij,jk->ik", A.astype("f2"), B.astype("f2"), name=" float16", types=("HALF",)),
    einsum("ij,jk->ik", dynamic(A), dynamic(B), name=" dynamic"),
    einsum("ij,jk->ik", np.zeros((2, 0), "f4"), np.zeros((0, 4), "f4"), name=" inner size 0"),
)
