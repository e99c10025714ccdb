"""Factorizations of small matrices and what follows from them, each a function of the op's own signature.

The steps of an algorithm are unrolled: as many as the matrix has columns. Where PyTorch raises an
error of a matrix that has no inverse, the result holds infinities or NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchtrt_converters_linalg import pack

aten = torch.ops.aten

LARGEST = 16
"""The maximum number of rows and columns: every column takes about fifteen layers."""


def _sizes(matrix: Tensor) -> tuple[int, int]:
    rows, columns = matrix.shape[-2:]
    if not (isinstance(rows, int) and isinstance(columns, int)):
        raise NotImplementedError("the sizes of a matrix must be fixed")
    if not rows or not columns:
        raise NotImplementedError("a matrix without elements has no factors")
    if max(rows, columns) > LARGEST:
        raise NotImplementedError(f"matrices have at most {LARGEST} rows and columns")
    return rows, columns


def _indices(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, device=like.device)


def _eye(like: Tensor, rows: int, columns: int) -> Tensor:
    """Returns the identity in the dtype and with the batch of another matrix."""
    eye = (_indices(rows, like).unsqueeze(1) == _indices(columns, like)).to(like.dtype)
    return eye.expand(*like.shape[:-2], rows, columns)


@dataclass(frozen=True)
class _Factors:
    """``A[order] = L @ U``: both in one matrix, the exchanges of rows counted from 1, and the first zero pivot."""

    packed: Tensor
    pivots: Tensor
    info: Tensor


def _factor(matrix: Tensor) -> _Factors:
    """Returns the LU factorization with partial pivoting (Golub and Van Loan, 3.4.1)."""
    rows, columns = _sizes(matrix)
    row_indices, across = _indices(rows, matrix), _indices(columns, matrix)
    down = row_indices.unsqueeze(1)
    pivots, info = [], torch.zeros(matrix.shape[:-2], dtype=torch.int32, device=matrix.device)
    for step in range(min(rows, columns)):
        best = matrix[..., step:, step].abs().argmax(-1, keepdim=True) + step
        pivots.append(best + 1)
        # Not gathered: TensorRT for RTX takes minutes to build chains of gathers.
        is_best = (row_indices == best).unsqueeze(-1)
        chosen = torch.where(is_best, matrix, 0.0).sum(-2, keepdim=True)
        exchanged = torch.where(is_best, matrix[..., step : step + 1, :], matrix)
        matrix = torch.where(down == step, chosen, exchanged)
        pivot = matrix[..., step : step + 1, step : step + 1]
        zero = pivot == 0
        column = matrix[..., step : step + 1] / torch.where(zero, 1.0, pivot)
        factor = torch.where(down > step, column, 0.0)
        rest = torch.where(across > step, matrix[..., step : step + 1, :], 0.0)
        matrix = matrix - factor * rest
        matrix = torch.where((down > step) & (across == step), factor, matrix)
        info = torch.where((info == 0) & zero[..., 0, 0], step + 1, info)
    return _Factors(matrix, torch.cat(pivots, -1).to(torch.int32), info.to(torch.int32))


def _order(pivots: Tensor, rows: int) -> Tensor:
    """Returns which row of the matrix each row of the factors is."""
    row_indices = _indices(rows, pivots)
    order = row_indices.expand(*pivots.shape[:-1], rows)
    for step in range(pivots.shape[-1]):
        other = pivots[..., step : step + 1].to(torch.int64) - 1
        mine = order[..., step : step + 1]
        chosen = torch.where(row_indices == other, order, 0).sum(-1, keepdim=True)
        order = torch.where(
            row_indices == step, chosen, torch.where(row_indices == other, mine, order)
        )
    return order


def _permutation(pivots: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    order = _order(pivots, rows).unsqueeze(-2)
    return (_indices(rows, pivots).unsqueeze(1) == order).to(dtype)


def _unpack(packed: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = _sizes(packed)
    count = min(rows, columns)
    lower = packed[..., :count].tril(-1) + _eye(packed, rows, count)
    return lower, packed[..., :count, :].triu()


def _substitute(matrix: Tensor, right: Tensor, upper: bool, unit: bool = False) -> Tensor:
    """Returns the solution of a triangular system, column by column (Golub and Van Loan, 3.1.3).

    Not row by row: TensorRT for RTX takes minutes to build chains of products of one row.
    """
    count, _ = _sizes(matrix)
    batch = torch.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    rest = right.expand(*batch, *right.shape[-2:])
    down = _indices(count, matrix).unsqueeze(1)
    for index in reversed(range(count)) if upper else range(count):
        row = rest[..., index : index + 1, :]
        if not unit:
            row = row / matrix[..., index : index + 1, index : index + 1]
        reduced = rest - matrix[..., index : index + 1] * row
        rest = torch.where(down < index if upper else down > index, reduced, rest)
        rest = torch.where(down == index, row, rest)
    return rest


def _solve(factors: _Factors, right: Tensor, adjoint: bool = False) -> Tensor:
    """Returns the solution of ``A @ X = B``, or of ``A.T @ X = B``."""
    packed = factors.packed
    rows, _ = _sizes(packed)
    permutation = _permutation(factors.pivots, rows, packed.dtype)
    if adjoint:
        half = _substitute(packed.mT, right, upper=False)
        return permutation @ _substitute(packed.mT, half, upper=True, unit=True)
    half = _substitute(packed, permutation.mT @ right, upper=False, unit=True)
    return _substitute(packed, half, upper=True)


@pack.decomposition(aten.linalg_lu_factor_ex.default)
@pack.decomposition(aten._lu_with_info.default)
def lu_factor(
    A: Tensor, pivot: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns both factors in one matrix, the exchanges of rows, and the place of the first zero pivot."""
    if not pivot:
        raise NotImplementedError("PyTorch factors without pivoting on other devices only")
    factors = _factor(A)
    return factors.packed, factors.pivots, factors.info


@pack.decomposition(aten.linalg_lu_factor.default)
def lu_factor_only(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    """Returns both factors in one matrix, and the exchanges of rows."""
    return lu_factor(A, pivot)[:2]


@pack.decomposition(aten.linalg_lu.default)
def lu(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Returns ``P``, ``L`` and ``U``, whose product is the matrix."""
    packed, pivots, _ = lu_factor(A, pivot)
    return _permutation(pivots, _sizes(A)[0], A.dtype), *_unpack(packed)


@pack.decomposition(aten.lu_unpack.default)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns ``P``, ``L`` and ``U``."""
    if not (unpack_data and unpack_pivots):
        raise NotImplementedError("unpack_data=False and unpack_pivots=False return empty tensors")
    permutation = _permutation(LU_pivots, _sizes(LU_data)[0], LU_data.dtype)
    return permutation, *_unpack(LU_data)


@pack.decomposition(aten.linalg_lu_solve.default)
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """Returns the solution of a system whose matrix has been factored."""
    factors = _Factors(LU, pivots, pivots)
    return _solve(factors, B, adjoint) if left else _solve(factors, B.mT, not adjoint).mT


def _turned(A: Tensor) -> Tensor:
    """Returns the matrix that PyTorch factors for a determinant: where rows lie in memory it is turned."""
    return A.mT if A.is_contiguous() else A


def _is_odd(factors: _Factors) -> Tensor:
    """Returns whether an odd number of rows was exchanged."""
    own = _indices(factors.pivots.shape[-1], factors.pivots) + 1
    return (factors.pivots != own).to(torch.int32).sum(-1) % 2 == 1


@pack.decomposition(aten._linalg_det.default)
def det(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the determinant, and the factors."""
    factors = _factor(_turned(A))
    product = factors.packed.diagonal(0, -2, -1).prod(-1)
    return torch.where(_is_odd(factors), -product, product), factors.packed, factors.pivots


@pack.decomposition(aten._linalg_slogdet.default)
def slogdet(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the determinant's sign and the logarithm of its magnitude, and the factors."""
    factors = _factor(_turned(A))
    diagonal = factors.packed.diagonal(0, -2, -1)
    sign = torch.sign(diagonal).prod(-1)
    sign = torch.where(_is_odd(factors), -sign, sign)
    return sign, diagonal.abs().log().sum(-1), factors.packed, factors.pivots


@pack.decomposition(aten._linalg_solve_ex.default)
def solve(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the solution of ``A @ X = B`` (or ``X @ A = B``) and the factors."""
    factors = _factor(A)
    vector = B.dim() == 1 or (B.dim() == A.dim() - 1 and B.shape == A.shape[:-1])
    right = B.unsqueeze(-1) if vector else B
    result = _solve(factors, right) if left or vector else _solve(factors, right.mT, True).mT
    if vector:
        result = result.squeeze(-1)
    return result, factors.packed, factors.pivots, factors.info


@pack.decomposition(aten.linalg_inv_ex.default)
def inverse(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Returns the inverse, and the place of the first zero pivot."""
    factors = _factor(A)
    rows, columns = _sizes(A)
    return _solve(factors, _eye(A, rows, columns)), factors.info


@pack.decomposition(aten.linalg_inv.default)
def inverse_only(A: Tensor) -> Tensor:
    """Returns the inverse."""
    return inverse(A)[0]


@pack.decomposition(aten.linalg_solve.default)
def solve_only(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """Returns the solution of ``A @ X = B`` (or ``X @ A = B``)."""
    return solve(A, B, left=left)[0]


@pack.decomposition(aten.linalg_solve_ex.default)
def solve_with_info(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the solution of ``A @ X = B`` (or ``X @ A = B``), and the place of the first zero pivot."""
    result, _, _, info = solve(A, B, left=left)
    return result, info


@pack.decomposition(aten.linalg_cholesky_ex.default)
def cholesky_factor(
    self: Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the Cholesky factor, and the place of the first pivot not above 0 (Golub and Van Loan, 4.2.5)."""
    rows, _ = _sizes(self)
    down = _indices(rows, self).unsqueeze(1)
    rest = self.mT if upper else self
    columns, info = [], torch.zeros(self.shape[:-2], dtype=torch.int32, device=self.device)
    for step in range(rows):
        pivot = rest[..., step : step + 1, step : step + 1]
        info = torch.where((info == 0) & ~(pivot[..., 0, 0] > 0), step + 1, info)
        column = torch.where(down >= step, rest[..., step : step + 1] / torch.sqrt(pivot), 0.0)
        columns.append(column)
        rest = rest - column * column.mT
    factor = torch.cat(columns, -1)
    return factor.mT if upper else factor, info.to(torch.int32)


@pack.decomposition(aten.linalg_cholesky.default)
def cholesky(self: Tensor, *, upper: bool = False) -> Tensor:
    """Returns the Cholesky factor."""
    return cholesky_factor(self, upper=upper)[0]


# PyTorch 2.14 has it no more.
@pack.decomposition("aten.cholesky.default", enabled=hasattr(aten, "cholesky"))
def old_cholesky(self: Tensor, upper: bool = False) -> Tensor:
    """Returns the Cholesky factor."""
    return cholesky_factor(self, upper=upper)[0]


@pack.decomposition(aten.cholesky_solve.default)
def cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """Returns the solution of a system by the Cholesky factor of its matrix."""
    lower = input2.mT if upper else input2
    return _substitute(lower.mT, _substitute(lower, self, upper=False), upper=True)


@pack.decomposition(aten.cholesky_inverse.default)
def cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
    """Returns the inverse of the matrix that has a Cholesky factor."""
    rows, columns = _sizes(self)
    return cholesky_solve(_eye(self, rows, columns), self, upper)


@pack.decomposition(aten.linalg_solve_triangular.default)
def solve_triangular(
    self: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Returns the solution of a triangular system."""
    if left:
        return _substitute(self, B, upper, unitriangular)
    return _substitute(self.mT, B.mT, not upper, unitriangular).mT


@pack.decomposition(aten.triangular_solve.default)
def triangular_solve(
    self: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the solution of a triangular system, and its matrix."""
    matrix = A.mT if transpose else A
    result = _substitute(matrix, self, upper is not transpose, unitriangular)
    return result, A.expand(*result.shape[:-2], *A.shape[-2:])


def _reflect(reflectors: Iterable[tuple[Tensor, Tensor]], matrix: Tensor) -> Tensor:
    """Returns a matrix after ``I - tau * v @ v.T`` for each vector and factor in turn."""
    for vector, tau in reflectors:
        matrix = matrix - vector * (tau * (vector.mT @ matrix))
    return matrix


def _householder(matrix: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Returns the upper factor, and the reflections that make it (Golub and Van Loan, 5.2.1)."""
    rows, columns = _sizes(matrix)
    down = _indices(rows, matrix).unsqueeze(1)
    reflectors = []
    for step in range(min(rows, columns)):
        column = matrix[..., step : step + 1]
        first = column[..., step : step + 1, :]
        below = torch.where(down > step, column, 0.0)
        rest = (below * below).sum(-2, keepdim=True)
        length = torch.sqrt(first * first + rest)
        target = torch.where(first < 0, length, -length)
        flat = rest == 0
        tau = torch.where(flat, 0.0, (target - first) / torch.where(flat, 1.0, target))
        vector = below / torch.where(flat, 1.0, first - target)
        vector = torch.where(down == step, 1.0, vector)
        matrix = _reflect([(vector, tau)], matrix)
        reflectors.append((vector, tau))
    return matrix.triu(), reflectors


@pack.decomposition(aten.linalg_qr.default)
def qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Returns an orthogonal and an upper triangular matrix, whose product is the matrix."""
    if mode == "r":
        raise NotImplementedError("mode='r' returns an empty tensor beside the triangular one")
    upper, reflectors = _householder(A)
    rows, columns = _sizes(A)
    count = rows if mode == "complete" else min(rows, columns)
    return _reflect(reversed(reflectors), _eye(A, rows, count)), upper[..., :count, :]


def _reflectors(packed: Tensor, tau: Tensor) -> list[tuple[Tensor, Tensor]]:
    down = _indices(_sizes(packed)[0], packed).unsqueeze(1)
    result = []
    for step in range(tau.shape[-1]):
        vector = torch.where(down > step, packed[..., step : step + 1], 0.0)
        factor = tau[..., step : step + 1].unsqueeze(-1)
        result.append((torch.where(down == step, 1.0, vector), factor))
    return result


@pack.decomposition(aten.linalg_householder_product.default)
def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """Returns the first columns of the orthogonal matrix that reflections make."""
    rows, columns = _sizes(input)
    return _reflect(reversed(_reflectors(input, tau)), _eye(input, rows, columns))


@pack.decomposition(aten.ormqr.default)
def ormqr(
    self: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Returns a matrix times the orthogonal matrix that reflections make, from either side."""
    reflectors = _reflectors(self, input2)
    if left:
        return _reflect(reflectors if transpose else reversed(reflectors), input3)
    return _reflect(reversed(reflectors) if transpose else reflectors, input3.mT).mT


@pack.decomposition(aten._linalg_check_errors.default)
def check_errors(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    """Checks nothing: an engine raises no errors of what its inputs hold."""
