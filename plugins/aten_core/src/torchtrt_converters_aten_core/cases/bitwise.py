"""Cases of bitwise operations, shifts and common divisors."""

import torch

from torchtrt_testing.cases import decomposition_case, op_case
from torchtrt_testing.tensors import TensorSpec

I64, I32, BOOL = torch.int64, torch.int32, torch.bool
LEAST, GREATEST = -(2**31), 2**31 - 1
EDGES = [0, 1, -1, 2, -2, 255, 256, -255, -256, 2**24 + 1, -(2**24) - 1, GREATEST, LEAST]
every = [TensorSpec(values=[x for x in EDGES for _ in EDGES], dtype=dtype) for dtype in (I32, I64)]
other = [TensorSpec(values=EDGES * len(EDGES), dtype=dtype) for dtype in (I32, I64)]
amounts = TensorSpec(values=[0, 1, 5, 15, 16, 30, 31, 32, 33, 64, -1, -31, 2], dtype=I32)
edges = TensorSpec(values=EDGES, dtype=I32)
bools = TensorSpec("batch 4", BOOL)
numbers = TensorSpec("batch 4", I64, LEAST, GREATEST)

CASES = [
    *[
        op_case(f"aten.{op}.Tensor", first, second, label=f"edges-{width}")
        for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")
        for first, second, width in zip(every, other, (32, 64), strict=True)
    ],
    *[
        op_case(f"aten.{op}.Tensor", bools, TensorSpec("4", BOOL), label="bool")
        for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")
    ],
    *[
        op_case(f"aten.{op}.Scalar", tensor, number, label=label)
        for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")
        for label, tensor, number in (
            ("bool", bools, True),
            ("", numbers, 0x5A5A),
            ("negative", numbers, -7),
        )
    ],
    *[
        op_case(f"aten.{op}.Scalar_Tensor", number, tensor, label=label)
        for op in ("bitwise_and", "bitwise_or", "bitwise_xor")
        for label, number, tensor in (("bool", False, bools), ("", 12345, numbers))
    ],
    op_case("aten.bitwise_and.Scalar", edges, 255, label="low-bits"),
    op_case(
        "aten.bitwise_and.Tensor",
        TensorSpec("batch 4", I32, LEAST, GREATEST),
        TensorSpec("4", BOOL),
        label="mixed",
    ),
    op_case(
        "aten.__or__.Tensor",
        TensorSpec("batch 13", I32, LEAST, GREATEST),
        function=lambda x: x | torch.tensor(EDGES, dtype=I32),
        label="constant",
    ),
    op_case("aten.bitwise_not.default", edges),
    op_case("aten.bitwise_not.default", bools, label="bool"),
    *[
        op_case(f"aten.{op}.Tensor", TensorSpec(values=[[x] for x in EDGES], dtype=I32), amounts)
        for op in ("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__")
    ],
    *[
        op_case(f"aten.{op}", edges, amount, label=f"{amount}")
        for op in (
            "bitwise_left_shift.Tensor_Scalar",
            "bitwise_right_shift.Tensor_Scalar",
            "__lshift__.Scalar",
            "__rshift__.Scalar",
        )
        for amount in (3, 31, 32)
    ],
    op_case("aten.bitwise_left_shift.Scalar_Tensor", 3, TensorSpec("batch 4", I64, 0, 20)),
    op_case("aten.bitwise_right_shift.Scalar_Tensor", -1000, TensorSpec("batch 4", I64, 0, 40)),
    op_case("aten.bitwise_right_shift.Tensor", numbers, TensorSpec("4", I64, 0, 40), label="wide"),
    op_case("aten.gcd.default", TensorSpec("batch 4", I64, -60, 60), TensorSpec("4", I64, -60, 60)),
    op_case("aten.gcd.default", every[0], other[0], label="edges"),
    op_case(
        "aten.gcd.default",
        TensorSpec(values=[1836311903], dtype=I32),
        TensorSpec(values=[1134903170], dtype=I32),
        label="longest",
    ),
    decomposition_case(
        "aten.lcm.default", TensorSpec("batch 4", I64, -60, 60), TensorSpec("4", I64, -60, 60)
    ),
]
