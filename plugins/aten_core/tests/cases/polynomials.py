"""Cases of orthogonal polynomials."""

import torch

from torchtrt_converters_aten_core.converters.polynomials import FAMILIES

from ..harness import T, case

I64 = torch.int64
HALF = torch.float16
CORNERS = T(values=[[-1.0], [-0.3], [0.0], [0.5], [1.0], [2.5], [torch.inf], [torch.nan]])
DEGREES = T(values=[[-1.0, 0.0, 1.0, 2.9, 7.0]])

CASES = [
    case(f"aten.{packet}.{overload}", *args, label=label, tolerance=tolerance)
    for packet in FAMILIES
    for overload, label, args, tolerance in (
        ("default", "", ("b s", T("s", I64, -1, 9)), 1e-3),
        ("default", "corners", (CORNERS, DEGREES), 1e-4),
        ("default", "int", (T("b 4", I64), T("4", I64, 0, 3)), 1e-5),
        ("default", "no-dims", ("", T("", I64, 0, 5)), 1e-4),
        ("n_scalar", "", (T("b 4", low=-1, high=1), 5), 1e-4),
        ("x_scalar", "", (0.7, T("b", I64, 0, 9)), 1e-4),
    )
] + [
    case(f"aten.{packet}.default", T(values=[0.1, 1.0]), T(values=[128.0, 129.0]), label="beyond")
    for packet in ("special_hermite_polynomial_h", "special_hermite_polynomial_he")
]
