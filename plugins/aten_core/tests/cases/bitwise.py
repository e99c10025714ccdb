"""Cases of bitwise operations, shifts and common divisors."""

import torch

from ..harness import T, case, decomposed

I64, I32, BOOL = torch.int64, torch.int32, torch.bool
LEAST, GREATEST = -(2**31), 2**31 - 1
EDGES = [0, 1, -1, 2, -2, 255, 256, -255, -256, 2**24 + 1, -(2**24) - 1, GREATEST, LEAST]
every = [T(values=[x for x in EDGES for _ in EDGES], dtype=dtype) for dtype in (I32, I64)]
other = [T(values=EDGES * len(EDGES), dtype=dtype) for dtype in (I32, I64)]
amounts = T(values=[0, 1, 5, 15, 16, 30, 31, 32, 33, 64, -1, -31, 2], dtype=I32)
edges = T(values=EDGES, dtype=I32)
bools = T("b 4", BOOL)
numbers = T("b 4", I64, LEAST, GREATEST)

CASES = [
    *[
        case(f"aten.{op}.Tensor", first, second, label=f"edges-{width}")
        for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")
        for first, second, width in zip(every, other, (32, 64), strict=True)
    ],
    *[
        case(f"aten.{op}.Tensor", bools, T("4", BOOL), label="bool")
        for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")
    ],
    *[
        case(f"aten.{op}.Scalar", tensor, number, label=label)
        for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")
        for label, tensor, number in (
            ("bool", bools, True),
            ("", numbers, 0x5A5A),
            ("negative", numbers, -7),
        )
    ],
    *[
        case(f"aten.{op}.Scalar_Tensor", number, tensor, label=label)
        for op in ("bitwise_and", "bitwise_or", "bitwise_xor")
        for label, number, tensor in (("bool", False, bools), ("", 12345, numbers))
    ],
    case("aten.bitwise_and.Scalar", edges, 255, label="low-bits"),
    case("aten.bitwise_and.Tensor", T("b 4", I32, LEAST, GREATEST), T("4", BOOL), label="mixed"),
    case(
        "aten.__or__.Tensor",
        T("b 13", I32, LEAST, GREATEST),
        function=lambda x: x | torch.tensor(EDGES, dtype=I32),
        label="constant",
    ),
    case("aten.bitwise_not.default", edges),
    case("aten.bitwise_not.default", bools, label="bool"),
    *[
        case(f"aten.{op}.Tensor", T(values=[[x] for x in EDGES], dtype=I32), amounts)
        for op in ("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__")
    ],
    *[
        case(f"aten.{op}", edges, amount, label=f"{amount}")
        for op in (
            "bitwise_left_shift.Tensor_Scalar",
            "bitwise_right_shift.Tensor_Scalar",
            "__lshift__.Scalar",
            "__rshift__.Scalar",
        )
        for amount in (3, 31, 32)
    ],
    case("aten.bitwise_left_shift.Scalar_Tensor", 3, T("b 4", I64, 0, 20)),
    case("aten.bitwise_right_shift.Scalar_Tensor", -1000, T("b 4", I64, 0, 40)),
    case("aten.bitwise_right_shift.Tensor", numbers, T("4", I64, 0, 40), label="wide"),
    case("aten.gcd.default", T("b 4", I64, -60, 60), T("4", I64, -60, 60)),
    case("aten.gcd.default", every[0], other[0], label="edges"),
    case(
        "aten.gcd.default",
        T(values=[1836311903], dtype=I32),
        T(values=[1134903170], dtype=I32),
        label="longest",
    ),
    decomposed("aten.lcm.default", T("b 4", I64, -60, 60), T("4", I64, -60, 60)),
]
