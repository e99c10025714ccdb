"""Cases of factorizations of small matrices."""

from collections.abc import Callable
from typing import Any

import torch

from torchtrt.targets import parse_target
from torchtrt_testing.cases import decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

SQUARE, RIGHT = TensorSpec("batch 4 4", low=-2, high=2), TensorSpec("batch 4 2")
# Its factors, and its transpose's, are exact: with a rounded one the pivot of 0 depends on the CPU's instructions.
SINGULAR = TensorSpec(values=[[4.0, 2.0, 1.0], [8.0, 4.0, 2.0], [1.0, 0.0, 1.0]])
FIRST_ZERO = TensorSpec(values=[[0.0, 2.0, 1.0], [3.0, 0.0, 1.0], [1.0, 1.0, 0.0]])

POSITIVE = TensorSpec(values=[[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]])
PIVOTS = TensorSpec(values=[3, 3, 3], dtype=torch.int32)

_OLD_CHOLESKY = ["aten.cholesky.default"] if hasattr(torch.ops.aten, "cholesky") else []
CHOLESKY = ["aten.linalg_cholesky_ex.default", "aten.linalg_cholesky.default", *_OLD_CHOLESKY]
"""The ops that return the Cholesky factor of a matrix; PyTorch 2.15 has no ``cholesky``."""


def of_positive(op: str, upper: bool) -> Callable[..., Any]:
    """Returns a function that calls an op with a matrix that has a Cholesky factor."""
    return lambda x: parse_target(op)(x @ x.mT + 3 * torch.eye(4), upper=upper)


def of_triangle(op: str, upper: bool) -> Callable[..., Any]:
    """Returns a function that calls an op with a triangle without small pivots."""

    def function(x: torch.Tensor, *rest: torch.Tensor) -> Any:
        triangle = (x.triu() if upper else x.tril()) + 5 * torch.eye(4)
        return parse_target(op)(*rest, triangle, upper)

    return function


def of_factors(op: str, **options: Any) -> Callable[..., Any]:
    """Returns a function that calls an op with the factors of a matrix."""

    def function(x: torch.Tensor, *rest: torch.Tensor) -> Any:
        packed, pivots, _ = torch.ops.aten.linalg_lu_factor_ex.default(x)
        return parse_target(op)(packed, pivots, *rest, **options)

    return function


CASES = [
    *[
        decomposition_case(f"aten.{op}.default", matrix, label=label, tolerance=1e-3)
        for op in (
            "linalg_lu_factor_ex",
            "linalg_lu_factor",
            "_lu_with_info",
            "linalg_lu",
            "_linalg_det",
            "_linalg_slogdet",
        )
        for label, matrix in (("", SQUARE), ("first-zero", FIRST_ZERO))
    ],
    *[
        decomposition_case(f"aten.{op}.default", matrix, label=label, tolerance=1e-3)
        for op in ("linalg_lu_factor_ex", "linalg_lu", "linalg_qr")
        for label, matrix in (("tall", "batch 5 3"), ("wide", "batch 3 5"))
    ],
    decomposition_case("aten.linalg_lu_factor_ex.default", SINGULAR, label="singular"),
    decomposition_case("aten._linalg_det.default", SINGULAR, label="singular"),
    decomposition_case("aten.linalg_inv_ex.default", SQUARE, tolerance=1e-2),
    decomposition_case("aten.linalg_inv.default", FIRST_ZERO),
    *[
        decomposition_case(f"aten.{op}.default", "2 4 4", "2 4 2", left=True, tolerance=1e-2)
        for op in ("_linalg_solve_ex", "linalg_solve_ex", "linalg_solve")
    ],
    decomposition_case(
        "aten.linalg_solve.default", SQUARE, "batch 2 4", left=False, label="right", tolerance=1e-2
    ),
    decomposition_case("aten.linalg_solve.default", FIRST_ZERO, "3", label="vector"),
    *[
        op_case(
            (),
            SQUARE,
            function=lambda x, op=op: parse_target(op)(x.mT),
            label=f"{op}-turned",
            tolerance=1e-2,
        )
        for op in ("aten._linalg_det.default", "aten._linalg_slogdet.default")
    ],
    decomposition_case("aten.linalg_matrix_power.default", FIRST_ZERO, -2),
    op_case((), SQUARE, function=of_factors("aten.lu_unpack.default"), label="lu_unpack"),
    *[
        op_case(
            (),
            SQUARE,
            RIGHT if left else TensorSpec("batch 2 4"),
            function=of_factors("aten.linalg_lu_solve.default", left=left, adjoint=adjoint),
            label=f"lu_solve-{left}-{adjoint}",
            tolerance=1e-2,
        )
        for left in (True, False)
        for adjoint in (True, False)
    ],
    *[
        op_case((), SQUARE, function=of_positive(op, upper), label=f"{op}-{upper}", tolerance=1e-3)
        for op in CHOLESKY
        for upper in (False, True)
    ],
    *[
        op_case(
            (),
            SQUARE,
            *([RIGHT] if "solve" in op else []),
            function=of_triangle(op, upper),
            label=f"{op}-{upper}",
            tolerance=1e-3,
        )
        for op in ("aten.cholesky_solve.default", "aten.cholesky_inverse.default")
        for upper in (False, True)
    ],
    *[
        op_case(
            (),
            SQUARE,
            RIGHT if left else TensorSpec("batch 2 4"),
            function=lambda x, y, left=left, upper=upper, unit=unit: torch.linalg.solve_triangular(
                x + 5 * torch.eye(4), y, upper=upper, left=left, unitriangular=unit
            ),
            label=f"solve_triangular-{left}-{upper}-{unit}",
            tolerance=1e-2,
        )
        for left in (True, False)
        for upper in (True, False)
        for unit in (True, False)
    ],
    *[
        op_case(
            (),
            SQUARE,
            RIGHT,
            function=lambda x, y, upper=upper, transpose=transpose: (
                torch.ops.aten.triangular_solve.default(y, x + 5 * torch.eye(4), upper, transpose)
            ),
            label=f"triangular_solve-{upper}-{transpose}",
            tolerance=1e-3,
        )
        for upper in (True, False)
        for transpose in (True, False)
    ],
    decomposition_case(
        "aten.linalg_qr.default", "batch 5 3", "complete", label="complete", tolerance=1e-4
    ),
    decomposition_case(
        "aten.linalg_householder_product.default", "batch 5 3", "batch 3", tolerance=1e-3
    ),
    *[
        decomposition_case(
            "aten.ormqr.default",
            "batch 4 3",
            "batch 3",
            "batch 4 4",
            left,
            transpose,
            label=f"{left}-{transpose}",
            tolerance=1e-3,
        )
        for left in (True, False)
        for transpose in (True, False)
    ],
    *[decomposition_case(op, POSITIVE) for op in (*CHOLESKY, "aten.cholesky_inverse.default")],
    decomposition_case("aten.cholesky_solve.default", "batch 3 2", POSITIVE),
    decomposition_case("aten.linalg_solve_triangular.default", POSITIVE, "batch 3 2", upper=True),
    decomposition_case("aten.triangular_solve.default", "batch 3 2", POSITIVE),
    decomposition_case("aten.lu_unpack.default", "3 3", PIVOTS),
    decomposition_case("aten.linalg_lu_solve.default", POSITIVE, PIVOTS, "3 2"),
]
