"""Cases of orthogonal polynomials."""

import torch

from torchtrt_testing.cases import op_case
from torchtrt_testing.tensors import TensorSpec

I64 = torch.int64
HALF = torch.float16
FAMILIES = (
    *(f"special_chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *(f"special_shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"),
    "special_hermite_polynomial_h",
    "special_hermite_polynomial_he",
    "special_laguerre_polynomial_l",
    "special_legendre_polynomial_p",
)
CORNERS = TensorSpec(values=[[-1.0], [-0.3], [0.0], [0.5], [1.0], [2.5], [torch.inf], [torch.nan]])
DEGREES = TensorSpec(values=[[-1.0, 0.0, 1.0, 2.9, 7.0]])

CASES = [
    op_case(f"aten.{packet}.{overload}", *args, label=label, tolerance=tolerance)
    for packet in FAMILIES
    for overload, label, args, tolerance in (
        ("default", "", ("batch length", TensorSpec("length", I64, -1, 9)), 1e-3),
        ("default", "corners", (CORNERS, DEGREES), 1e-4),
        ("default", "int", (TensorSpec("batch 4", I64), TensorSpec("4", I64, 0, 3)), 1e-5),
        ("default", "no-dims", ("", TensorSpec("", I64, 0, 5)), 1e-4),
        ("n_scalar", "", (TensorSpec("batch 4", low=-1, high=1), 5), 1e-4),
        ("x_scalar", "", (0.7, TensorSpec("batch", I64, 0, 9)), 1e-4),
    )
] + [
    op_case(
        f"aten.{packet}.default",
        TensorSpec(values=[0.1, 1.0]),
        TensorSpec(values=[128.0, 129.0]),
        label="beyond",
    )
    for packet in ("special_hermite_polynomial_h", "special_hermite_polynomial_he")
]
